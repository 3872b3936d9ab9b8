// The common machine of vector instructions: 256 bytes a repeat, eight 32-byte blocks, masks, repeat and block
// strides; the ranges an operand touches, the overlap rule, and the loop over active lanes.
#pragma once
#include "moec_cpu/copy.h"

namespace moec_cpu {

struct Operand {
    LocalRef ref;
    uint32_t size;   // bytes of an element
    uint32_t block;  // stride between blocks, in blocks
    uint32_t repeat; // stride between repeats, in blocks
    const char* name;

    uint64_t at(uint32_t r, uint32_t lane) const
    {
        uint32_t per = 32 / size;
        return ref.addr + (static_cast<uint64_t>(r) * repeat + static_cast<uint64_t>(lane / per) * block) * 32 + lane % per * size;
    }
};

template <typename T>
Operand operand(const AscendC::LocalTensor<T>& t, uint32_t block, uint32_t repeat, const char* name)
{
    return {t.ref(), sizeof(T), block, repeat, name};
}

/// Which lanes are active in which repeat: a bit mask that is the same in every repeat, or a total count.
struct Work {
    uint32_t lanes = 0;    // of a full repeat
    uint32_t repeats = 0;
    uint64_t low = 0, high = 0;
    uint64_t total = 0;    // > 0: counter mode

    bool active(uint32_t r, uint32_t lane) const
    {
        if (total) return static_cast<uint64_t>(r) * lanes + lane < total;
        return (lane < 64 ? low >> lane : high >> (lane - 64)) & 1;
    }
    /// Number of active lanes when they are the first ones, else -1.
    int prefix(uint32_t r) const
    {
        if (total) return static_cast<int>(std::min<uint64_t>(lanes, total - static_cast<uint64_t>(r) * lanes));
        if (high == 0) return (low & (low + 1)) == 0 ? __builtin_popcountll(low) : -1;
        if (low != ~0ULL || (high & (high + 1)) != 0) return -1;
        return 64 + __builtin_popcountll(high);
    }
    bool full() const { return total != 0 || prefix(0) == static_cast<int>(lanes); }
    uint64_t elements() const { return total ? total : static_cast<uint64_t>(lanes) * repeats; }
};

MOEC_CPU_FN Work counted(uint64_t n, uint32_t lanes)
{
    Work w;
    w.lanes = lanes;
    w.total = n;
    w.repeats = static_cast<uint32_t>((n + lanes - 1) / lanes);
    return w;
}

MOEC_CPU_FN void reset_mask(Core& c)
{
    c.mask_low = c.mask_high = ~0ULL;
    c.mask_counter = false;
}

/// The count form: counter mode for one instruction, the mask register is full afterwards.
MOEC_CPU_FN Work count_work(Instr& in, int64_t n, uint32_t lanes)
{
    in.require(n >= 0, "negative count", fmt("count %lld", static_cast<long long>(n)));
    reset_mask(in.c);
    return counted(static_cast<uint64_t>(n), lanes);
}

MOEC_CPU_FN Work register_work(Instr& in, uint32_t repeats, uint32_t lanes)
{
    Core& c = in.c;
    if (c.mask_counter) return counted(c.mask_low, lanes);
    Work w;
    w.lanes = lanes;
    w.repeats = repeats;
    w.low = lanes >= 64 ? c.mask_low : c.mask_low & ((1ULL << lanes) - 1);
    w.high = lanes > 64 ? c.mask_high : 0;
    return w;
}

MOEC_CPU_FN Work mask_work(Instr& in, uint64_t mask, uint32_t repeats, uint32_t lanes, bool set)
{
    if (!set) return register_work(in, repeats, lanes);
    if (in.c.mask_counter) {
        in.c.mask_low = mask;
        in.c.mask_high = 0;
        return counted(mask, lanes);
    }
    in.require(mask >= 1 && mask <= lanes, "mask out of range",
               fmt("mask %llu: 1..%u lanes of this element size", static_cast<unsigned long long>(mask), lanes));
    in.c.mask_low = mask >= 64 ? ~0ULL : (1ULL << mask) - 1;
    in.c.mask_high = mask <= 64 ? 0 : (mask >= 128 ? ~0ULL : (1ULL << (mask - 64)) - 1);
    return register_work(in, repeats, lanes);
}

MOEC_CPU_FN Work bits_work(Instr& in, const uint64_t* mask, uint32_t repeats, uint32_t lanes, bool set)
{
    if (!set) return register_work(in, repeats, lanes);
    if (in.c.mask_counter) return mask_work(in, mask[0], repeats, lanes, true);
    uint64_t high = lanes > 64 ? mask[1] : 0;
    in.require(mask[0] != 0 || high != 0, "mask out of range", "mask[] has no bit set");
    in.require(lanes >= 64 || mask[0] >> lanes == 0, "mask out of range", fmt("mask[0] has bits beyond the %u lanes", lanes));
    in.c.mask_low = mask[0];
    in.c.mask_high = high;
    return register_work(in, repeats, lanes);
}

MOEC_CPU_FN bool dense(const Operand& o, const Work& w) { return o.block == 1 && o.repeat * 32 == w.lanes * o.size; }

/// Byte ranges of one operand over one repeat.
MOEC_CPU_FN void repeat_spans(const Operand& o, const Work& w, uint32_t r, Spans& out)
{
    int first = w.prefix(r);
    if (first >= 0 && o.block == 1) {
        out.add(o.at(r, 0), static_cast<uint64_t>(first) * o.size);
        return;
    }
    for (uint32_t lane = 0; lane < w.lanes; ++lane) {
        if (w.active(r, lane)) out.add(o.at(r, lane), o.size);
    }
}

MOEC_CPU_FN void operand_spans(const Operand& o, const Work& w, Spans& out)
{
    if (w.full() && dense(o, w)) {
        out.add(o.ref.addr, w.elements() * o.size);
        return;
    }
    uint32_t repeats = o.repeat == 0 ? std::min(1u, w.repeats) : w.repeats;
    for (uint32_t r = 0; r < repeats; ++r) repeat_spans(o, w, r, out);
}

MOEC_CPU_FN bool touch(const std::vector<Span>& a, const std::vector<Span>& b)
{
    for (const Span& x : a) {
        for (const Span& y : b) {
            if (x.begin < y.end && y.begin < x.end) return true;
        }
    }
    return false;
}

/// The vendor's overlap rule: inside a repeat identical or apart; what a repeat wrote, no later repeat reads.
MOEC_CPU_FN void check_overlap(Instr& in, const Operand& dst, const Operand& src, const Work& w, bool may_accumulate)
{
    if (dst.ref.space != src.ref.space) return;
    bool same = dst.ref.addr == src.ref.addr && dst.size == src.size && dst.block == src.block;
    if (same && (dst.repeat == src.repeat || w.repeats <= 1) && (dst.repeat != 0 || w.repeats <= 1)) return;
    if (dst.ref.addr == src.ref.addr && dst.size < src.size) return;  // narrowing in place runs behind the reads
    if (same && may_accumulate && (dst.repeat == 0 || src.repeat == 0)) return;
    Spans d, s;
    operand_spans(dst, w, d);
    operand_spans(src, w, s);
    if (d.v.empty() || s.v.empty() || !touch(d.v, s.v)) return;
    Spans earlier;
    for (uint32_t r = 0; r < w.repeats; ++r) {
        Spans dr, sr;
        repeat_spans(dst, w, r, dr);
        repeat_spans(src, w, r, sr);
        bool identical = dst.at(r, 0) == src.at(r, 0) && dst.size == src.size && dst.block == src.block;
        if (!identical && touch(dr.v, sr.v)) {
            in.fail("operands overlap in part", fmt("dst and %s overlap inside repeat %u without being identical; use another buffer", src.name, r));
        }
        if (touch(earlier.v, sr.v)) {
            in.fail("operands overlap across repeats", fmt("%s of repeat %u was written as dst by an earlier repeat; use another buffer", src.name, r));
        }
        earlier.v.insert(earlier.v.end(), dr.v.begin(), dr.v.end());
    }
}

MOEC_CPU_FN void check_operand(Instr& in, const Operand& o)
{
    in.require(o.ref.space == UB, "operand in the wrong memory",
               fmt("%s lies in %s; vector instructions work on UB", o.name, space_info(o.ref.space).name));
    in.align(o.ref, o.name);
}

MOEC_CPU_FN void read_operand(Instr& in, const Operand& o, const Work& w)
{
    check_operand(in, o);
    Spans s;
    operand_spans(o, w, s);
    for (const Span& x : s.v) in.read(o.ref, x.begin, x.end);
}

MOEC_CPU_FN void write_operand(Instr& in, const Operand& o, const Work& w)
{
    check_operand(in, o);
    Spans s;
    operand_spans(o, w, s);
    for (const Span& x : s.v) in.write(o.ref, x.begin, x.end);
}

/// Calls fn(repeat, lane) on every active lane, repeat by repeat.
template <typename Fn>
void each_lane(const Work& w, Fn fn)
{
    for (uint32_t r = 0; r < w.repeats; ++r) {
        int n = w.prefix(r);
        if (n >= 0) {
            for (int lane = 0; lane < n; ++lane) fn(r, static_cast<uint32_t>(lane));
        } else {
            for (uint32_t lane = 0; lane < w.lanes; ++lane) {
                if (w.active(r, lane)) fn(r, lane);
            }
        }
    }
}

/// One source: checks, then dst[lane] = fn(src[lane]).
template <typename D, typename A, typename Fn>
void run_unary(Instr& in, const Operand& d, const Operand& a, const Work& w, Fn fn)
{
    check_overlap(in, d, a, w, false);
    read_operand(in, a, w);
    write_operand(in, d, w);
    in.count(w.elements() * std::max(sizeof(D), sizeof(A)), w.repeats);
    uint8_t* ub = in.c.data(UB);
    if (w.full() && dense(d, w) && dense(a, w)) {
        const uint8_t* x = ub + a.ref.addr;
        uint8_t* y = ub + d.ref.addr;
        for (uint64_t i = 0, n = w.elements(); i < n; ++i) store<D>(y + i * sizeof(D), fn(load<A>(x + i * sizeof(A))));
        return;
    }
    each_lane(w, [&](uint32_t r, uint32_t e) { store<D>(ub + d.at(r, e), fn(load<A>(ub + a.at(r, e)))); });
}

/// Two sources; `keep` also reads the old destination and passes it as the third argument.
template <typename D, typename A, bool keep, typename Fn>
void run_binary(Instr& in, const Operand& d, const Operand& a, const Operand& b, const Work& w, bool may_accumulate, Fn fn)
{
    check_overlap(in, d, a, w, false);
    check_overlap(in, d, b, w, may_accumulate);
    // accumulation into dst = src1 with a repeat stride of 0 reads what the first repeat finds there
    read_operand(in, a, w);
    read_operand(in, b, w);
    if (keep) read_operand(in, d, w);
    write_operand(in, d, w);
    in.count(w.elements() * std::max(sizeof(D), sizeof(A)), w.repeats);
    uint8_t* ub = in.c.data(UB);
    auto one = [&](uint8_t* y, const uint8_t* p, const uint8_t* q) {
        if constexpr (keep) store<D>(y, fn(load<A>(p), load<A>(q), load<D>(y)));
        else store<D>(y, fn(load<A>(p), load<A>(q)));
    };
    if (w.full() && dense(d, w) && dense(a, w) && dense(b, w)) {
        uint8_t *y = ub + d.ref.addr, *p = ub + a.ref.addr, *q = ub + b.ref.addr;
        for (uint64_t i = 0, n = w.elements(); i < n; ++i) one(y + i * sizeof(D), p + i * sizeof(A), q + i * sizeof(A));
        return;
    }
    each_lane(w, [&](uint32_t r, uint32_t e) { one(ub + d.at(r, e), ub + a.at(r, e), ub + b.at(r, e)); });
}

template <typename T>
constexpr uint32_t lanes_of()
{
    return 256 / sizeof(T);
}

/// true when T is one of the listed types
template <typename T, typename... U>
constexpr bool one_of = (std::is_same<T, U>::value || ...);

}  // namespace moec_cpu

namespace AscendC {

/// Stand-ins for the mask argument where isSetMask is false.
constexpr uint64_t MASK_PLACEHOLDER = 0;
inline uint64_t MASK_PLACEHOLDER_LIST[2] = {0, 0};

MOEC_CPU_FN void SetMaskCount(Site site = Site::here()) { moec_cpu::core(site).mask_counter = true; }
MOEC_CPU_FN void SetMaskNorm(Site site = Site::here()) { moec_cpu::core(site).mask_counter = false; }
MOEC_CPU_FN void ResetMask(Site site = Site::here())
{
    moec_cpu::Core& c = moec_cpu::core(site);
    c.mask_low = c.mask_high = ~0ULL;
}
template <typename T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(const uint64_t maskHigh, const uint64_t maskLow, Site site = Site::here())
{
    moec_cpu::Core& c = moec_cpu::core(site);
    c.mask_high = maskHigh;
    c.mask_low = maskLow;
}
template <typename T, MaskMode mode = MaskMode::NORMAL>
void SetVectorMask(int32_t len, Site site = Site::here())
{
    moec_cpu::Core& c = moec_cpu::core(site);
    if (mode == MaskMode::COUNTER) {
        c.mask_high = 0;
        c.mask_low = static_cast<uint64_t>(len);
        return;
    }
    c.mask_low = len >= 64 ? ~0ULL : (1ULL << len) - 1;
    c.mask_high = len <= 64 ? 0 : (len >= 128 ? ~0ULL : (1ULL << (len - 64)) - 1);
}

}  // namespace AscendC
