// Cast between the types of NPU arch 2201, each pair with the rounding modes that the vendor lists for it.
#pragma once
#include "moec_cpu/vec_arith.h"

namespace moec_cpu {

using AscendC::RoundMode;

MOEC_CPU_FN Round round_of(RoundMode m)
{
    switch (m) {
        case RoundMode::CAST_FLOOR: return Round::Floor;
        case RoundMode::CAST_CEIL: return Round::Ceil;
        case RoundMode::CAST_ROUND: return Round::Away;
        case RoundMode::CAST_TRUNC: return Round::Trunc;
        case RoundMode::CAST_ODD: return Round::Odd;
        default: return Round::Rint;
    }
}

MOEC_CPU_FN double round_double(double v, Round r)
{
    switch (r) {
        case Round::Floor: return std::floor(v);
        case Round::Ceil: return std::ceil(v);
        case Round::Away: return std::round(v);
        case Round::Trunc: return std::trunc(v);
        default: return std::nearbyint(v);
    }
}

/// Float to integer: rounded, saturated; NaN becomes 0.
template <typename I>
I to_integer(double v, Round r)
{
    if (v != v) return 0;
    double x = round_double(v, r);
    constexpr double high = static_cast<double>(std::numeric_limits<I>::max()), low = static_cast<double>(std::numeric_limits<I>::min());
    if (x >= high) return std::numeric_limits<I>::max();
    if (x <= low) return std::numeric_limits<I>::min();
    return static_cast<I>(x);
}

/// 64-bit integer to float with a direction: through a correctly rounded neighbour.
MOEC_CPU_FN float int64_to_float(int64_t v, Round r)
{
    float f = static_cast<float>(v);  // to nearest even
    long double exact = static_cast<long double>(v), got = static_cast<long double>(f);
    if (got == exact || r == Round::Rint || r == Round::Away) return f;
    float inf = std::numeric_limits<float>::infinity();
    bool down = r == Round::Floor || (r == Round::Trunc && v > 0), up = r == Round::Ceil || (r == Round::Trunc && v < 0);
    if (down && got > exact) return std::nextafter(f, -inf);
    if (up && got < exact) return std::nextafter(f, inf);
    return f;
}

template <typename D, typename S>
D cast_value(S s, Round r)
{
    constexpr bool from_float = one_of<S, float, half, bfloat16_t>;
    if constexpr (std::is_same<D, half>::value && from_float) {
        D d;
        d.bits = half_bits(static_cast<float>(s), r);
        return d;
    } else if constexpr (std::is_same<D, bfloat16_t>::value) {
        D d;
        d.bits = bf16_bits(static_cast<float>(s), r);
        return d;
    } else if constexpr (std::is_same<D, float>::value && std::is_same<S, float>::value) {
        return static_cast<float>(round_double(s, r));
    } else if constexpr (std::is_same<D, float>::value && from_float) {
        return static_cast<float>(s);
    } else if constexpr (std::is_integral<D>::value && from_float) {
        return to_integer<D>(static_cast<float>(s), r);
    } else if constexpr (std::is_same<D, float>::value) {
        return int64_to_float(static_cast<int64_t>(s), r);
    } else if constexpr (std::is_same<D, half>::value) {
        D d;
        d.bits = half_bits(static_cast<float>(s), r);
        return d;
    } else {  // integer to integer: narrowing saturates
        int64_t v = static_cast<int64_t>(s);
        if (v > static_cast<int64_t>(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
        if (v < static_cast<int64_t>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
        return static_cast<D>(v);
    }
}

enum CastModes : uint8_t { kNever, kNoneOnly, kFive, kFiveNone, kSix };

/// Which modes a pair of types takes (CANN asc-devkit docs, Cast, Atlas A2).
template <typename D, typename S>
constexpr CastModes cast_modes()
{
    if (one_of<S, int8_t, uint8_t> && std::is_same<D, half>::value) return kNoneOnly;
    if (std::is_same<S, int16_t>::value) return std::is_same<D, half>::value ? kFiveNone : (std::is_same<D, float>::value ? kNoneOnly : kNever);
    if (std::is_same<S, half>::value) {
        if (one_of<D, int8_t, uint8_t>) return kFiveNone;
        if (one_of<D, int16_t, int32_t>) return kFive;
        return std::is_same<D, float>::value ? kNoneOnly : kNever;
    }
    if (std::is_same<S, bfloat16_t>::value) return std::is_same<D, int32_t>::value ? kFive : (std::is_same<D, float>::value ? kNoneOnly : kNever);
    if (std::is_same<S, int32_t>::value) {
        if (one_of<D, int16_t, int64_t, half>) return kNoneOnly;
        return std::is_same<D, float>::value ? kFiveNone : kNever;
    }
    if (std::is_same<S, float>::value) {
        if (std::is_same<D, half>::value) return kSix;
        return one_of<D, int16_t, bfloat16_t, int32_t, float, int64_t> ? kFive : kNever;
    }
    if (std::is_same<S, int64_t>::value) return std::is_same<D, int32_t>::value ? kNoneOnly : (std::is_same<D, float>::value ? kFive : kNever);
    return kNever;
}

template <typename D, typename S>
void check_cast(Instr& in, RoundMode m)
{
    constexpr CastModes modes = cast_modes<D, S>();
    bool none = m == RoundMode::CAST_NONE, odd = m == RoundMode::CAST_ODD;
    bool ok = modes == kNoneOnly ? (none || std::is_same<S, int32_t>::value) : (modes == kFive ? !none && !odd : (modes == kFiveNone ? !odd : true));
    in.require(ok, "round mode does not fit the types",
               modes == kNoneOnly ? "this pair takes RoundMode::CAST_NONE only"
                                  : "this pair takes CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND and CAST_TRUNC");
}

template <typename D, typename S>
void cast(Instr& in, const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<S>& src, RoundMode m, const Work& w,
          const AscendC::UnaryRepeatParams& p)
{
    check_cast<D, S>(in, m);
    Round r = round_of(m);
    Operand d = operand(dst, p.dstBlkStride, p.dstRepStride, "dst"), a = operand(src, p.srcBlkStride, p.srcRepStride, "src");
    if constexpr (std::is_same<D, half>::value && std::is_same<S, int32_t>::value) {
        float scale = in.c.deq_scale;
        run_unary<D, S>(in, d, a, w, [scale](S x) { return half(static_cast<float>(x) * scale); });
    } else {
        run_unary<D, S>(in, d, a, w, [r](S x) { return cast_value<D, S>(x, r); });
    }
}

template <typename D, typename S>
constexpr uint32_t cast_lanes = 256 / (sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));

}  // namespace moec_cpu

namespace AscendC {

template <typename T1, typename T2, bool isSetMask = true>
void Cast(const LocalTensor<T1>& dst, const LocalTensor<T2>& src, const RoundMode& round_mode, const uint64_t mask[],
          const moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, Site site = Site::here())
{
    static_assert(moec_cpu::cast_modes<T1, T2>() != moec_cpu::kNever, "Cast: NPU arch 2201 has no such conversion");
    moec_cpu::Instr in(moec_cpu::V, "Cast", site);
    moec_cpu::cast<T1, T2>(in, dst, src, round_mode, moec_cpu::bits_work(in, mask, repeatTimes, moec_cpu::cast_lanes<T1, T2>, isSetMask), repeatParams);
}
template <typename T1, typename T2, bool isSetMask = true>
void Cast(const LocalTensor<T1>& dst, const LocalTensor<T2>& src, const RoundMode& round_mode, const uint64_t mask,
          const moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, Site site = Site::here())
{
    static_assert(moec_cpu::cast_modes<T1, T2>() != moec_cpu::kNever, "Cast: NPU arch 2201 has no such conversion");
    moec_cpu::Instr in(moec_cpu::V, "Cast", site);
    moec_cpu::cast<T1, T2>(in, dst, src, round_mode, moec_cpu::mask_work(in, mask, repeatTimes, moec_cpu::cast_lanes<T1, T2>, isSetMask), repeatParams);
}
template <typename T1, typename T2>
void Cast(const LocalTensor<T1>& dst, const LocalTensor<T2>& src, const RoundMode& round_mode, const uint32_t count, Site site = Site::here())
{
    static_assert(moec_cpu::cast_modes<T1, T2>() != moec_cpu::kNever, "Cast: NPU arch 2201 has no such conversion");
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "Cast", site);
    constexpr uint32_t lanes = moec_cpu::cast_lanes<T1, T2>;
    moec_cpu::cast<T1, T2>(in, dst, src, round_mode, moec_cpu::count_work(in, count, lanes),
                           UnaryRepeatParams(1, 1, static_cast<uint8_t>(lanes * sizeof(T1) / 32), static_cast<uint8_t>(lanes * sizeof(T2) / 32)));
}

/// half to four-bit integers: rounded, saturated to -8..7. Counts are even, as two elements share a byte.
MOEC_CPU_FN void Cast(const LocalTensor<int4b_t>& dst, const LocalTensor<half>& src, const RoundMode& round_mode, const uint32_t count, Site site = Site::here())
{
    using namespace moec_cpu;
    if (count == 0) return;
    Instr in(V, "Cast", site);
    reset_mask(in.c);
    in.require(count % 2 == 0, "odd count of four-bit elements", "two elements share a byte");
    in.require(round_mode != RoundMode::CAST_ODD, "round mode does not fit the types", "half to int4b_t takes every mode but CAST_ODD");
    const LocalRef d = dst.ref(), s = src.ref();
    in.align(d, "dst");
    in.align(s, "src");
    in.read(s, s.addr, s.addr + count * 2ULL);
    in.write(d, d.addr, d.addr + count / 2);
    in.count(count * 2ULL, (count + 127) / 128);
    uint8_t* ub = in.c.data(UB);
    auto nibble = [&](uint32_t i) {
        const int v = to_integer<int8_t>(static_cast<float>(load<half>(ub + s.addr + i * 2ULL)), round_of(round_mode));
        return static_cast<uint8_t>(std::max(-8, std::min(7, v)) & 15);
    };
    std::vector<uint8_t> out(count / 2);
    for (uint32_t i = 0; i < count; i += 2) out[i / 2] = static_cast<uint8_t>(nibble(i) | nibble(i + 1) << 4);
    std::memcpy(ub + d.addr, out.data(), out.size());
}
MOEC_CPU_FN void Cast(const LocalTensor<half>& dst, const LocalTensor<int4b_t>& src, const RoundMode& round_mode, const uint32_t count, Site site = Site::here())
{
    using namespace moec_cpu;
    if (count == 0) return;
    Instr in(V, "Cast", site);
    reset_mask(in.c);
    in.require(count % 2 == 0, "odd count of four-bit elements", "two elements share a byte");
    in.require(round_mode == RoundMode::CAST_NONE, "round mode does not fit the types", "int4b_t to half takes RoundMode::CAST_NONE only");
    const LocalRef d = dst.ref(), s = src.ref();
    in.align(d, "dst");
    in.align(s, "src");
    in.read(s, s.addr, s.addr + count / 2);
    in.write(d, d.addr, d.addr + count * 2ULL);
    in.count(count * 2ULL, (count + 127) / 128);
    uint8_t* ub = in.c.data(UB);
    std::vector<uint8_t> from(ub + s.addr, ub + s.addr + count / 2);
    for (uint32_t i = 0; i < count; ++i) {
        const int v = from[i / 2] >> (i % 2 * 4) & 15;
        store<half>(ub + d.addr + i * 2ULL, half(v < 8 ? v : v - 16));
    }
}

MOEC_CPU_FN void SetDeqScale(half scale, Site site = Site::here()) { moec_cpu::core(site).deq_scale = scale; }

}  // namespace AscendC
