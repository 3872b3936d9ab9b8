// High-level library: softmax over rows, whole and in parts.
#pragma once
#include "moec_cpu/high.h"

namespace AscendC {

struct SoftMaxTiling {
    uint32_t srcM = 0, srcK = 0, srcSize = 0, outMaxM = 0, outMaxK = 0, outMaxSize = 0, splitM = 0, splitK = 0, splitSize = 0;
    uint32_t reduceM = 0, reduceK = 0, reduceSize = 0, rangeM = 0, tailM = 0, tailSplitSize = 0, tailReduceSize = 0;
};
struct SoftMaxShapeInfo {
    uint32_t srcM{0}, srcK{0}, oriSrcM{0}, oriSrcK{0};
};

enum class SoftmaxMode { SOFTMAX_NORMAL = 0, SOFTMAX_OUTPUT_WITHOUT_BRC = 1 };
/// What is known at compile time: rows and columns that count, 0 where they come with the call.
struct SoftmaxConfig {
    constexpr SoftmaxConfig(bool isCheckTilingIn) : isCheckTiling(isCheckTilingIn) {}
    constexpr SoftmaxConfig(bool isCheckTilingIn, uint32_t oriSrcMIn, uint32_t oriSrcKIn, SoftmaxMode modeIn = SoftmaxMode::SOFTMAX_NORMAL)
        : isCheckTiling(isCheckTilingIn), oriSrcM(oriSrcMIn), oriSrcK(oriSrcKIn), mode(modeIn)
    {
    }
    bool isCheckTiling = true;
    uint32_t oriSrcM = 0, oriSrcK = 0;
    SoftmaxMode mode = SoftmaxMode::SOFTMAX_NORMAL;
};
constexpr SoftmaxConfig SOFTMAX_DEFAULT_CFG = {true, 0, 0, SoftmaxMode::SOFTMAX_NORMAL};

}  // namespace AscendC

namespace moec_cpu {

/// Rows as stored and as they count; from the shape that the call was given, else from the tiling.
MOEC_CPU_FN AscendC::SoftMaxShapeInfo softmax_shape(const AscendC::SoftMaxTiling& tiling, AscendC::SoftMaxShapeInfo s, const AscendC::SoftmaxConfig& known)
{
    if (s.srcM == 0 || s.srcK == 0) s = {tiling.srcM, tiling.srcK, tiling.srcM, tiling.srcK};
    if (known.oriSrcM != 0) s.oriSrcM = known.oriSrcM;
    if (known.oriSrcK != 0) s.oriSrcK = known.oriSrcK;
    if (s.oriSrcM == 0) s.oriSrcM = s.srcM;
    if (s.oriSrcK == 0) s.oriSrcK = s.srcK;
    return s;
}

/// One row's statistic, a block of equal numbers a row.
template <typename S>
void put_block(High& h, const AscendC::LocalTensor<S>& t, uint32_t row, float value)
{
    h.write(t, std::vector<float>(32 / sizeof(S), value), static_cast<uint64_t>(row) * (32 / sizeof(S)));
}
template <typename S>
float get_block(High& h, const AscendC::LocalTensor<S>& t, uint32_t row)
{
    return h.read(t, 32 / sizeof(S), static_cast<uint64_t>(row) * (32 / sizeof(S)))[0];
}

/// Softmax over rows. With `normal` results are divided by their sum; else (flash) they are the numerators, and where
/// `update` says so maxima and sums go on from earlier ones.
template <typename T, typename S>
void softmax_rows(High& h, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<S>* sum, const AscendC::LocalTensor<S>* max,
                  const AscendC::LocalTensor<T>& src, AscendC::SoftMaxShapeInfo s, bool normal, const AscendC::LocalTensor<T>* exp_max,
                  const AscendC::LocalTensor<S>* in_sum, const AscendC::LocalTensor<S>* in_max)
{
    h.pitch<T>(s.srcK, "srcK");
    h.in.require(s.oriSrcK <= s.srcK && s.oriSrcM <= s.srcM, "shape out of range", "oriSrcM and oriSrcK are at most srcM and srcK");
    for (uint32_t m = 0; m < s.oriSrcM; ++m) {
        std::vector<float> row = h.read(src, s.oriSrcK, static_cast<uint64_t>(m) * s.srcK);
        float top = *std::max_element(row.begin(), row.end()), total = 0;
        const float before = in_max ? get_block(h, *in_max, m) : 0;
        if (in_max) top = std::max(top, before);
        for (float& x : row) total += x = std::exp(x - top);
        if (in_max) {
            const float faded = std::exp(before - top);
            total += faded * get_block(h, *in_sum, m);
            put_block(h, *exp_max, m, faded);
        }
        if (normal) {
            for (float& x : row) x /= total;
        }
        h.write(dst, row, static_cast<uint64_t>(m) * s.srcK);
        if (sum) put_block(h, *sum, m, total);
        if (max) put_block(h, *max, m, top);
    }
}

}  // namespace moec_cpu

namespace AscendC {

#define MOEC_SOFTMAX_FORM(NAME)                                        \
    static_assert(!isDataFormatNZ, #NAME " of NZ data is not modelled"); \
    static_assert(config.mode == SoftmaxMode::SOFTMAX_NORMAL, #NAME " is modelled with statistics a block a row")

template <typename T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& sumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
             const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    MOEC_SOFTMAX_FORM(SoftMax);
    moec_cpu::High h("SoftMax", site);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &sumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), true, nullptr, nullptr, nullptr);
}
template <typename T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& sumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
             const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    MOEC_SOFTMAX_FORM(SoftMax);
    moec_cpu::High h("SoftMax", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &sumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), true, nullptr, nullptr, nullptr);
}
/// Statistics in float of half rows.
template <typename T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<half>& dstTensor, const LocalTensor<float>& sumTensor, const LocalTensor<float>& maxTensor, const LocalTensor<half>& srcTensor,
             const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_SOFTMAX_FORM(SoftMax);
    moec_cpu::High h("SoftMax", site);
    moec_cpu::softmax_rows<half, float>(h, dstTensor, &sumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), true, nullptr, nullptr, nullptr);
}
template <typename T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<half>& dstTensor, const LocalTensor<float>& sumTensor, const LocalTensor<float>& maxTensor, const LocalTensor<half>& srcTensor,
             const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_SOFTMAX_FORM(SoftMax);
    moec_cpu::High h("SoftMax", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<half, float>(h, dstTensor, &sumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), true, nullptr, nullptr, nullptr);
}
template <typename T, bool isReuseSource = false, bool isBasicBlock = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {},
             Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    moec_cpu::High h("SoftMax", site);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, nullptr, nullptr, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), true, nullptr, nullptr, nullptr);
}
template <typename T, bool isReuseSource = false, bool isBasicBlock = false, const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    moec_cpu::High h("SoftMax", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, nullptr, nullptr, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), true, nullptr, nullptr, nullptr);
}

template <typename T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftmaxFlashV2(const LocalTensor<T>& dstTensor, const LocalTensor<T>& expSumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
                    const LocalTensor<T>& expMaxTensor, const LocalTensor<T>& inExpSumTensor, const LocalTensor<T>& inMaxTensor, const SoftMaxTiling& tiling,
                    const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftmaxFlashV2);
    MOEC_SOFTMAX_FORM(SoftmaxFlashV2);
    moec_cpu::High h("SoftmaxFlashV2", site);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &expSumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), false,
                                 isUpdate ? &expMaxTensor : nullptr, isUpdate ? &inExpSumTensor : nullptr, isUpdate ? &inMaxTensor : nullptr);
}
template <typename T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftmaxFlashV2(const LocalTensor<T>& dstTensor, const LocalTensor<T>& expSumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
                    const LocalTensor<T>& expMaxTensor, const LocalTensor<T>& inExpSumTensor, const LocalTensor<T>& inMaxTensor,
                    const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftmaxFlashV2);
    MOEC_SOFTMAX_FORM(SoftmaxFlashV2);
    moec_cpu::High h("SoftmaxFlashV2", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &expSumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), false,
                                 isUpdate ? &expMaxTensor : nullptr, isUpdate ? &inExpSumTensor : nullptr, isUpdate ? &inMaxTensor : nullptr);
}
template <typename T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftmaxFlashV2(const LocalTensor<half>& dstTensor, const LocalTensor<float>& expSumTensor, const LocalTensor<float>& maxTensor,
                    const LocalTensor<half>& srcTensor, const LocalTensor<half>& expMaxTensor, const LocalTensor<float>& inExpSumTensor,
                    const LocalTensor<float>& inMaxTensor, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_SOFTMAX_FORM(SoftmaxFlashV2);
    moec_cpu::High h("SoftmaxFlashV2", site);
    moec_cpu::softmax_rows<half, float>(h, dstTensor, &expSumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), false,
                                        isUpdate ? &expMaxTensor : nullptr, isUpdate ? &inExpSumTensor : nullptr, isUpdate ? &inMaxTensor : nullptr);
}
template <typename T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false,
          const SoftmaxConfig& config = SOFTMAX_DEFAULT_CFG>
void SoftmaxFlashV2(const LocalTensor<half>& dstTensor, const LocalTensor<float>& expSumTensor, const LocalTensor<float>& maxTensor,
                    const LocalTensor<half>& srcTensor, const LocalTensor<half>& expMaxTensor, const LocalTensor<float>& inExpSumTensor,
                    const LocalTensor<float>& inMaxTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling,
                    const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_SOFTMAX_FORM(SoftmaxFlashV2);
    moec_cpu::High h("SoftmaxFlashV2", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<half, float>(h, dstTensor, &expSumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo, config), false,
                                        isUpdate ? &expMaxTensor : nullptr, isUpdate ? &inExpSumTensor : nullptr, isUpdate ? &inMaxTensor : nullptr);
}

}  // namespace AscendC
