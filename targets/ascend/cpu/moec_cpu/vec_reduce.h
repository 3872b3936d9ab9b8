// Reductions inside a repeat: WholeReduce (one result a repeat), BlockReduce (one a 32-byte block), PairReduceSum,
// RepeatReduceSum. Sums run as a pairwise tree; equal extremes give the lowest index.
#pragma once
#include "moec_cpu/vec_arith.h"

namespace moec_cpu {

using AscendC::ReduceOrder;

/// Pairwise tree over the present values: neighbours first, an odd one passes through.
template <typename T>
T tree_sum(std::vector<T>& v)
{
    for (size_t n = v.size(); n > 1; n = (n + 1) / 2) {
        for (size_t i = 0; i < n / 2; ++i) v[i] = op_add(v[2 * i], v[2 * i + 1]);
        if (n % 2) v[n / 2] = v[n - 1];
    }
    return v[0];
}

template <typename T>
bool better(T candidate, T best, bool max)
{
    return max ? static_cast<float>(candidate) > static_cast<float>(best) : static_cast<float>(candidate) < static_cast<float>(best);
}

struct ReduceShape {
    int32_t repeats, dst_repeat, src_block, src_repeat;
};

MOEC_CPU_FN void check_reduce(Instr& in, const ReduceShape& s)
{
    in.require(s.repeats >= 0 && s.repeats <= 255, "repeat out of range", fmt("repeat %d: 0..255", s.repeats));
    in.require(s.dst_repeat >= 0 && s.dst_repeat <= 65535 && s.src_block >= 0 && s.src_block <= 65535 && s.src_repeat >= 0 && s.src_repeat <= 65535,
               "stride out of range", "dstRepStride, srcBlkStride and srcRepStride are 16-bit unsigned");
}

MOEC_CPU_FN Work reduce_mask(Instr& in, const uint64_t* bits, int32_t mask, int32_t repeats, uint32_t lanes, bool set)
{
    uint32_t n = static_cast<uint32_t>(repeats);
    if (bits) return bits_work(in, bits, n, lanes, set);
    in.require(mask >= 0, "mask out of range", fmt("mask %d", mask));
    return mask_work(in, static_cast<uint64_t>(mask), n, lanes, set);
}

/// The results of one repeat go to `width` bytes at dst + repeat * dst_repeat * unit.
template <typename T>
Operand reduce_source(Instr& in, const AscendC::LocalTensor<T>& src, const ReduceShape& s, const Work& w)
{
    Operand a = operand(src, static_cast<uint32_t>(s.src_block), static_cast<uint32_t>(s.src_repeat), "src");
    read_operand(in, a, w);
    in.count(w.elements() * sizeof(T), w.repeats);
    return a;
}

template <typename T>
void put(Instr& in, const LocalRef& d, uint64_t at, T v)
{
    in.write(d, at, at + sizeof(T));
    store<T>(in.c.data(UB) + at, v);
}

template <typename T>
void whole_sum(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Work& w, const ReduceShape& s)
{
    check_reduce(in, s);
    in.align(dst.ref(), sizeof(T), "dst");
    Operand a = reduce_source(in, src, s, w);
    uint8_t* ub = in.c.data(UB);
    std::vector<T> results, v;
    for (uint32_t r = 0; r < w.repeats; ++r) {
        v.clear();
        for (uint32_t e = 0; e < w.lanes; ++e) {
            if (w.active(r, e)) v.push_back(load<T>(ub + a.at(r, e)));
        }
        results.push_back(v.empty() ? T(0) : tree_sum(v));
    }
    for (uint32_t r = 0; r < w.repeats; ++r) put<T>(in, dst.ref(), dst.ref().addr + static_cast<uint64_t>(r) * s.dst_repeat * sizeof(T), results[r]);
    if (w.repeats) in.c.accumulated = static_cast<float>(results.back());
}

/// Value and index as one repeat finds them.
template <typename T>
struct Extreme {
    T value{};
    uint32_t index = 0;
    bool any = false;
};

template <typename T>
std::vector<Extreme<T>> extremes(Instr& in, const Operand& a, const Work& w, bool max)
{
    uint8_t* ub = in.c.data(UB);
    std::vector<Extreme<T>> out(w.repeats);
    each_lane(w, [&](uint32_t r, uint32_t e) {
        T v = load<T>(ub + a.at(r, e));
        Extreme<T>& x = out[r];
        if (!x.any || better(v, x.value, max)) x = {v, e, true};
    });
    return out;
}

/// An index stored in the bits of T (ORDER_ONLY_INDEX stores a whole uint32 instead).
template <typename T>
T index_bits(uint32_t i)
{
    T v;
    std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t> raw = static_cast<std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>(i);
    std::memcpy(&v, &raw, sizeof(T));
    return v;
}

template <typename T>
void whole_extreme(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Work& w,
                   const ReduceShape& s, ReduceOrder order, bool max)
{
    check_reduce(in, s);
    bool pair = order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE;
    uint32_t unit = pair ? 2 * sizeof(T) : (order == ReduceOrder::ORDER_ONLY_INDEX ? 4 : sizeof(T));
    in.align(dst.ref(), unit, "dst");
    Operand a = reduce_source(in, src, s, w);
    std::vector<Extreme<T>> found = extremes<T>(in, a, w, max);
    for (uint32_t r = 0; r < w.repeats; ++r) {
        uint64_t at = dst.ref().addr + static_cast<uint64_t>(r) * s.dst_repeat * unit;
        T index = index_bits<T>(found[r].index);
        if (order == ReduceOrder::ORDER_ONLY_VALUE) put<T>(in, dst.ref(), at, found[r].value);
        else if (order == ReduceOrder::ORDER_ONLY_INDEX) put<uint32_t>(in, dst.ref(), at, found[r].index);
        else {
            put<T>(in, dst.ref(), at, order == ReduceOrder::ORDER_VALUE_INDEX ? found[r].value : index);
            put<T>(in, dst.ref(), at + sizeof(T), order == ReduceOrder::ORDER_VALUE_INDEX ? index : found[r].value);
        }
    }
    if (w.repeats) {
        in.c.reduce_value = static_cast<float>(found.back().value);
        in.c.reduce_index = found.back().index;
    }
}

/// `width` source elements make one result: a block (BlockReduce) or a pair. Groups that are masked off keep dst.
template <typename T, typename Fn>
void grouped(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Work& w, const ReduceShape& s,
             uint32_t width, Fn fn)
{
    check_reduce(in, s);
    uint32_t groups = w.lanes / width;
    in.align(dst.ref(), width == 2 ? 32 : 8 * sizeof(T), "dst");
    Operand a = reduce_source(in, src, s, w);
    uint8_t* ub = in.c.data(UB);
    std::vector<std::pair<uint64_t, T>> results;
    std::vector<T> v;
    for (uint32_t r = 0; r < w.repeats; ++r) {
        uint64_t base = dst.ref().addr + static_cast<uint64_t>(r) * s.dst_repeat * groups * sizeof(T);
        for (uint32_t g = 0; g < groups; ++g) {
            v.clear();
            for (uint32_t e = g * width; e < (g + 1) * width; ++e) {
                if (w.active(r, e)) v.push_back(load<T>(ub + a.at(r, e)));
            }
            if (!v.empty()) results.push_back({base + g * sizeof(T), fn(v)});
        }
    }
    Spans spans;
    for (auto& x : results) spans.add(x.first, sizeof(T));
    for (const Span& x : spans.v) in.write(dst.ref(), x.begin, x.end);
    for (auto& x : results) store<T>(ub + x.first, x.second);
}

template <typename T>
T fold_extreme(const std::vector<T>& v, bool max)
{
    T best = v[0];
    for (T x : v) best = better(x, best, max) ? x : best;
    return best;
}

}  // namespace moec_cpu

namespace AscendC {

#define MOEC_REDUCE_TYPE(NAME) static_assert(moec_cpu::one_of<T, half, float>, #NAME ": half or float")

// WholeReduce*: (mask, repeat, ...).
#define MOEC_WHOLE(MASK_TYPE, BITS, MASK)                                                                                      \
    template <typename T, bool isSetMask = true>                                                                               \
    void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, MASK_TYPE, const int32_t repeatTimes,            \
                        const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,                    \
                        Site site = Site::here())                                                                              \
    {                                                                                                                          \
        MOEC_REDUCE_TYPE(WholeReduceSum);                                                                                      \
        if (repeatTimes == 0) return;                                                                                          \
        moec_cpu::Instr in(moec_cpu::V, "WholeReduceSum", site);                                                               \
        moec_cpu::whole_sum<T>(in, dst, src, moec_cpu::reduce_mask(in, BITS, MASK, repeatTimes, 256 / sizeof(T), isSetMask),   \
                               {repeatTimes, dstRepStride, srcBlkStride, srcRepStride});                                       \
    }                                                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void WholeReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, MASK_TYPE, const int32_t repeatTimes,            \
                        const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,                    \
                        ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Site site = Site::here())                          \
    {                                                                                                                          \
        MOEC_REDUCE_TYPE(WholeReduceMax);                                                                                      \
        if (repeatTimes == 0) return;                                                                                          \
        moec_cpu::Instr in(moec_cpu::V, "WholeReduceMax", site);                                                               \
        moec_cpu::whole_extreme<T>(in, dst, src, moec_cpu::reduce_mask(in, BITS, MASK, repeatTimes, 256 / sizeof(T), isSetMask), \
                                   {repeatTimes, dstRepStride, srcBlkStride, srcRepStride}, order, true);                      \
    }                                                                                                                          \
    template <typename T, bool isSetMask = true>                                                                               \
    void WholeReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, MASK_TYPE, const int32_t repeatTimes,            \
                        const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,                    \
                        ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, Site site = Site::here())                          \
    {                                                                                                                          \
        MOEC_REDUCE_TYPE(WholeReduceMin);                                                                                      \
        if (repeatTimes == 0) return;                                                                                          \
        moec_cpu::Instr in(moec_cpu::V, "WholeReduceMin", site);                                                               \
        moec_cpu::whole_extreme<T>(in, dst, src, moec_cpu::reduce_mask(in, BITS, MASK, repeatTimes, 256 / sizeof(T), isSetMask), \
                                   {repeatTimes, dstRepStride, srcBlkStride, srcRepStride}, order, false);                     \
    }

MOEC_WHOLE(const uint64_t mask[], mask, 0)
MOEC_WHOLE(const int32_t mask, nullptr, mask)
#undef MOEC_WHOLE

// BlockReduce* and PairReduceSum: (repeat, mask, ...).
#define MOEC_GROUPED(NAME, WIDTH, FOLD, MASK_TYPE, BITS, MASK)                                                                 \
    template <typename T, bool isSetMask = true>                                                                               \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat, MASK_TYPE,                           \
              const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride, Site site = Site::here())    \
    {                                                                                                                          \
        MOEC_REDUCE_TYPE(NAME);                                                                                                \
        if (repeat == 0) return;                                                                                               \
        moec_cpu::Instr in(moec_cpu::V, #NAME, site);                                                                          \
        moec_cpu::grouped<T>(in, dst, src, moec_cpu::reduce_mask(in, BITS, MASK, repeat, 256 / sizeof(T), isSetMask),          \
                             {repeat, dstRepStride, srcBlkStride, srcRepStride}, WIDTH,                                        \
                             [](std::vector<T>& v) { return FOLD; });                                                          \
    }
#define MOEC_GROUPED_BOTH(NAME, WIDTH, FOLD)                                \
    MOEC_GROUPED(NAME, WIDTH, FOLD, const int32_t mask, nullptr, mask)      \
    MOEC_GROUPED(NAME, WIDTH, FOLD, const uint64_t mask[], mask, 0)

MOEC_GROUPED_BOTH(BlockReduceSum, 32 / sizeof(T), moec_cpu::tree_sum(v))
MOEC_GROUPED_BOTH(BlockReduceMax, 32 / sizeof(T), moec_cpu::fold_extreme(v, true))
MOEC_GROUPED_BOTH(BlockReduceMin, 32 / sizeof(T), moec_cpu::fold_extreme(v, false))
MOEC_GROUPED_BOTH(PairReduceSum, 2, moec_cpu::tree_sum(v))
#undef MOEC_GROUPED_BOTH
#undef MOEC_GROUPED

template <typename T, bool isSetMask = true>
void RepeatReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t repeat, const int32_t elemsInOneRepeat,
                     const int32_t dstBlkStride, const int32_t srcBlkStride, const int32_t dstRepStride, const int32_t srcRepStride,
                     Site site = Site::here())
{
    MOEC_REDUCE_TYPE(RepeatReduceSum);
    if (repeat == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "RepeatReduceSum", site);
    (void)dstBlkStride;
    moec_cpu::whole_sum<T>(in, dst, src, moec_cpu::reduce_mask(in, nullptr, elemsInOneRepeat, repeat, 256 / sizeof(T), isSetMask),
                           {repeat, dstRepStride, srcBlkStride, srcRepStride});
}

template <typename T>
void GetReduceMaxMinCount(T& maxMinValue, T& maxMinIndex, Site site = Site::here())
{
    moec_cpu::Core& c = moec_cpu::core(site);
    maxMinValue = static_cast<T>(c.reduce_value);
    maxMinIndex = moec_cpu::index_bits<T>(c.reduce_index);
}
template <typename T>
void GetReduceMaxMinCount(T& maxMinValue, Site site = Site::here())
{
    maxMinValue = static_cast<T>(moec_cpu::core(site).reduce_value);
}
template <typename T>
T GetAccVal(Site site = Site::here())
{
    return static_cast<T>(moec_cpu::core(site).accumulated);
}

}  // namespace AscendC
