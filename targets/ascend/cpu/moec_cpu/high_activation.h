// High-level library: softmax in its forms, gated and plain activations.
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

}  // namespace AscendC

namespace moec_cpu {

/// Rows as stored and as they count; from the shape that the call was given, else from the tiling.
MOEC_CPU_FN AscendC::SoftMaxShapeInfo softmax_shape(const AscendC::SoftMaxTiling& tiling, AscendC::SoftMaxShapeInfo s)
{
    if (s.srcM == 0 || s.srcK == 0) s = {tiling.srcM, tiling.srcK, tiling.srcM, tiling.srcK};
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

template <typename T, typename F>
void each(const char* name, Site site, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint64_t n,
          const AscendC::LocalTensor<uint8_t>* scratch, F f)
{
    High h(name, site);
    std::vector<float> v = h.read(src, n);
    if (scratch) h.spoil(*scratch);
    for (float& x : v) x = f(x);
    h.write(dst, v);
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& sumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
             const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    static_assert(!isDataFormatNZ, "SoftMax of NZ data is not modelled");
    moec_cpu::High h("SoftMax", site);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &sumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), true, nullptr, nullptr, nullptr);
}
template <typename T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& sumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
             const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    static_assert(!isDataFormatNZ, "SoftMax of NZ data is not modelled");
    moec_cpu::High h("SoftMax", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &sumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), true, nullptr, nullptr, nullptr);
}
/// Statistics in float of half rows.
template <typename T, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftMax(const LocalTensor<half>& dstTensor, const LocalTensor<float>& sumTensor, const LocalTensor<float>& maxTensor, const LocalTensor<half>& srcTensor,
             const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    static_assert(!isDataFormatNZ, "SoftMax of NZ data is not modelled");
    moec_cpu::High h("SoftMax", site);
    moec_cpu::softmax_rows<half, float>(h, dstTensor, &sumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), true, nullptr, nullptr, nullptr);
}
template <typename T, bool isReuseSource = false, bool isBasicBlock = false>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {},
             Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    moec_cpu::High h("SoftMax", site);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, nullptr, nullptr, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), true, nullptr, nullptr, nullptr);
}
template <typename T, bool isReuseSource = false, bool isBasicBlock = false>
void SoftMax(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling,
             const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftMax);
    moec_cpu::High h("SoftMax", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, nullptr, nullptr, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), true, nullptr, nullptr, nullptr);
}

template <typename T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftmaxFlashV2(const LocalTensor<T>& dstTensor, const LocalTensor<T>& expSumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
                    const LocalTensor<T>& expMaxTensor, const LocalTensor<T>& inExpSumTensor, const LocalTensor<T>& inMaxTensor, const SoftMaxTiling& tiling,
                    const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftmaxFlashV2);
    static_assert(!isDataFormatNZ, "SoftmaxFlashV2 of NZ data is not modelled");
    moec_cpu::High h("SoftmaxFlashV2", site);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &expSumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), false,
                                 isUpdate ? &expMaxTensor : nullptr, isUpdate ? &inExpSumTensor : nullptr, isUpdate ? &inMaxTensor : nullptr);
}
template <typename T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftmaxFlashV2(const LocalTensor<half>& dstTensor, const LocalTensor<float>& expSumTensor, const LocalTensor<float>& maxTensor,
                    const LocalTensor<half>& srcTensor, const LocalTensor<half>& expMaxTensor, const LocalTensor<float>& inExpSumTensor,
                    const LocalTensor<float>& inMaxTensor, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    static_assert(!isDataFormatNZ, "SoftmaxFlashV2 of NZ data is not modelled");
    moec_cpu::High h("SoftmaxFlashV2", site);
    moec_cpu::softmax_rows<half, float>(h, dstTensor, &expSumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), false,
                                        isUpdate ? &expMaxTensor : nullptr, isUpdate ? &inExpSumTensor : nullptr, isUpdate ? &inMaxTensor : nullptr);
}
template <typename T, bool isUpdate = false, bool isReuseSource = false, bool isBasicBlock = false, bool isDataFormatNZ = false>
void SoftmaxFlashV2(const LocalTensor<T>& dstTensor, const LocalTensor<T>& expSumTensor, const LocalTensor<T>& maxTensor, const LocalTensor<T>& srcTensor,
                    const LocalTensor<T>& expMaxTensor, const LocalTensor<T>& inExpSumTensor, const LocalTensor<T>& inMaxTensor,
                    const LocalTensor<uint8_t>& sharedTmpBuffer, const SoftMaxTiling& tiling, const SoftMaxShapeInfo& softmaxShapeInfo = {}, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SoftmaxFlashV2);
    static_assert(!isDataFormatNZ, "SoftmaxFlashV2 of NZ data is not modelled");
    moec_cpu::High h("SoftmaxFlashV2", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::softmax_rows<T, T>(h, dstTensor, &expSumTensor, &maxTensor, srcTensor, moec_cpu::softmax_shape(tiling, softmaxShapeInfo), false,
                                 isUpdate ? &expMaxTensor : nullptr, isUpdate ? &inExpSumTensor : nullptr, isUpdate ? &inMaxTensor : nullptr);
}

/// dst = src0 * Swish(src1) with Swish(x) = x / (1 + e^(-beta x)).
template <typename T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1, const float& scalarValue,
            const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t calCount, Site site = Site::here())
{
    MOEC_HIGH_TYPE(SwiGLU);
    moec_cpu::High h("SwiGLU", site);
    h.template pitch<T>(calCount, "calCount");
    std::vector<float> a = h.read(srcTensor0, calCount), b = h.read(srcTensor1, calCount);
    h.spoil(sharedTmpBuffer);
    for (uint32_t i = 0; i < calCount; ++i) a[i] *= b[i] / (1 + std::exp(-scalarValue * b[i]));
    h.write(dstTensor, a);
}
template <typename T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1, const float& scalarValue,
            const LocalTensor<uint8_t>& sharedTmpBuffer, Site site = Site::here())
{
    SwiGLU<T, isReuseSource>(dstTensor, srcTensor0, srcTensor1, scalarValue, sharedTmpBuffer, srcTensor0.GetSize(), site);
}
template <typename T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor0, const LocalTensor<T>& srcTensor1, const float& scalarValue, const uint32_t calCount,
            Site site = Site::here())
{
    MOEC_HIGH_TYPE(SwiGLU);
    moec_cpu::High h("SwiGLU", site);
    h.template pitch<T>(calCount, "calCount");
    std::vector<float> a = h.read(srcTensor0, calCount), b = h.read(srcTensor1, calCount);
    for (uint32_t i = 0; i < calCount; ++i) a[i] *= b[i] / (1 + std::exp(-scalarValue * b[i]));
    h.write(dstTensor, a);
}

/// x / (1 + e^(-x)).
template <typename T, bool isReuseSource = false>
void Silu(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, uint32_t dataSize, Site site = Site::here())
{
    MOEC_HIGH_TYPE(Silu);
    moec_cpu::each("Silu", site, dstLocal, srcLocal, dataSize, nullptr, [](float x) { return x / (1 + std::exp(-x)); });
}
/// x / (1 + e^(-beta x)).
template <typename T, bool isReuseSource = false>
void Swish(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, uint32_t dataSize, const T scalarValue, Site site = Site::here())
{
    MOEC_HIGH_TYPE(Swish);
    const float beta = static_cast<float>(scalarValue);
    moec_cpu::each("Swish", site, dstLocal, srcLocal, dataSize, nullptr, [beta](float x) { return x / (1 + std::exp(-beta * x)); });
}

/// x / (1 + e^(-1.5957691216 (x + 0.044715 x^3))), the form with tanh.
template <typename T, bool highPrecision = false, bool highPerformance = false>
void Gelu(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<uint8_t>& sharedTmpBuffer, const uint32_t dataSize, Site site = Site::here())
{
    MOEC_HIGH_TYPE(Gelu);
    moec_cpu::each("Gelu", site, dstLocal, srcLocal, dataSize, &sharedTmpBuffer, [](float x) { return x / (1 + std::exp(-1.5957691216057308f * (x + 0.044715f * x * x * x))); });
}
template <typename T, bool highPrecision = false, bool highPerformance = false>
void Gelu(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dataSize, Site site = Site::here())
{
    MOEC_HIGH_TYPE(Gelu);
    moec_cpu::each("Gelu", site, dstLocal, srcLocal, dataSize, nullptr, [](float x) { return x / (1 + std::exp(-1.5957691216057308f * (x + 0.044715f * x * x * x))); });
}
/// x / (1 + e^(-1.702 x)).
template <typename T, bool highPrecision = false, bool highPerformance = false>
void FasterGelu(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dataSize, Site site = Site::here())
{
    MOEC_HIGH_TYPE(FasterGelu);
    moec_cpu::each("FasterGelu", site, dstLocal, srcLocal, dataSize, nullptr, [](float x) { return x / (1 + std::exp(-1.702f * x)); });
}

}  // namespace AscendC
