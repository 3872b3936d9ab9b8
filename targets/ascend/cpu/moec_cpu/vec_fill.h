// Filling and copying inside UB: Duplicate, Brcb, CreateVecIndex, ArithProgression, Copy.
#pragma once
#include "moec_cpu/vec_arith.h"

namespace moec_cpu {

template <typename T>
constexpr bool kFillType = one_of<T, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t>;

template <typename T, typename Fn>
void fill(Instr& in, const AscendC::LocalTensor<T>& dst, const Work& w, uint32_t block, uint32_t repeat, Fn value)
{
    Operand d = operand(dst, block, repeat, "dst");
    write_operand(in, d, w);
    in.count(w.elements() * sizeof(T), w.repeats);
    uint8_t* ub = in.c.data(UB);
    each_lane(w, [&](uint32_t r, uint32_t e) { store<T>(ub + d.at(r, e), value(r * w.lanes + e)); });
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask, const moec_cpu::U8 repeatTimes,
               const moec_cpu::U16 dstBlockStride, const moec_cpu::U8 dstRepeatStride, Site site = Site::here())
{
    static_assert(moec_cpu::kFillType<T>, "Duplicate: a 16- or 32-bit type");
    moec_cpu::Instr in(moec_cpu::V, "Duplicate", site);
    T v = scalarValue;
    moec_cpu::fill<T>(in, dst, moec_cpu::mask_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), dstBlockStride, dstRepeatStride, [v](uint32_t) { return v; });
}
template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask[], const moec_cpu::U8 repeatTimes,
               const moec_cpu::U16 dstBlockStride, const moec_cpu::U8 dstRepeatStride, Site site = Site::here())
{
    static_assert(moec_cpu::kFillType<T>, "Duplicate: a 16- or 32-bit type");
    moec_cpu::Instr in(moec_cpu::V, "Duplicate", site);
    T v = scalarValue;
    moec_cpu::fill<T>(in, dst, moec_cpu::bits_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), dstBlockStride, dstRepeatStride, [v](uint32_t) { return v; });
}
template <typename T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count, Site site = Site::here())
{
    static_assert(moec_cpu::kFillType<T>, "Duplicate: a 16- or 32-bit type");
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "Duplicate", site);
    T v = scalarValue;
    moec_cpu::fill<T>(in, dst, moec_cpu::count_work(in, count, 256 / sizeof(T)), 1, 8, [v](uint32_t) { return v; });
}

/// Eight source elements a repeat, each spread over one 32-byte block.
template <typename T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const moec_cpu::U8 repeatTimes, const BrcbRepeatParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::kFillType<T>, "Brcb: a 16- or 32-bit type");
    using namespace moec_cpu;
    if (repeatTimes == 0) return;
    Instr in(V, "Brcb", site);
    in.require(p.dstBlkStride != 0, "parameter out of range", "dstBlkStride must not be 0");
    constexpr uint32_t per = 32 / sizeof(T);
    LocalRef s = src0.ref();
    in.require(s.space == UB, "operand in the wrong memory", "src must lie in UB");
    in.align(s, "src");
    in.read(s, s.addr, s.addr + repeatTimes * 8ULL * sizeof(T));
    Work w;
    w.lanes = 8 * per;
    w.repeats = repeatTimes;
    w.low = w.lanes >= 64 ? ~0ULL : (1ULL << w.lanes) - 1;
    w.high = w.lanes > 64 ? ~0ULL : 0;
    Operand d = operand(dst, p.dstBlkStride, p.dstRepStride, "dst");
    std::vector<T> values(repeatTimes * 8u);
    std::memcpy(values.data(), in.c.data(UB) + s.addr, values.size() * sizeof(T));
    Spans out;
    operand_spans(d, w, out);
    for (const Span& x : out.v) {
        in.require(x.end <= s.addr || x.begin >= s.addr + values.size() * sizeof(T), "operands overlap in part", "dst and src of Brcb must not share memory");
    }
    write_operand(in, d, w);
    in.count(values.size() * sizeof(T), repeatTimes);
    uint8_t* ub = in.c.data(UB);
    each_lane(w, [&](uint32_t r, uint32_t e) { store<T>(ub + d.at(r, e), values[r * 8 + e / per]); });
}

template <typename T>
constexpr bool kIndexType = moec_cpu::one_of<T, half, float, int16_t, int32_t>;

template <typename T>
void CreateVecIndex(LocalTensor<T>& dst, const T& firstValue, uint64_t mask, moec_cpu::U8 repeatTimes, moec_cpu::U16 dstBlkStride,
                    moec_cpu::U8 dstRepStride, Site site = Site::here())
{
    static_assert(kIndexType<T>, "CreateVecIndex: half, float, int16_t or int32_t");
    moec_cpu::Instr in(moec_cpu::V, "CreateVecIndex", site);
    float f = static_cast<float>(firstValue);
    moec_cpu::fill<T>(in, dst, moec_cpu::mask_work(in, mask, repeatTimes, 256 / sizeof(T), true), dstBlkStride, dstRepStride,
                      [f](uint32_t i) { return static_cast<T>(f + static_cast<float>(i)); });
}
template <typename T>
void CreateVecIndex(LocalTensor<T>& dst, const T& firstValue, uint64_t mask[], moec_cpu::U8 repeatTimes, moec_cpu::U16 dstBlkStride,
                    moec_cpu::U8 dstRepStride, Site site = Site::here())
{
    static_assert(kIndexType<T>, "CreateVecIndex: half, float, int16_t or int32_t");
    moec_cpu::Instr in(moec_cpu::V, "CreateVecIndex", site);
    float f = static_cast<float>(firstValue);
    moec_cpu::fill<T>(in, dst, moec_cpu::bits_work(in, mask, repeatTimes, 256 / sizeof(T), true), dstBlkStride, dstRepStride,
                      [f](uint32_t i) { return static_cast<T>(f + static_cast<float>(i)); });
}
template <typename T>
void CreateVecIndex(LocalTensor<T> dst, const T& firstValue, uint32_t count, Site site = Site::here())
{
    static_assert(kIndexType<T>, "CreateVecIndex: half, float, int16_t or int32_t");
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "CreateVecIndex", site);
    T first = firstValue;
    moec_cpu::fill<T>(in, dst, moec_cpu::count_work(in, count, 256 / sizeof(T)), 1, 8, [first](uint32_t i) {
        if constexpr (std::is_integral<T>::value) return static_cast<T>(first + static_cast<T>(i));
        else return static_cast<T>(static_cast<float>(first) + static_cast<float>(i));
    });
}

/// first, first + diff, ... : `count` values.
template <typename T>
void ArithProgression(const LocalTensor<T>& dst, const T firstValue, const T diffValue, const int32_t count, Site site = Site::here())
{
    static_assert(kIndexType<T>, "ArithProgression: half, float, int16_t or int32_t");
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "ArithProgression", site);
    moec_cpu::fill<T>(in, dst, moec_cpu::count_work(in, count, 256 / sizeof(T)), 1, 8, [=](uint32_t i) {
        if constexpr (std::is_integral<T>::value) return static_cast<T>(firstValue + diffValue * static_cast<T>(i));
        else return static_cast<T>(static_cast<float>(firstValue) + static_cast<float>(diffValue) * static_cast<float>(i));
    });
}

template <typename T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask[], const moec_cpu::U8 repeatTimes,
          const CopyRepeatParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::kFillType<T>, "Copy: a 16- or 32-bit type");
    using namespace moec_cpu;
    Instr in(V, "Copy", site);
    run_unary<T, T>(in, operand(dst, p.dstStride, p.dstRepeatSize, "dst"), operand(src, p.srcStride, p.srcRepeatSize, "src"),
                    bits_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), [](T x) { return x; });
}
template <typename T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask, const moec_cpu::U8 repeatTimes,
          const CopyRepeatParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::kFillType<T>, "Copy: a 16- or 32-bit type");
    using namespace moec_cpu;
    Instr in(V, "Copy", site);
    run_unary<T, T>(in, operand(dst, p.dstStride, p.dstRepeatSize, "dst"), operand(src, p.srcStride, p.srcRepeatSize, "src"),
                    mask_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), [](T x) { return x; });
}

}  // namespace AscendC
