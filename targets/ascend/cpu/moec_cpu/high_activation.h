// High-level library: gated and plain activations.
#pragma once
#include "moec_cpu/high.h"

namespace moec_cpu {

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

inline float faster_gelu_v2(float x)
{
    const float gap = std::min(std::fabs(0.7071f * x), 1.769f) - 1.769f, half = 0.5f - 0.1444f * gap * gap;
    return x * ((x < 0 ? -half : half) + 0.5f);
}

}  // namespace moec_cpu

namespace AscendC {

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
template <typename T, bool isReuseSource = false>
void SwiGLU(LocalTensor<T>& dstTensor, LocalTensor<T>& srcTensor0, LocalTensor<T>& srcTensor1, const float& scalarValue, Site site = Site::here())
{
    SwiGLU<T, isReuseSource>(dstTensor, srcTensor0, srcTensor1, scalarValue, srcTensor0.GetSize(), site);
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
#define MOEC_FASTER_GELU(NAME, EXPR)                                                                                                            \
    template <typename T, bool highPrecision = false, bool highPerformance = false>                                                           \
    void NAME(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dataSize, Site site = Site::here())              \
    {                                                                                                                                         \
        MOEC_HIGH_TYPE(NAME);                                                                                                                 \
        moec_cpu::each(#NAME, site, dstLocal, srcLocal, dataSize, nullptr, [](float x) { return EXPR; });                                     \
    }                                                                                                                                         \
    template <typename T, bool highPrecision = false, bool highPerformance = false>                                                           \
    void NAME(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<uint8_t>& sharedTmpBuffer,                    \
              const uint32_t dataSize, Site site = Site::here())                                                                              \
    {                                                                                                                                         \
        MOEC_HIGH_TYPE(NAME);                                                                                                                 \
        moec_cpu::each(#NAME, site, dstLocal, srcLocal, dataSize, &sharedTmpBuffer, [](float x) { return EXPR; });                            \
    }
/// x / (1 + e^(-1.702 x)).
MOEC_FASTER_GELU(FasterGelu, x / (1 + std::exp(-1.702f * x)))
/// x (sign(x) (0.5 - 0.1444 (min(|0.7071 x|, 1.769) - 1.769)^2) + 0.5).
MOEC_FASTER_GELU(FasterGeluV2, moec_cpu::faster_gelu_v2(x))

}  // namespace AscendC
