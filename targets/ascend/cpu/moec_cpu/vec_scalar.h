// Vector with a scalar: Adds, Muls, Maxs, Mins, shifts, LeakyRelu, Axpy.
#pragma once
#include "moec_cpu/vec_arith.h"

namespace moec_cpu {

/// Logical for unsigned; signed types keep their sign bit and lose the one beside it.
template <typename T>
T shift_left(T x, T s)
{
    using U = std::make_unsigned_t<T>;
    constexpr int bits = static_cast<int>(sizeof(T) * 8);
    const U moved = static_cast<int>(s) < bits ? static_cast<U>(static_cast<U>(x) << s) : U(0);
    if constexpr (std::is_signed<T>::value) {
        constexpr U sign = static_cast<U>(U(1) << (bits - 1));
        return static_cast<T>((moved & static_cast<U>(~sign)) | (static_cast<U>(x) & sign));
    } else {
        return moved;
    }
}

/// A number of bits: at most the type's.
template <typename T>
T shift_by(T s, const char* name, Site site)
{
    constexpr int bits = static_cast<int>(sizeof(T) * 8);
    if (s < 0 || static_cast<uint64_t>(s) > bits) {
        refuse(site, "parameter out of range", fmt("%s by %lld: 0 to %d", name, static_cast<long long>(s), bits));
    }
    return s;
}

}  // namespace moec_cpu

namespace AscendC {

// The scalar is taken as the tensor's own type; the second overload deduces it, as the vendor's does.
#define MOEC_SCALAR(NAME, EXPR, ...) MOEC_SCALAR_OF(NAME, scalarValue, EXPR, __VA_ARGS__)
#define MOEC_SCALAR_OF(NAME, SCALAR, EXPR, ...)                                                                                \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask[],                     \
              const moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, Site site = Site::here())                 \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        T s = SCALAR;                                                                                                          \
        moec_cpu::unary_masked<T, T>(#NAME, dst, src, mask, 0, repeatTimes, isSetMask, repeatParams,                           \
                                     [s](T x) { return EXPR; }, site);                                                         \
    }                                                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask,                       \
              const moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, Site site = Site::here())                 \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        T s = SCALAR;                                                                                                          \
        moec_cpu::unary_masked<T, T>(#NAME, dst, src, nullptr, mask, repeatTimes, isSetMask, repeatParams,                     \
                                     [s](T x) { return EXPR; }, site);                                                         \
    }                                                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count,                \
              Site site = Site::here())                                                                                        \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        T s = SCALAR;                                                                                                          \
        moec_cpu::unary_counted<T, T>(#NAME, dst, src, count, [s](T x) { return EXPR; }, site);                                \
    }

MOEC_SCALAR(Adds, moec_cpu::op_add(x, s), half, float, int16_t, int32_t)
MOEC_SCALAR(Muls, moec_cpu::op_mul(x, s), half, float, int16_t, int32_t)
MOEC_SCALAR(Maxs, moec_cpu::op_max(x, s), half, float, int16_t, int32_t)
MOEC_SCALAR(Mins, moec_cpu::op_min(x, s), half, float, int16_t, int32_t)
MOEC_SCALAR(LeakyRelu, (float(x) > 0.0f ? x : moec_cpu::op_mul(x, s)), half, float)
MOEC_SCALAR_OF(ShiftLeft, moec_cpu::shift_by(scalarValue, "ShiftLeft", site), moec_cpu::shift_left(x, s), uint16_t, uint32_t, int16_t, int32_t)
#undef MOEC_SCALAR
#undef MOEC_SCALAR_OF

}  // namespace AscendC

namespace moec_cpu {

/// Logical for unsigned, arithmetic for signed; with `round` the last bit shifted out is added.
template <typename T>
T shift_right(T x, T s, bool round)
{
    if (s <= 0) return x;
    int n = static_cast<int>(s), bits = static_cast<int>(sizeof(T) * 8);
    if (n >= bits) return x < 0 ? T(-1) : T(0);
    T r = static_cast<T>(x >> n);
    return round ? static_cast<T>(r + ((x >> (n - 1)) & 1)) : r;
}

template <typename T, typename U>
constexpr bool kAxpyTypes = (std::is_same<T, U>::value && one_of<T, half, float>) ||
                            (std::is_same<T, float>::value && std::is_same<U, half>::value);

/// dst += s * src, with the old destination as second operand.
template <typename T, typename U>
void axpy(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& src, U s, const Work& w,
          const AscendC::UnaryRepeatParams& p)
{
    Operand d = operand(dst, p.dstBlkStride, p.dstRepStride, "dst"), a = operand(src, p.srcBlkStride, p.srcRepStride, "src");
    check_overlap(in, d, a, w, false);
    read_operand(in, a, w);
    read_operand(in, d, w);
    write_operand(in, d, w);
    in.count(w.elements() * sizeof(U), w.repeats);
    uint8_t* ub = in.c.data(UB);
    each_lane(w, [&](uint32_t r, uint32_t e) {
        uint8_t* y = ub + d.at(r, e);
        store<T>(y, T(float(s) * float(load<U>(ub + a.at(r, e))) + float(load<T>(y))));
    });
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask[],
                const moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, bool roundEn = false, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, uint16_t, uint32_t, int16_t, int32_t>, "ShiftRight: 16- and 32-bit integers");
    const T s = moec_cpu::shift_by(scalarValue, "ShiftRight", site);
    moec_cpu::unary_masked<T, T>("ShiftRight", dst, src, mask, 0, repeatTimes, isSetMask, repeatParams,
                                 [s, roundEn](T x) { return moec_cpu::shift_right(x, s, roundEn); }, site);
}
template <typename T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, uint64_t mask,
                const moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, bool roundEn = false, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, uint16_t, uint32_t, int16_t, int32_t>, "ShiftRight: 16- and 32-bit integers");
    const T s = moec_cpu::shift_by(scalarValue, "ShiftRight", site);
    moec_cpu::unary_masked<T, T>("ShiftRight", dst, src, nullptr, mask, repeatTimes, isSetMask, repeatParams,
                                 [s, roundEn](T x) { return moec_cpu::shift_right(x, s, roundEn); }, site);
}
template <typename T, bool isSetMask = true>
void ShiftRight(const LocalTensor<T>& dst, const LocalTensor<T>& src, const T& scalarValue, const int32_t& count, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, uint16_t, uint32_t, int16_t, int32_t>, "ShiftRight: 16- and 32-bit integers");
    const T s = moec_cpu::shift_by(scalarValue, "ShiftRight", site);
    moec_cpu::unary_counted<T, T>("ShiftRight", dst, src, count, [s](T x) { return moec_cpu::shift_right(x, s, false); }, site);
}

template <typename T, typename U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, uint64_t mask, const moec_cpu::U8 repeatTimes,
          const UnaryRepeatParams& repeatParams, Site site = Site::here())
{
    static_assert(moec_cpu::kAxpyTypes<T, U>, "Axpy: half, float, or float from half");
    moec_cpu::Instr in(moec_cpu::V, "Axpy", site);
    moec_cpu::axpy<T, U>(in, dst, src, scalarValue, moec_cpu::mask_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, uint64_t mask[], const moec_cpu::U8 repeatTimes,
          const UnaryRepeatParams& repeatParams, Site site = Site::here())
{
    static_assert(moec_cpu::kAxpyTypes<T, U>, "Axpy: half, float, or float from half");
    moec_cpu::Instr in(moec_cpu::V, "Axpy", site);
    moec_cpu::axpy<T, U>(in, dst, src, scalarValue, moec_cpu::bits_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), repeatParams);
}
template <typename T, typename U>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, const int32_t& count, Site site = Site::here())
{
    static_assert(moec_cpu::kAxpyTypes<T, U>, "Axpy: half, float, or float from half");
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "Axpy", site);
    moec_cpu::axpy<T, U>(in, dst, src, scalarValue, moec_cpu::count_work(in, count, 256 / sizeof(T)),
                         UnaryRepeatParams(1, 1, 8, static_cast<uint8_t>(8 * sizeof(U) / sizeof(T))));
}

}  // namespace AscendC
