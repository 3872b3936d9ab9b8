// Compare, CompareScalar and Select: one bit an element, packed from the low bit up.
#pragma once
#include "moec_cpu/vec_arith.h"

namespace moec_cpu {

using AscendC::CMPMODE;
using AscendC::SELMODE;

template <typename T>
bool compare_value(T a, T b, CMPMODE m)
{
    Wide<T> x = a, y = b;
    switch (m) {
        case CMPMODE::LT: return x < y;
        case CMPMODE::GT: return x > y;
        case CMPMODE::EQ: return x == y;
        case CMPMODE::LE: return x <= y;
        case CMPMODE::GE: return x >= y;
        default: return x != y;
    }
}

template <typename T>
void check_compare(Instr& in, CMPMODE m)
{
    in.require(!std::is_same<T, int32_t>::value || m == CMPMODE::EQ, "comparison does not fit the type", "int32_t compares with CMPMODE::EQ only");
}

/// Writes one bit a lane, whole repeats: 16 bytes (16-bit types) or 8 bytes (32-bit types) each, contiguous.
template <typename T, typename Bit>
void write_bits(Instr& in, const LocalRef& dst, uint32_t repeats, Bit bit)
{
    constexpr uint32_t lanes = 256 / sizeof(T), bytes = lanes / 8;
    in.require(dst.space == UB, "operand in the wrong memory", "dst must lie in UB");
    in.align(dst, "dst");
    in.write(dst, dst.addr, dst.addr + static_cast<uint64_t>(repeats) * bytes);
    uint8_t* out = in.c.data(UB) + dst.addr;
    for (uint32_t r = 0; r < repeats; ++r) {
        for (uint32_t b = 0; b < bytes; ++b) {
            uint8_t v = 0;
            for (uint32_t k = 0; k < 8; ++k) v = static_cast<uint8_t>(v | (bit(r, b * 8 + k) ? 1u << k : 0u));
            out[static_cast<uint64_t>(r) * bytes + b] = v;
        }
    }
}

MOEC_CPU_FN Work whole_repeats(uint32_t repeats, uint32_t lanes)
{
    return counted(static_cast<uint64_t>(repeats) * lanes, lanes);
}

template <typename T>
void compare(Instr& in, const LocalRef& dst, const AscendC::LocalTensor<T>& a, const AscendC::LocalTensor<T>& b, CMPMODE m,
             uint32_t repeats, const AscendC::BinaryRepeatParams& p)
{
    check_compare<T>(in, m);
    Work w = whole_repeats(repeats, 256 / sizeof(T));
    Operand x = operand(a, p.src0BlkStride, p.src0RepStride, "src0"), y = operand(b, p.src1BlkStride, p.src1RepStride, "src1");
    read_operand(in, x, w);
    read_operand(in, y, w);
    in.count(w.elements() * sizeof(T), repeats);
    uint8_t* ub = in.c.data(UB);
    write_bits<T>(in, dst, repeats, [&](uint32_t r, uint32_t e) { return compare_value<T>(load<T>(ub + x.at(r, e)), load<T>(ub + y.at(r, e)), m); });
}

template <typename T>
void compare_scalar(Instr& in, const LocalRef& dst, const AscendC::LocalTensor<T>& a, T s, CMPMODE m, uint32_t repeats,
                    const AscendC::UnaryRepeatParams& p)
{
    check_compare<T>(in, m);
    Work w = whole_repeats(repeats, 256 / sizeof(T));
    Operand x = operand(a, p.srcBlkStride, p.srcRepStride, "src0");
    read_operand(in, x, w);
    in.count(w.elements() * sizeof(T), repeats);
    uint8_t* ub = in.c.data(UB);
    write_bits<T>(in, dst, repeats, [&](uint32_t r, uint32_t e) { return compare_value<T>(load<T>(ub + x.at(r, e)), s, m); });
}

/// One repeat compared into the register; lanes that are masked off give 0.
template <typename T>
void compare_register(Instr& in, const AscendC::LocalTensor<T>& a, const AscendC::LocalTensor<T>& b, CMPMODE m, const Work& w,
                      const AscendC::BinaryRepeatParams& p)
{
    Operand x = operand(a, p.src0BlkStride, p.src0RepStride, "src0"), y = operand(b, p.src1BlkStride, p.src1RepStride, "src1");
    read_operand(in, x, w);
    read_operand(in, y, w);
    in.count(w.elements() * sizeof(T), 1);
    uint8_t* ub = in.c.data(UB);
    in.c.cmp_mask[0] = in.c.cmp_mask[1] = 0;
    each_lane(w, [&](uint32_t r, uint32_t e) {
        if (compare_value<T>(load<T>(ub + x.at(r, e)), load<T>(ub + y.at(r, e)), m)) in.c.cmp_mask[e / 64] |= 1ULL << (e % 64);
    });
}

template <typename T>
uint32_t compare_repeats(Instr& in, uint64_t count)
{
    in.require(count * sizeof(T) % 256 == 0, "compare of a ragged length",
               fmt("%llu elements are %llu bytes, no multiple of 256", static_cast<unsigned long long>(count), static_cast<unsigned long long>(count * sizeof(T))));
    return static_cast<uint32_t>(count * sizeof(T) / 256);
}

/// dst = bit ? src0 : src1. Mode 0 takes the same first bits in every repeat, modes 1 and 2 go on through the mask.
template <typename T, typename Other>
void select(Instr& in, const AscendC::LocalTensor<T>& dst, const LocalRef& bits, const AscendC::LocalTensor<T>& a, SELMODE mode,
            const Work& w, const AscendC::BinaryRepeatParams& p, const Operand* second, Other other)
{
    Operand d = operand(dst, p.dstBlkStride, p.dstRepStride, "dst"), x = operand(a, p.src0BlkStride, p.src0RepStride, "src0");
    in.require(bits.space == UB, "operand in the wrong memory", "selMask must lie in UB");
    in.align(bits, "selMask");
    uint32_t per = w.lanes / 8;
    uint64_t used = mode == SELMODE::VSEL_CMPMASK_SPR ? std::min<uint64_t>(per, (w.elements() + 7) / 8) : (w.elements() + 7) / 8;
    if (w.repeats == 0) return;
    in.read(bits, bits.addr, bits.addr + used);
    check_overlap(in, d, x, w, false);
    read_operand(in, x, w);
    if (second) {
        check_overlap(in, d, *second, w, false);
        read_operand(in, *second, w);
    }
    write_operand(in, d, w);
    in.count(w.elements() * sizeof(T), w.repeats);
    uint8_t* ub = in.c.data(UB);
    std::vector<uint8_t> mask(ub + bits.addr, ub + bits.addr + used);
    each_lane(w, [&](uint32_t r, uint32_t e) {
        uint64_t at = mode == SELMODE::VSEL_CMPMASK_SPR ? e : static_cast<uint64_t>(r) * w.lanes + e;
        bool take = mask[at / 8] >> (at % 8) & 1;
        store<T>(ub + d.at(r, e), take ? load<T>(ub + x.at(r, e)) : other(r, e));
    });
}

template <typename T>
void select_tensors(Instr& in, const AscendC::LocalTensor<T>& dst, const LocalRef& bits, const AscendC::LocalTensor<T>& a,
                    const AscendC::LocalTensor<T>& b, SELMODE mode, const Work& w, const AscendC::BinaryRepeatParams& p)
{
    in.require(mode != SELMODE::VSEL_TENSOR_SCALAR_MODE, "select mode does not fit", "VSEL_TENSOR_SCALAR_MODE takes a scalar");
    Operand y = operand(b, p.src1BlkStride, p.src1RepStride, "src1");
    uint8_t* ub = in.c.data(UB);
    select<T>(in, dst, bits, a, mode, w, p, &y, [&](uint32_t r, uint32_t e) { return load<T>(ub + y.at(r, e)); });
}

template <typename T>
void select_scalar(Instr& in, const AscendC::LocalTensor<T>& dst, const LocalRef& bits, const AscendC::LocalTensor<T>& a, T s,
                   SELMODE mode, const Work& w, const AscendC::BinaryRepeatParams& p)
{
    in.require(mode == SELMODE::VSEL_TENSOR_SCALAR_MODE, "select mode does not fit", "a scalar needs VSEL_TENSOR_SCALAR_MODE");
    select<T>(in, dst, bits, a, mode, w, p, nullptr, [s](uint32_t, uint32_t) { return s; });
}

template <typename T>
constexpr bool kCompareType = one_of<T, half, float, int32_t>;
template <typename U>
constexpr bool kBitsType = one_of<U, uint8_t, int8_t>;
template <typename U>
constexpr bool kMaskType = one_of<U, uint8_t, uint16_t, uint32_t, uint64_t>;

}  // namespace moec_cpu

namespace AscendC {

#define MOEC_COMPARE_TYPES static_assert(moec_cpu::kCompareType<T> && moec_cpu::kBitsType<U>, "Compare: half, float or int32_t into uint8_t")
#define MOEC_SELECT_TYPES static_assert(moec_cpu::one_of<T, half, float> && moec_cpu::kMaskType<U>, "Select: half or float by an unsigned mask")

template <typename T, typename U, bool isSetMask = true>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask[],
             moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_COMPARE_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Compare", site);
    (void)mask;
    moec_cpu::compare<T>(in, dst.ref(), src0, src1, cmpMode, repeatTimes, repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask,
             moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_COMPARE_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Compare", site);
    (void)mask;
    moec_cpu::compare<T>(in, dst.ref(), src0, src1, cmpMode, repeatTimes, repeatParams);
}
template <typename T, typename U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, uint32_t count,
             Site site = Site::here())
{
    MOEC_COMPARE_TYPES;
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "Compare", site);
    moec_cpu::reset_mask(in.c);
    moec_cpu::compare<T>(in, dst.ref(), src0, src1, cmpMode, moec_cpu::compare_repeats<T>(in, count), BinaryRepeatParams());
}
template <typename T, typename U, bool isSetMask = true>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode, const uint64_t mask[],
                   moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_COMPARE_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "CompareScalar", site);
    (void)mask;
    moec_cpu::compare_scalar<T>(in, dst.ref(), src0, src1Scalar, cmpMode, repeatTimes, repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode, const uint64_t mask,
                   moec_cpu::U8 repeatTimes, const UnaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_COMPARE_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "CompareScalar", site);
    (void)mask;
    moec_cpu::compare_scalar<T>(in, dst.ref(), src0, src1Scalar, cmpMode, repeatTimes, repeatParams);
}
template <typename T, typename U>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const T src1Scalar, CMPMODE cmpMode, uint32_t count,
                   Site site = Site::here())
{
    MOEC_COMPARE_TYPES;
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "CompareScalar", site);
    moec_cpu::reset_mask(in.c);
    moec_cpu::compare_scalar<T>(in, dst.ref(), src0, src1Scalar, cmpMode, moec_cpu::compare_repeats<T>(in, count), UnaryRepeatParams());
}

template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
            SELMODE selMode, uint64_t mask[], moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_SELECT_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Select", site);
    moec_cpu::select_tensors<T>(in, dst, selMask.ref(), src0, src1, selMode, moec_cpu::bits_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
            SELMODE selMode, uint64_t mask, moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_SELECT_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Select", site);
    moec_cpu::select_tensors<T>(in, dst, selMask.ref(), src0, src1, selMode, moec_cpu::mask_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), repeatParams);
}
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1,
            SELMODE selMode, uint32_t count, Site site = Site::here())
{
    MOEC_SELECT_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Select", site);
    moec_cpu::select_tensors<T>(in, dst, selMask.ref(), src0, src1, selMode, moec_cpu::count_work(in, count, 256 / sizeof(T)), BinaryRepeatParams());
}
template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1, SELMODE selMode,
            uint64_t mask[], moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_SELECT_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Select", site);
    moec_cpu::select_scalar<T>(in, dst, selMask.ref(), src0, src1, selMode, moec_cpu::bits_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), repeatParams);
}
template <typename T, typename U, bool isSetMask = true>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1, SELMODE selMode,
            uint64_t mask, moec_cpu::U8 repeatTimes, const BinaryRepeatParams& repeatParams, Site site = Site::here())
{
    MOEC_SELECT_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Select", site);
    moec_cpu::select_scalar<T>(in, dst, selMask.ref(), src0, src1, selMode, moec_cpu::mask_work(in, mask, repeatTimes, 256 / sizeof(T), isSetMask), repeatParams);
}
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, T src1, SELMODE selMode,
            uint32_t count, Site site = Site::here())
{
    MOEC_SELECT_TYPES;
    moec_cpu::Instr in(moec_cpu::V, "Select", site);
    moec_cpu::select_scalar<T>(in, dst, selMask.ref(), src0, src1, selMode, moec_cpu::count_work(in, count, 256 / sizeof(T)), BinaryRepeatParams());
}
// The comparison register: 128 bits that Compare without a destination sets and Select without a mask reads.

template <typename T, bool isSetMask = true>
void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask[],
             const BinaryRepeatParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float>, "Compare into the register: half or float");
    moec_cpu::Instr in(moec_cpu::V, "Compare", site);
    moec_cpu::compare_register<T>(in, src0, src1, cmpMode, moec_cpu::bits_work(in, mask, 1, 256 / sizeof(T), isSetMask), p);
}
template <typename T, bool isSetMask = true>
void Compare(const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE cmpMode, const uint64_t mask,
             const BinaryRepeatParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float>, "Compare into the register: half or float");
    moec_cpu::Instr in(moec_cpu::V, "Compare", site);
    moec_cpu::compare_register<T>(in, src0, src1, cmpMode, moec_cpu::mask_work(in, mask, 1, 256 / sizeof(T), isSetMask), p);
}
template <typename T>
void GetCmpMask(const LocalTensor<T>& dst, Site site = Site::here())
{
    using namespace moec_cpu;
    Instr in(V, "GetCmpMask", site);
    in.align(dst.ref(), "dst");
    in.write(dst.ref(), dst.ref().addr, dst.ref().addr + 16);
    std::memcpy(in.c.data(UB) + dst.ref().addr, in.c.cmp_mask, 16);
    in.count(16, 1);
}
template <typename T>
void SetCmpMask(const LocalTensor<T>& src, Site site = Site::here())
{
    using namespace moec_cpu;
    Instr in(V, "SetCmpMask", site);
    in.align(src.ref(), 16, "src");
    in.read(src.ref(), src.ref().addr, src.ref().addr + 16);
    std::memcpy(in.c.cmp_mask, in.c.data(UB) + src.ref().addr, 16);
    in.count(16, 1);
}
template <typename T, SELMODE selMode>
void Select(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, moec_cpu::U8 repeatTimes,
            const BinaryRepeatParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float> && selMode == SELMODE::VSEL_CMPMASK_SPR, "Select by the register: half or float, VSEL_CMPMASK_SPR");
    using namespace moec_cpu;
    Instr in(V, "Select", site);
    const uint64_t* bits = in.c.cmp_mask;
    Work w = register_work(in, repeatTimes, 256 / sizeof(T));
    Operand d = operand(dst, p.dstBlkStride, p.dstRepStride, "dst"), x = operand(src0, p.src0BlkStride, p.src0RepStride, "src0"),
            y = operand(src1, p.src1BlkStride, p.src1RepStride, "src1");
    check_overlap(in, d, x, w, false);
    check_overlap(in, d, y, w, false);
    read_operand(in, x, w);
    read_operand(in, y, w);
    write_operand(in, d, w);
    in.count(w.elements() * sizeof(T), w.repeats);
    uint8_t* ub = in.c.data(UB);
    each_lane(w, [&](uint32_t r, uint32_t e) {
        bool take = bits[e / 64] >> (e % 64) & 1;
        store<T>(ub + d.at(r, e), load<T>(ub + (take ? x : y).at(r, e)));
    });
}
#undef MOEC_COMPARE_TYPES
#undef MOEC_SELECT_TYPES

}  // namespace AscendC
