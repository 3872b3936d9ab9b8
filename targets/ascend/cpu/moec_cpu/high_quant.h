// High-level library: int8 quantisation.
#pragma once
#include "moec_cpu/high.h"

namespace moec_cpu {

/// src * scale + offset, rounded to the nearest int8 (halves to even), saturated. The device computes in half.
template <typename T>
void quantise(High& h, const AscendC::LocalTensor<int8_t>& dst, const AscendC::LocalTensor<T>& src, const std::vector<float>& scale,
              const std::vector<float>& offset, uint32_t n)
{
    h.in.require(n > 0 && n % 32 == 0, "misaligned row", fmt("calCount %u must be a multiple of 32", n));
    auto low = [](float v) { return half_value(half_bits(v)); };
    std::vector<float> x = h.read(src, n);
    for (uint32_t i = 0; i < n; ++i) x[i] = low(low(low(x[i]) * low(scale[i % scale.size()])) + low(offset[i % offset.size()]));
    h.write(dst, x);
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const float scale,
                 const float offset, const uint32_t calCount, Site site = Site::here())
{
    MOEC_HIGH_TYPE(AscendQuant);
    moec_cpu::High h("AscendQuant", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::quantise(h, dstTensor, srcTensor, {scale}, {offset}, calCount);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const float scale, const float offset, const uint32_t calCount,
                 Site site = Site::here())
{
    MOEC_HIGH_TYPE(AscendQuant);
    moec_cpu::High h("AscendQuant", site);
    moec_cpu::quantise(h, dstTensor, srcTensor, {scale}, {offset}, calCount);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const float scale,
                 const float offset, Site site = Site::here())
{
    AscendQuant<T, isReuseSource>(dstTensor, srcTensor, sharedTmpBuffer, scale, offset, srcTensor.GetSize(), site);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const float scale, const float offset, Site site = Site::here())
{
    AscendQuant<T, isReuseSource>(dstTensor, srcTensor, scale, offset, srcTensor.GetSize(), site);
}
/// A scale a channel and one offset.
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<T>& scaleTensor, const T offset,
                 const uint32_t scaleCount, const uint32_t calCount, Site site = Site::here())
{
    MOEC_HIGH_TYPE(AscendQuant);
    moec_cpu::High h("AscendQuant", site);
    moec_cpu::quantise(h, dstTensor, srcTensor, h.read(scaleTensor, scaleCount), {static_cast<float>(offset)}, calCount);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
                 const LocalTensor<T>& scaleTensor, const T offset, const uint32_t scaleCount, const uint32_t calCount, Site site = Site::here())
{
    MOEC_HIGH_TYPE(AscendQuant);
    moec_cpu::High h("AscendQuant", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::quantise(h, dstTensor, srcTensor, h.read(scaleTensor, scaleCount), {static_cast<float>(offset)}, calCount);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<T>& scaleTensor, const T offset, Site site = Site::here())
{
    AscendQuant<T, isReuseSource>(dstTensor, srcTensor, scaleTensor, offset, scaleTensor.GetSize(), srcTensor.GetSize(), site);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
                 const LocalTensor<T>& scaleTensor, const T offset, Site site = Site::here())
{
    AscendQuant<T, isReuseSource>(dstTensor, srcTensor, sharedTmpBuffer, scaleTensor, offset, scaleTensor.GetSize(), srcTensor.GetSize(), site);
}
/// A scale and an offset a channel: rows of `scaleCount` numbers.
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<T>& scaleTensor, const LocalTensor<T>& offsetTensor,
                 const uint32_t scaleCount, const uint32_t offsetCount, const uint32_t calCount, Site site = Site::here())
{
    MOEC_HIGH_TYPE(AscendQuant);
    moec_cpu::High h("AscendQuant", site);
    h.in.require(scaleCount == offsetCount, "shape out of range", "as many scales as offsets");
    moec_cpu::quantise(h, dstTensor, srcTensor, h.read(scaleTensor, scaleCount), h.read(offsetTensor, offsetCount), calCount);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
                 const LocalTensor<T>& scaleTensor, const LocalTensor<T>& offsetTensor, const uint32_t scaleCount, const uint32_t offsetCount,
                 const uint32_t calCount, Site site = Site::here())
{
    MOEC_HIGH_TYPE(AscendQuant);
    moec_cpu::High h("AscendQuant", site);
    h.in.require(scaleCount == offsetCount, "shape out of range", "as many scales as offsets");
    h.spoil(sharedTmpBuffer);
    moec_cpu::quantise(h, dstTensor, srcTensor, h.read(scaleTensor, scaleCount), h.read(offsetTensor, offsetCount), calCount);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<T>& scaleTensor, const LocalTensor<T>& offsetTensor,
                 Site site = Site::here())
{
    AscendQuant<T, isReuseSource>(dstTensor, srcTensor, scaleTensor, offsetTensor, scaleTensor.GetSize(), offsetTensor.GetSize(), srcTensor.GetSize(), site);
}
template <typename T, bool isReuseSource = false>
void AscendQuant(const LocalTensor<int8_t>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer,
                 const LocalTensor<T>& scaleTensor, const LocalTensor<T>& offsetTensor, Site site = Site::here())
{
    AscendQuant<T, isReuseSource>(dstTensor, srcTensor, sharedTmpBuffer, scaleTensor, offsetTensor, scaleTensor.GetSize(), offsetTensor.GetSize(),
                                  srcTensor.GetSize(), site);
}

}  // namespace AscendC
