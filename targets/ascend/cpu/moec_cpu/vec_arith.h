// Vector arithmetic with two sources, with one source, and with a scalar, in the three call shapes
// (count; mask and repeats; mask bits and repeats).
#pragma once
#include "moec_cpu/vec_core.h"

namespace moec_cpu {

template <typename T>
using Wide = std::conditional_t<std::is_same<T, half>::value, float, T>;

/// Integer arithmetic wraps (computed unsigned); half is computed in float and rounded once.
template <typename T, typename Fn>
T arith(T a, T b, Fn fn)
{
    if constexpr (std::is_integral<T>::value) {
        using U = std::make_unsigned_t<T>;
        return static_cast<T>(fn(static_cast<U>(a), static_cast<U>(b)));
    } else {
        return static_cast<T>(fn(static_cast<float>(a), static_cast<float>(b)));
    }
}

template <typename T> T op_add(T a, T b) { return arith(a, b, [](auto x, auto y) { return x + y; }); }
template <typename T> T op_sub(T a, T b) { return arith(a, b, [](auto x, auto y) { return x - y; }); }
template <typename T> T op_mul(T a, T b) { return arith(a, b, [](auto x, auto y) { return x * y; }); }
template <typename T> T op_div(T a, T b) { return static_cast<T>(static_cast<float>(a) / static_cast<float>(b)); }
template <typename T> bool is_nan(T a)
{
    if constexpr (std::is_integral<T>::value) return false;
    else return static_cast<float>(a) != static_cast<float>(a);
}
template <typename T> T op_max(T a, T b) { return is_nan(a) ? a : (is_nan(b) ? b : (Wide<T>(a) > Wide<T>(b) ? a : b)); }
template <typename T> T op_min(T a, T b) { return is_nan(a) ? a : (is_nan(b) ? b : (Wide<T>(a) < Wide<T>(b) ? a : b)); }
template <typename T> T op_relu(T a) { return Wide<T>(a) > Wide<T>(T(0)) ? a : (is_nan(a) ? a : T(0)); }
template <typename T> T op_abs(T a) { return T(std::fabs(static_cast<float>(a))); }
template <typename T> T op_exp(T a) { return T(std::exp(static_cast<float>(a))); }
template <typename T> T op_ln(T a) { return T(std::log(static_cast<float>(a))); }
template <typename T> T op_sqrt(T a) { return T(std::sqrt(static_cast<float>(a))); }
template <typename T> T op_rsqrt(T a) { return T(1.0f / std::sqrt(static_cast<float>(a))); }
template <typename T> T op_reciprocal(T a) { return T(1.0f / static_cast<float>(a)); }

template <typename D, typename A, bool keep, typename Fn>
void binary_masked(Pipe pipe, const char* op, const AscendC::LocalTensor<D>& d, const AscendC::LocalTensor<A>& a,
                   const AscendC::LocalTensor<A>& b, const uint64_t* bits, uint64_t mask, uint32_t repeats, bool set,
                   const AscendC::BinaryRepeatParams& p, bool may_accumulate, Fn fn, Site site)
{
    Instr in(pipe, op, site);
    uint32_t lanes = 256 / static_cast<uint32_t>(std::max(sizeof(D), sizeof(A)));
    Work w = bits ? bits_work(in, bits, repeats, lanes, set) : mask_work(in, mask, repeats, lanes, set);
    run_binary<D, A, keep>(in, operand(d, p.dstBlkStride, p.dstRepStride, "dst"), operand(a, p.src0BlkStride, p.src0RepStride, "src0"),
                           operand(b, p.src1BlkStride, p.src1RepStride, "src1"), w, may_accumulate, fn);
}

template <typename D, typename A, bool keep, typename Fn>
void binary_counted(const char* op, const AscendC::LocalTensor<D>& d, const AscendC::LocalTensor<A>& a,
                    const AscendC::LocalTensor<A>& b, int64_t count, Fn fn, Site site)
{
    if (count == 0) return;
    Instr in(V, op, site);
    uint32_t lanes = 256 / static_cast<uint32_t>(std::max(sizeof(D), sizeof(A)));
    uint32_t rd = lanes * sizeof(D) / 32, ra = lanes * sizeof(A) / 32;
    run_binary<D, A, keep>(in, operand(d, 1, rd, "dst"), operand(a, 1, ra, "src0"), operand(b, 1, ra, "src1"),
                           count_work(in, count, lanes), false, fn);
}

template <typename D, typename A, typename Fn>
void unary_masked(const char* op, const AscendC::LocalTensor<D>& d, const AscendC::LocalTensor<A>& a, const uint64_t* bits,
                  uint64_t mask, uint32_t repeats, bool set, const AscendC::UnaryRepeatParams& p, Fn fn, Site site)
{
    Instr in(V, op, site);
    uint32_t lanes = 256 / static_cast<uint32_t>(std::max(sizeof(D), sizeof(A)));
    Work w = bits ? bits_work(in, bits, repeats, lanes, set) : mask_work(in, mask, repeats, lanes, set);
    run_unary<D, A>(in, operand(d, p.dstBlkStride, p.dstRepStride, "dst"), operand(a, p.srcBlkStride, p.srcRepStride, "src"), w, fn);
}

template <typename D, typename A, typename Fn>
void unary_counted(const char* op, const AscendC::LocalTensor<D>& d, const AscendC::LocalTensor<A>& a, int64_t count, Fn fn, Site site)
{
    if (count == 0) return;
    Instr in(V, op, site);
    uint32_t lanes = 256 / static_cast<uint32_t>(std::max(sizeof(D), sizeof(A)));
    run_unary<D, A>(in, operand(d, 1, lanes * sizeof(D) / 32, "dst"), operand(a, 1, lanes * sizeof(A) / 32, "src"),
                    count_work(in, count, lanes), fn);
}

}  // namespace moec_cpu

namespace AscendC {

// NAME(dst, src0, src1, ...): `types` is the list the instruction takes, `expr` the value of x and y.
#define MOEC_BINARY(NAME, ACCUMULATES, EXPR, ...)                                                                              \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[],              \
              const moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())                \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        moec_cpu::binary_masked<T, T, false>(moec_cpu::V, #NAME, dst, src0, src1, mask, 0, repeatTimes, isSetMask,             \
                                             repeatParams, ACCUMULATES, [](T x, T y) { return EXPR; }, site);                  \
    }                                                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask,                \
              const moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())                \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        moec_cpu::binary_masked<T, T, false>(moec_cpu::V, #NAME, dst, src0, src1, nullptr, mask, repeatTimes, isSetMask,       \
                                             repeatParams, ACCUMULATES, [](T x, T y) { return EXPR; }, site);                  \
    }                                                                                                                          \
    template <typename T>                                                                                                      \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,         \
              Site site = Site::here())                                                                                        \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        moec_cpu::binary_counted<T, T, false>(#NAME, dst, src0, src1, count, [](T x, T y) { return EXPR; }, site);             \
    }

MOEC_BINARY(Add, true, moec_cpu::op_add(x, y), half, float, int16_t, int32_t)
MOEC_BINARY(Sub, true, moec_cpu::op_sub(x, y), half, float, int16_t, int32_t)
MOEC_BINARY(Mul, true, moec_cpu::op_mul(x, y), half, float, int16_t, int32_t)
MOEC_BINARY(Max, true, moec_cpu::op_max(x, y), half, float, int16_t, int32_t)
MOEC_BINARY(Min, true, moec_cpu::op_min(x, y), half, float, int16_t, int32_t)
MOEC_BINARY(Div, false, moec_cpu::op_div(x, y), half, float)
MOEC_BINARY(And, false, static_cast<T>(x& y), int16_t, uint16_t)
MOEC_BINARY(Or, false, static_cast<T>(x | y), int16_t, uint16_t)
MOEC_BINARY(AddRelu, true, moec_cpu::op_relu(moec_cpu::op_add(x, y)), half, float, int16_t)
MOEC_BINARY(SubRelu, true, moec_cpu::op_relu(moec_cpu::op_sub(x, y)), half, float, int16_t)
#undef MOEC_BINARY

// Three-input forms: the old destination takes part. MulAddDst takes a narrower source type, hence A.
#define MOEC_FUSED(NAME, EXPR, TYPES)                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask[],              \
              const moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())                \
    {                                                                                                                          \
        static_assert(TYPES, #NAME ": half or float");                                                                         \
        moec_cpu::binary_masked<T, T, true>(moec_cpu::V, #NAME, dst, src0, src1, mask, 0, repeatTimes, isSetMask,              \
                                            repeatParams, false, [](T x, T y, T old) { return EXPR; }, site);                  \
    }                                                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, uint64_t mask,                \
              const moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())                \
    {                                                                                                                          \
        static_assert(TYPES, #NAME ": half or float");                                                                         \
        moec_cpu::binary_masked<T, T, true>(moec_cpu::V, #NAME, dst, src0, src1, nullptr, mask, repeatTimes, isSetMask,        \
                                            repeatParams, false, [](T x, T y, T old) { return EXPR; }, site);                  \
    }                                                                                                                          \
    template <typename T>                                                                                                      \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,         \
              Site site = Site::here())                                                                                        \
    {                                                                                                                          \
        static_assert(TYPES, #NAME ": half or float");                                                                         \
        moec_cpu::binary_counted<T, T, true>(#NAME, dst, src0, src1, count, [](T x, T y, T old) { return EXPR; }, site);       \
    }

#define MOEC_FLOATS (moec_cpu::one_of<T, half, float>)
MOEC_FUSED(FusedMulAdd, T(float(x) * float(old) + float(y)), MOEC_FLOATS)
MOEC_FUSED(FusedMulAddRelu, moec_cpu::op_relu(T(float(x) * float(old) + float(y))), MOEC_FLOATS)
#undef MOEC_FUSED

template <typename T, typename U>
constexpr bool kMulAddTypes = (std::is_same<T, U>::value && moec_cpu::one_of<T, half, float>) ||
                              (std::is_same<T, float>::value && std::is_same<U, half>::value);

template <typename T, typename U, bool isSetMask = true>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const uint64_t mask[],
               const moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    static_assert(kMulAddTypes<T, U>, "MulAddDst: half, float, or float from half");
    moec_cpu::binary_masked<T, U, true>(moec_cpu::V, "MulAddDst", dst, src0, src1, mask, 0, repeatTimes, isSetMask, repeatParams,
                                        false, [](U x, U y, T old) { return T(float(x) * float(y) + float(old)); }, site);
}
template <typename T, typename U, bool isSetMask = true>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, uint64_t mask,
               const moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    static_assert(kMulAddTypes<T, U>, "MulAddDst: half, float, or float from half");
    moec_cpu::binary_masked<T, U, true>(moec_cpu::V, "MulAddDst", dst, src0, src1, nullptr, mask, repeatTimes, isSetMask,
                                        repeatParams, false, [](U x, U y, T old) { return T(float(x) * float(y) + float(old)); }, site);
}
template <typename T, typename U>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const int32_t& count,
               Site site = Site::here())
{
    static_assert(kMulAddTypes<T, U>, "MulAddDst: half, float, or float from half");
    moec_cpu::binary_counted<T, U, true>("MulAddDst", dst, src0, src1, count,
                                         [](U x, U y, T old) { return T(float(x) * float(y) + float(old)); }, site);
}

#define MOEC_UNARY(NAME, EXPR, ...)                                                                                            \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[], const moec_cpu::U8 repeatTimes,           \
              const UnaryRepeatParams& repeatParams, Site site = Site::here())                                                 \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        moec_cpu::unary_masked<T, T>(#NAME, dst, src, mask, 0, repeatTimes, isSetMask, repeatParams,                           \
                                     [](T x) { return EXPR; }, site);                                                          \
    }                                                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask, const moec_cpu::U8 repeatTimes,             \
              const UnaryRepeatParams& repeatParams, Site site = Site::here())                                                 \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        moec_cpu::unary_masked<T, T>(#NAME, dst, src, nullptr, mask, repeatTimes, isSetMask, repeatParams,                     \
                                     [](T x) { return EXPR; }, site);                                                          \
    }                                                                                                                          \
    template <typename T>                                                                                                      \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, Site site = Site::here())            \
    {                                                                                                                          \
        static_assert(moec_cpu::one_of<T, __VA_ARGS__>, #NAME ": types " #__VA_ARGS__);                                        \
        moec_cpu::unary_counted<T, T>(#NAME, dst, src, count, [](T x) { return EXPR; }, site);                                 \
    }

MOEC_UNARY(Relu, moec_cpu::op_relu(x), half, float, int32_t)
MOEC_UNARY(Exp, moec_cpu::op_exp(x), half, float)
MOEC_UNARY(Ln, moec_cpu::op_ln(x), half, float)
MOEC_UNARY(Abs, moec_cpu::op_abs(x), half, float)
MOEC_UNARY(Reciprocal, moec_cpu::op_reciprocal(x), half, float)
MOEC_UNARY(Rsqrt, moec_cpu::op_rsqrt(x), half, float)
MOEC_UNARY(Sqrt, moec_cpu::op_sqrt(x), half, float)
MOEC_UNARY(Not, static_cast<T>(~x), int16_t, uint16_t)
#undef MOEC_UNARY

}  // namespace AscendC
