// High-level library: the transpose of a matrix.
#pragma once
#include "moec_cpu/high.h"

namespace AscendC {

/// What the tiling function made; of TRANSPOSE_ND2ND_ONLY param1 is the height and param2 the width.
struct ConfusionTransposeTiling {
    uint32_t param0 = 0, param1 = 0, param2 = 0, param3 = 0, param4 = 0, param5 = 0, param6 = 0, param7 = 0, param8 = 0, param9 = 0;
    uint32_t param10 = 0, param11 = 0, param12 = 0, param13 = 0, param14 = 0, param15 = 0, param16 = 0, param17 = 0;
};

/// [height, width] to [width, height]; the other scenarios, of NZ data and of four axes, are not modelled.
template <typename T>
void ConfusionTranspose(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, TransposeType transposeType, ConfusionTransposeTiling& tiling,
                        Site site = Site::here())
{
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "ConfusionTranspose takes types of 16 and 32 bits");
    moec_cpu::High h("ConfusionTranspose", site);
    h.in.require(transposeType == TransposeType::TRANSPOSE_ND2ND_ONLY, "scenario that is not modelled", "TRANSPOSE_ND2ND_ONLY is");
    const uint32_t height = tiling.param1, width = tiling.param2;
    h.in.require(height > 0 && width > 0 && height % 16 == 0 && width % 16 == 0, "shape out of range",
                 moec_cpu::fmt("%u by %u: both are multiples of 16", height, width));
    const std::vector<T> from = h.template raw<T>(srcTensor, static_cast<uint64_t>(height) * width);
    std::vector<T> to(from.size());
    for (uint32_t i = 0; i < height; ++i) {
        for (uint32_t j = 0; j < width; ++j) to[static_cast<size_t>(j) * height + i] = from[static_cast<size_t>(i) * width + j];
    }
    h.put(dstTensor, to);
}
template <typename T>
void ConfusionTranspose(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
                        TransposeType transposeType, ConfusionTransposeTiling& tiling, Site site = Site::here())
{
    moec_cpu::High("ConfusionTranspose", site).spoil(sharedTmpBuffer);
    ConfusionTranspose<T>(dstTensor, srcTensor, transposeType, tiling, site);
}

}  // namespace AscendC
