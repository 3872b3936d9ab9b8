// High-level library: back from int32 and int8.
#pragma once
#include "moec_cpu/high.h"

namespace AscendC {

enum class DeQuantMode : uint8_t { DEQUANT_WITH_SINGLE_ROW = 0, DEQUANT_WITH_MULTI_ROW };
struct DequantParams {
    uint32_t m, n, calCount;
};
struct AntiQuantShapeInfo {
    uint32_t offsetHeight{0}, offsetWidth{0}, scaleHeight{0}, scaleWidth{0};
};

}  // namespace AscendC

namespace moec_cpu {

/// Result and scale types that go together (CANN asc-devkit docs, AscendDequant): with a scale a column, or one for all.
template <typename D, typename S, bool columns>
constexpr bool kDequantTypes = (columns && std::is_same<D, half>::value && std::is_same<S, uint64_t>::value) ||
                               (columns && std::is_same<D, bfloat16_t>::value && std::is_same<S, float>::value) ||
                               (std::is_same<D, float>::value && (std::is_same<S, float>::value || std::is_same<S, bfloat16_t>::value)) ||
                               (std::is_same<D, bfloat16_t>::value && std::is_same<S, bfloat16_t>::value);

/// Scales as floats; those of 64 bits hold one in their low half.
template <typename S>
std::vector<float> scales_of(High& h, const AscendC::LocalTensor<S>& t, uint32_t n)
{
    if constexpr (std::is_same<S, uint64_t>::value) {
        const std::vector<float> halves = h.read(t.template ReinterpretCast<float>(), n * 2ULL);
        std::vector<float> out(n);
        for (uint32_t i = 0; i < n; ++i) out[i] = halves[2 * i];
        return out;
    } else {
        return h.read(t, n);
    }
}

template <typename D>
void dequantise(High& h, const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<int32_t>& src, const std::vector<float>& scale,
                AscendC::DequantParams p, AscendC::DeQuantMode mode)
{
    constexpr uint32_t block = 32 / sizeof(D);
    h.pitch<int32_t>(p.n, "n");
    h.in.require(p.calCount >= 1 && p.calCount <= p.n, "shape out of range", "calCount is at most n");
    if (mode == AscendC::DeQuantMode::DEQUANT_WITH_SINGLE_ROW && p.m == 1 && p.calCount % block == 0 && p.n % p.calCount == 0) p = {p.n / p.calCount, p.calCount, p.calCount};
    const uint32_t wide = (p.n + block - 1) / block * block;
    for (uint32_t row = 0; row < p.m; ++row) {
        std::vector<float> x = h.read(src, p.calCount, static_cast<uint64_t>(row) * p.n);
        for (uint32_t i = 0; i < p.calCount; ++i) x[i] *= scale[i % scale.size()];
        h.write(dst, x, static_cast<uint64_t>(row) * wide);
    }
}

/// The first `n` numbers, a scale a column.
template <typename D>
void dequantise_all(High& h, const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<int32_t>& src, const std::vector<float>& scale, uint32_t n)
{
    h.in.require(n >= 1 && n <= src.GetSize() && src.GetSize() % scale.size() == 0, "shape out of range",
                 "calCount is at most the source's size, which is a number of rows of scales");
    std::vector<float> x = h.read(src, n);
    for (uint32_t i = 0; i < n; ++i) x[i] *= scale[i % scale.size()];
    h.write(dst, x);
}

/// scale * (src + offset), rows of `width` numbers that share scale and offset in groups of K / groups rows.
template <typename I, typename O>
void antiquantise(High& h, const AscendC::LocalTensor<O>& dst, const AscendC::LocalTensor<I>& src, const std::vector<float>& offset,
                  const std::vector<float>& scale, uint32_t groups, uint32_t k)
{
    const uint32_t n = src.GetSize() / k, share = k / std::max<uint32_t>(groups, 1);
    h.in.require(k > 0 && n > 0 && groups > 0 && k % groups == 0, "shape out of range", fmt("%u rows do not fall into %u groups", k, groups));
    std::vector<float> x = h.read(src, static_cast<uint64_t>(k) * n);
    for (uint32_t i = 0; i < k; ++i) {
        for (uint32_t j = 0; j < n; ++j) {
            const size_t at = scale.size() == 1 ? 0 : (i / share) * n + j;
            x[i * n + j] = scale[at] * (x[i * n + j] + (offset.empty() ? 0.0f : offset[at]));
        }
    }
    h.write(dst, x);
}

}  // namespace moec_cpu

namespace AscendC {

template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const LocalTensor<scaleT>& deqScale,
                   const LocalTensor<uint8_t>& sharedTmpBuffer, DequantParams params, Site site = Site::here())
{
    static_assert(moec_cpu::kDequantTypes<dstT, scaleT, true>, "AscendDequant does not pair these types of result and scale");
    moec_cpu::High h("AscendDequant", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::dequantise(h, dstTensor, srcTensor, moec_cpu::scales_of(h, deqScale, params.calCount), params, mode);
}
template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const LocalTensor<scaleT>& deqScale, DequantParams params,
                   Site site = Site::here())
{
    static_assert(moec_cpu::kDequantTypes<dstT, scaleT, true>, "AscendDequant does not pair these types of result and scale");
    moec_cpu::High h("AscendDequant", site);
    moec_cpu::dequantise(h, dstTensor, srcTensor, moec_cpu::scales_of(h, deqScale, params.calCount), params, mode);
}
template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const scaleT deqScale, DequantParams params, Site site = Site::here())
{
    static_assert(moec_cpu::kDequantTypes<dstT, scaleT, false>, "AscendDequant does not pair these types of result and scale");
    moec_cpu::High h("AscendDequant", site);
    moec_cpu::dequantise(h, dstTensor, srcTensor, {static_cast<float>(deqScale)}, params, mode);
}

template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const scaleT deqScale, const LocalTensor<uint8_t>& sharedTmpBuffer,
                   DequantParams params, Site site = Site::here())
{
    static_assert(moec_cpu::kDequantTypes<dstT, scaleT, false>, "AscendDequant does not pair these types of result and scale");
    moec_cpu::High h("AscendDequant", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::dequantise(h, dstTensor, srcTensor, {static_cast<float>(deqScale)}, params, mode);
}
/// Rows as wide as there are scales; `calCount` numbers of them all.
template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const LocalTensor<scaleT>& deqScale,
                   const uint32_t calCount, Site site = Site::here())
{
    static_assert(moec_cpu::kDequantTypes<dstT, scaleT, true>, "AscendDequant does not pair these types of result and scale");
    moec_cpu::High h("AscendDequant", site);
    moec_cpu::dequantise_all(h, dstTensor, srcTensor, moec_cpu::scales_of(h, deqScale, deqScale.GetSize()), calCount);
}
template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const LocalTensor<scaleT>& deqScale,
                   const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t calCount, Site site = Site::here())
{
    static_assert(moec_cpu::kDequantTypes<dstT, scaleT, true>, "AscendDequant does not pair these types of result and scale");
    moec_cpu::High h("AscendDequant", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::dequantise_all(h, dstTensor, srcTensor, moec_cpu::scales_of(h, deqScale, deqScale.GetSize()), calCount);
}
template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const LocalTensor<scaleT>& deqScale, Site site = Site::here())
{
    AscendDequant<dstT, scaleT, mode>(dstTensor, srcTensor, deqScale, srcTensor.GetSize(), site);
}
template <typename dstT, typename scaleT, DeQuantMode mode = DeQuantMode::DEQUANT_WITH_SINGLE_ROW>
void AscendDequant(const LocalTensor<dstT>& dstTensor, const LocalTensor<int32_t>& srcTensor, const LocalTensor<scaleT>& deqScale,
                   const LocalTensor<uint8_t>& sharedTmpBuffer, Site site = Site::here())
{
    AscendDequant<dstT, scaleT, mode>(dstTensor, srcTensor, deqScale, sharedTmpBuffer, srcTensor.GetSize(), site);
}

#define MOEC_ANTI_QUANT \
    static_assert(std::is_same<InputDataType, int8_t>::value && !isTranspose, "AscendAntiQuant of int8, not transposed, is modelled")

/// One offset and scale for all.
template <typename InputDataType, typename OutputDataType, bool isTranspose>
void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src, const OutputDataType offset, const OutputDataType scale,
                     const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t K, const AntiQuantShapeInfo& = {}, Site site = Site::here())
{
    MOEC_ANTI_QUANT;
    moec_cpu::High h("AscendAntiQuant", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::antiquantise(h, dst, src, {static_cast<float>(offset)}, {static_cast<float>(scale)}, 1, K);
}
/// An offset and a scale a channel, shared by groups of rows.
template <typename InputDataType, typename OutputDataType, bool isTranspose>
void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src, const LocalTensor<OutputDataType>& offset,
                     const LocalTensor<OutputDataType>& scale, const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t K,
                     const AntiQuantShapeInfo& shapeInfo = {}, Site site = Site::here())
{
    MOEC_ANTI_QUANT;
    moec_cpu::High h("AscendAntiQuant", site);
    h.spoil(sharedTmpBuffer);
    const uint32_t n = src.GetSize() / K, groups = shapeInfo.scaleHeight ? shapeInfo.scaleHeight : scale.GetSize() / n;
    moec_cpu::antiquantise(h, dst, src, h.read(offset, groups * n), h.read(scale, groups * n), groups, K);
}

template <typename InputDataType, typename OutputDataType, bool isTranspose>
void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src, const LocalTensor<OutputDataType>& offset,
                     const LocalTensor<OutputDataType>& scale, const uint32_t K, const AntiQuantShapeInfo& shapeInfo = {}, Site site = Site::here())
{
    MOEC_ANTI_QUANT;
    moec_cpu::High h("AscendAntiQuant", site);
    const uint32_t n = src.GetSize() / K, groups = shapeInfo.scaleHeight ? shapeInfo.scaleHeight : scale.GetSize() / n;
    moec_cpu::antiquantise(h, dst, src, h.read(offset, groups * n), h.read(scale, groups * n), groups, K);
}
template <typename InputDataType, typename OutputDataType, bool isTranspose>
void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src, const OutputDataType offset, const OutputDataType scale,
                     const uint32_t K, const AntiQuantShapeInfo& = {}, Site site = Site::here())
{
    MOEC_ANTI_QUANT;
    moec_cpu::High h("AscendAntiQuant", site);
    moec_cpu::antiquantise(h, dst, src, {static_cast<float>(offset)}, {static_cast<float>(scale)}, 1, K);
}
/// Without offsets.
template <typename InputDataType, typename OutputDataType, bool isTranspose>
void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src, const LocalTensor<OutputDataType>& scale,
                     const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t K, const AntiQuantShapeInfo& shapeInfo = {}, Site site = Site::here())
{
    MOEC_ANTI_QUANT;
    moec_cpu::High h("AscendAntiQuant", site);
    h.spoil(sharedTmpBuffer);
    const uint32_t n = src.GetSize() / K, groups = shapeInfo.scaleHeight ? shapeInfo.scaleHeight : scale.GetSize() / n;
    moec_cpu::antiquantise(h, dst, src, {}, h.read(scale, groups * n), groups, K);
}
template <typename InputDataType, typename OutputDataType, bool isTranspose>
void AscendAntiQuant(const LocalTensor<OutputDataType>& dst, const LocalTensor<InputDataType>& src, const OutputDataType scale,
                     const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t K, const AntiQuantShapeInfo& = {}, Site site = Site::here())
{
    MOEC_ANTI_QUANT;
    moec_cpu::High h("AscendAntiQuant", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::antiquantise(h, dst, src, {}, {static_cast<float>(scale)}, 1, K);
}

}  // namespace AscendC
