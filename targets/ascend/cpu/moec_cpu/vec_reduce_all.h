// ReduceSum, ReduceMax, ReduceMin over any count: software sequences on the device, with a work buffer.
#pragma once
#include "moec_cpu/vec_reduce.h"

namespace moec_cpu {

/// The work buffer that the first round needs: two elements a repeat, rounded up to a block. It holds garbage afterwards.
template <typename T>
void spoil_work(Instr& in, const AscendC::LocalTensor<T>& work, const Work& w)
{
    LocalRef r = work.ref();
    in.require(r.space == UB, "operand in the wrong memory", "the work buffer must lie in UB");
    in.align(r, "the work buffer");
    uint64_t bytes = (w.repeats * 2ULL * sizeof(T) + 31) / 32 * 32;
    in.require(r.addr + bytes <= r.hi, "work buffer too small",
               fmt("%llu bytes are needed for %u repeats, the buffer has %u", static_cast<unsigned long long>(bytes), w.repeats, r.hi - r.addr));
    in.write(r, r.addr, r.addr + bytes, false);
}

template <typename T>
void reduce_sum(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work,
                const Work& w, uint32_t src_repeat)
{
    in.align(dst.ref(), sizeof(T), "dst");
    Operand a = operand(src, 1, src_repeat, "src");
    read_operand(in, a, w);
    in.count(w.elements() * sizeof(T), w.repeats);
    uint8_t* ub = in.c.data(UB);
    std::vector<T> level, v;
    for (uint32_t r = 0; r < w.repeats; ++r) {
        v.clear();
        for (uint32_t e = 0; e < w.lanes; ++e) {
            if (w.active(r, e)) v.push_back(load<T>(ub + a.at(r, e)));
        }
        level.push_back(tree_sum(v));
    }
    T sum = tree_sum(level);
    spoil_work(in, work, w);
    put<T>(in, dst.ref(), dst.ref().addr, sum);
}

template <typename T>
void reduce_extreme(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work,
                    const Work& w, uint32_t src_repeat, bool index, bool max)
{
    in.align(dst.ref(), index ? 2 * sizeof(T) : sizeof(T), "dst");
    Operand a = operand(src, 1, src_repeat, "src");
    read_operand(in, a, w);
    in.count(w.elements() * sizeof(T), w.repeats);
    std::vector<Extreme<T>> found = extremes<T>(in, a, w, max);
    Extreme<T> best = found[0];
    for (uint32_t r = 1; r < w.repeats; ++r) {
        if (better(found[r].value, best.value, max)) best = {found[r].value, r * w.lanes + found[r].index, true};
    }
    in.require(!index || sizeof(T) == 4 || best.index <= 65535, "index too large", "a half result holds indices up to 65535");
    spoil_work(in, work, w);
    put<T>(in, dst.ref(), dst.ref().addr, best.value);
    if (index) put<T>(in, dst.ref(), dst.ref().addr + sizeof(T), index_bits<T>(best.index));
}

}  // namespace moec_cpu

namespace AscendC {

#define MOEC_REDUCE_ALL(NAME, MAX)                                                                                             \
    template <typename T>                                                                                                      \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const int32_t mask,            \
              const int32_t repeatTimes, const int32_t srcRepStride, bool calIndex = 0, Site site = Site::here())              \
    {                                                                                                                          \
        MOEC_REDUCE_TYPE(NAME);                                                                                                \
        if (repeatTimes == 0) return;                                                                                          \
        moec_cpu::Instr in(moec_cpu::V, #NAME, site);                                                                          \
        moec_cpu::check_reduce(in, {repeatTimes, 0, 1, srcRepStride});                                                         \
        moec_cpu::reduce_extreme<T>(in, dst, src, work, moec_cpu::reduce_mask(in, nullptr, mask, repeatTimes, 256 / sizeof(T), true), \
                                    static_cast<uint32_t>(srcRepStride), calIndex, MAX);                                       \
    }                                                                                                                          \
    template <typename T>                                                                                                      \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const uint64_t mask[],         \
              const int32_t repeatTimes, const int32_t srcRepStride, bool calIndex = 0, Site site = Site::here())              \
    {                                                                                                                          \
        MOEC_REDUCE_TYPE(NAME);                                                                                                \
        if (repeatTimes == 0) return;                                                                                          \
        moec_cpu::Instr in(moec_cpu::V, #NAME, site);                                                                          \
        moec_cpu::check_reduce(in, {repeatTimes, 0, 1, srcRepStride});                                                         \
        moec_cpu::reduce_extreme<T>(in, dst, src, work, moec_cpu::reduce_mask(in, mask, 0, repeatTimes, 256 / sizeof(T), true), \
                                    static_cast<uint32_t>(srcRepStride), calIndex, MAX);                                       \
    }                                                                                                                          \
    template <typename T>                                                                                                      \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const int32_t count,           \
              bool calIndex = 0, Site site = Site::here())                                                                     \
    {                                                                                                                          \
        MOEC_REDUCE_TYPE(NAME);                                                                                                \
        if (count == 0) return;                                                                                                \
        moec_cpu::Instr in(moec_cpu::V, #NAME, site);                                                                          \
        moec_cpu::reduce_extreme<T>(in, dst, src, work, moec_cpu::count_work(in, count, 256 / sizeof(T)), 8, calIndex, MAX);   \
    }

MOEC_REDUCE_ALL(ReduceMax, true)
MOEC_REDUCE_ALL(ReduceMin, false)
#undef MOEC_REDUCE_ALL

template <typename T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const int32_t mask,
               const int32_t repeatTimes, const int32_t srcRepStride, Site site = Site::here())
{
    MOEC_REDUCE_TYPE(ReduceSum);
    if (repeatTimes == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "ReduceSum", site);
    moec_cpu::check_reduce(in, {repeatTimes, 0, 1, srcRepStride});
    moec_cpu::reduce_sum<T>(in, dst, src, work, moec_cpu::reduce_mask(in, nullptr, mask, repeatTimes, 256 / sizeof(T), true),
                            static_cast<uint32_t>(srcRepStride));
}
template <typename T>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const uint64_t mask[],
               const int32_t repeatTimes, const int32_t srcRepStride, Site site = Site::here())
{
    MOEC_REDUCE_TYPE(ReduceSum);
    if (repeatTimes == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "ReduceSum", site);
    moec_cpu::check_reduce(in, {repeatTimes, 0, 1, srcRepStride});
    moec_cpu::reduce_sum<T>(in, dst, src, work, moec_cpu::reduce_mask(in, mask, 0, repeatTimes, 256 / sizeof(T), true),
                            static_cast<uint32_t>(srcRepStride));
}
template <typename T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& work, const int32_t count, Site site = Site::here())
{
    MOEC_REDUCE_TYPE(ReduceSum);
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "ReduceSum", site);
    moec_cpu::reduce_sum<T>(in, dst, src, work, moec_cpu::count_work(in, count, 256 / sizeof(T)), 8);
}
#undef MOEC_REDUCE_TYPE

}  // namespace AscendC
