// Sorting: Sort32 (32 at a time), MrgSort (merge of up to four sorted lists), Concat, Extract, Sort.
// A record is 8 bytes: the value in the low bytes, a uint32 index in the high four. Order is descending by value;
// equal values keep the one that comes first in front.
#pragma once
#include <array>
#include "moec_cpu/vec_arith.h"

namespace moec_cpu {

template <typename T>
float record_value(const uint8_t* p)
{
    return static_cast<float>(load<T>(p));
}

/// Sorts `n` records in place, stably, descending.
template <typename T>
void sort_records(std::vector<std::array<uint8_t, 8>>& v)
{
    std::stable_sort(v.begin(), v.end(), [](const auto& a, const auto& b) { return record_value<T>(a.data()) > record_value<T>(b.data()); });
}

/// Makes one record.
template <typename T>
std::array<uint8_t, 8> make_record(T value, uint32_t index)
{
    std::array<uint8_t, 8> r{};
    store<T>(r.data(), value);
    store<uint32_t>(r.data() + 4, index);
    return r;
}

struct MergeList {
    LocalRef ref;
    uint64_t addr;
    uint32_t length;
};

/// Merges the lists into dst; returns how many records of each were taken.
template <typename T>
std::array<uint32_t, 4> merge_lists(Instr& in, const LocalRef& dst, uint64_t to, const std::vector<MergeList>& lists, bool suspend)
{
    uint8_t* ub = in.c.data(UB);
    std::array<uint32_t, 4> taken{};
    std::vector<std::array<uint8_t, 8>> out;
    for (const MergeList& l : lists) in.read(l.ref, l.addr, l.addr + l.length * 8ULL);
    while (true) {
        int best = -1;
        for (size_t i = 0; i < lists.size(); ++i) {
            if (taken[i] == lists[i].length) continue;
            if (best < 0 || record_value<T>(ub + lists[i].addr + taken[i] * 8ULL) >
                                record_value<T>(ub + lists[best].addr + taken[static_cast<size_t>(best)] * 8ULL)) {
                best = static_cast<int>(i);
            }
        }
        if (best < 0) break;
        std::array<uint8_t, 8> r;
        std::memcpy(r.data(), ub + lists[static_cast<size_t>(best)].addr + taken[static_cast<size_t>(best)] * 8ULL, 8);
        out.push_back(r);
        if (++taken[static_cast<size_t>(best)] == lists[static_cast<size_t>(best)].length && suspend) break;
    }
    uint64_t bytes = out.size() * 8;
    for (const MergeList& l : lists) {
        in.require(to + bytes <= l.addr || l.addr + l.length * 8ULL <= to, "operands overlap in part", "dst of MrgSort must not share memory with a source list");
    }
    in.write(dst, to, to + bytes);
    std::memcpy(ub + to, out.data(), bytes);
    return taken;
}

template <typename T>
void mrg_sort(Instr& in, const LocalRef& dst, const AscendC::LocalTensor<T>* const* src, const uint16_t lengths[4], bool suspend,
              uint32_t valid, uint32_t repeats, uint32_t counts[4])
{
    in.require(valid == 3 || valid == 7 || valid == 15, "parameter out of range", fmt("validBit %u: 3, 7 or 15", valid));
    in.align(dst, "dst");
    int lists = valid == 3 ? 2 : (valid == 7 ? 3 : 4);
    uint64_t total = 0;
    for (int i = 0; i < lists; ++i) {
        in.require(lengths[i] <= 4095, "parameter out of range", fmt("list %d has %u records, at most 4095", i + 1, lengths[i]));
        in.align(src[i]->ref(), 8, "a source list");
        total += lengths[i];
    }
    if (repeats > 1) {
        bool regular = lists == 4 && !suspend;
        for (int i = 1; i < lists; ++i) {
            regular = regular && lengths[i] == lengths[0] && src[i]->ref().addr == src[0]->ref().addr + static_cast<uint32_t>(i) * lengths[0] * 8u;
        }
        in.require(regular, "repeats need four equal lists in a row", "with repeatTimes > 1 all four lists are valid, as long as one another and contiguous");
    }
    for (uint32_t r = 0; r < repeats; ++r) {
        std::vector<MergeList> v;
        for (int i = 0; i < lists; ++i) v.push_back({src[i]->ref(), src[i]->ref().addr + r * total * 8, lengths[i]});
        std::array<uint32_t, 4> taken = merge_lists<T>(in, dst, dst.addr + r * total * 8, v, suspend);
        for (int i = 0; i < 4; ++i) counts[i] = taken[static_cast<size_t>(i)];
    }
    in.c.sort_counts = 0;
    for (int i = 0; i < 4; ++i) in.c.sort_counts |= static_cast<uint64_t>(counts[i] & 0xffff) << (16 * i);
    in.count(total * 8 * repeats, repeats);
}

}  // namespace moec_cpu

namespace AscendC {

struct MrgSort4Info {
    MrgSort4Info() {}
    MrgSort4Info(const uint16_t elementLengthsIn[MRG_SORT_ELEMENT_LEN], const bool ifExhaustedSuspensionIn, const uint16_t validBitIn,
                 const uint16_t repeatTimesIn)
        : ifExhaustedSuspension(ifExhaustedSuspensionIn), validBit(validBitIn), repeatTimes(repeatTimesIn)
    {
        for (int i = 0; i < MRG_SORT_ELEMENT_LEN; ++i) elementLengths[i] = elementLengthsIn[i];
    }
    uint16_t elementLengths[MRG_SORT_ELEMENT_LEN] = {0};
    bool ifExhaustedSuspension = false;
    uint16_t validBit = 0;
    moec_cpu::U8 repeatTimes = 1;
};

template <typename T>
struct MrgSortSrcList {
    MrgSortSrcList() {}
    MrgSortSrcList(const LocalTensor<T>& src1In, const LocalTensor<T>& src2In, const LocalTensor<T>& src3In, const LocalTensor<T>& src4In)
        : src1(src1In), src2(src2In), src3(src3In), src4(src4In)
    {}
    LocalTensor<T> src1;
    LocalTensor<T> src2;
    LocalTensor<T> src3;
    LocalTensor<T> src4;
};

template <typename T>
void Sort32(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& src1, const int32_t repeatTimes,
            Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float>, "Sort32: half or float");
    using namespace moec_cpu;
    if (repeatTimes == 0) return;
    Instr in(V, "Sort32", site);
    in.require(repeatTimes > 0 && repeatTimes <= 255, "repeat out of range", fmt("repeat %d: 0..255", repeatTimes));
    LocalRef d = dst.ref(), s = src0.ref(), x = src1.ref();
    check_operand(in, operand(dst, 1, 8, "dst"));
    check_operand(in, operand(src0, 1, 8, "src0"));
    check_operand(in, operand(src1, 1, 8, "src1"));
    in.align(s, 32 * sizeof(T), "src0");
    in.align(x, 128, "src1");
    in.align(d, 256, "dst");
    uint64_t n = static_cast<uint64_t>(repeatTimes) * 32;
    in.read(s, s.addr, s.addr + n * sizeof(T));
    in.read(x, x.addr, x.addr + n * 4);
    auto apart = [&](uint64_t a, uint64_t bytes) { return d.addr + n * 8 <= a || a + bytes <= d.addr; };
    in.require(apart(s.addr, n * sizeof(T)) && apart(x.addr, n * 4), "operands overlap in part", "dst of Sort32 must not share memory with its sources");
    in.write(d, d.addr, d.addr + n * 8);
    uint8_t* ub = in.c.data(UB);
    for (int32_t r = 0; r < repeatTimes; ++r) {
        std::vector<std::array<uint8_t, 8>> v;
        for (uint32_t i = 0; i < 32; ++i) {
            uint64_t e = static_cast<uint64_t>(r) * 32 + i;
            v.push_back(make_record<T>(load<T>(ub + s.addr + e * sizeof(T)), load<uint32_t>(ub + x.addr + e * 4)));
        }
        sort_records<T>(v);
        std::memcpy(ub + d.addr + static_cast<uint64_t>(r) * 256, v.data(), 256);
    }
    in.count(n * sizeof(T), static_cast<uint64_t>(repeatTimes));
}

template <typename T>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& src, const MrgSort4Info& p, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float>, "MrgSort: half or float");
    if (p.repeatTimes == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "MrgSort", site);
    const LocalTensor<T>* lists[4] = {&src.src1, &src.src2, &src.src3, &src.src4};
    uint32_t counts[4];
    moec_cpu::mrg_sort<T>(in, dst.ref(), lists, p.elementLengths, p.ifExhaustedSuspension, p.validBit, p.repeatTimes, counts);
}

template <typename T, bool isExhaustedSuspension = false>
void MrgSort(const LocalTensor<T>& dst, const MrgSortSrcList<T>& sortList, const uint16_t elementCountList[4], uint32_t sortedNum[4],
             uint16_t validBit, const int32_t repeatTimes, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float>, "MrgSort: half or float");
    if (repeatTimes == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "MrgSort", site);
    in.require(repeatTimes > 0 && repeatTimes <= 255, "repeat out of range", moec_cpu::fmt("repeat %d: 0..255", repeatTimes));
    const LocalTensor<T>* lists[4] = {&sortList.src1, &sortList.src2, &sortList.src3, &sortList.src4};
    moec_cpu::mrg_sort<T>(in, dst.ref(), lists, elementCountList, isExhaustedSuspension, validBit, static_cast<uint32_t>(repeatTimes), sortedNum);
}

MOEC_CPU_FN void GetMrgSortResult(uint16_t& list1, uint16_t& list2, uint16_t& list3, uint16_t& list4, Site site = Site::here())
{
    uint64_t v = moec_cpu::core(site).sort_counts;
    list1 = static_cast<uint16_t>(v);
    list2 = static_cast<uint16_t>(v >> 16);
    list3 = static_cast<uint16_t>(v >> 32);
    list4 = static_cast<uint16_t>(v >> 48);
}

/// On this chip the sort takes plain values: Concat only renames.
template <typename T>
void Concat(LocalTensor<T>& concatLocal, const LocalTensor<T>& srcLocal, const LocalTensor<T>&, const int32_t)
{
    concatLocal = srcLocal;
}

/// Splits records into values and indices, 32 a repeat.
template <typename T>
void Extract(const LocalTensor<T>& dstValue, const LocalTensor<uint32_t>& dstIndex, const LocalTensor<T>& sorted, const int32_t repeatTimes,
             Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float>, "Extract: half or float");
    using namespace moec_cpu;
    if (repeatTimes <= 0) return;
    Instr in(V, "Extract", site);
    LocalRef v = dstValue.ref(), x = dstIndex.ref(), s = sorted.ref();
    uint64_t n = static_cast<uint64_t>(repeatTimes) * 32;
    in.align(v, "dstValue");
    in.align(x, "dstIndex");
    in.align(s, "sorted");
    in.read(s, s.addr, s.addr + n * 8);
    in.write(v, v.addr, v.addr + n * sizeof(T));
    in.write(x, x.addr, x.addr + n * 4);
    uint8_t* ub = in.c.data(UB);
    for (uint64_t i = 0; i < n; ++i) {
        T value = load<T>(ub + s.addr + i * 8);
        uint32_t index = load<uint32_t>(ub + s.addr + i * 8 + 4);
        store<T>(ub + v.addr + i * sizeof(T), value);
        store<uint32_t>(ub + x.addr + i * 4, index);
    }
    in.count(n * 8, static_cast<uint64_t>(repeatTimes));
}

/// Groups of 32 sorted each, or (full) all of them as one list; the temporary buffer holds as much as dst.
template <typename T, bool isFullSort>
void Sort(const LocalTensor<T>& dst, const LocalTensor<T>& concatLocal, const LocalTensor<uint32_t>& indexLocal, LocalTensor<T>& tmpLocal,
          const int32_t repeatTimes, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, float>, "Sort: half or float");
    using namespace moec_cpu;
    Sort32(dst, concatLocal, indexLocal, repeatTimes, site);
    if (!isFullSort || repeatTimes <= 1) return;
    Instr in(V, "Sort", site);
    in.relaxed_same_pipe(true);
    uint64_t bytes = static_cast<uint64_t>(repeatTimes) * 256;
    LocalRef d = dst.ref(), t = tmpLocal.ref();
    in.write(t, t.addr, t.addr + bytes, false);
    uint8_t* ub = in.c.data(UB);
    std::vector<std::array<uint8_t, 8>> v(bytes / 8);
    std::memcpy(v.data(), ub + d.addr, bytes);
    sort_records<T>(v);
    in.read(d, d.addr, d.addr + bytes);
    in.write(d, d.addr, d.addr + bytes);
    std::memcpy(ub + d.addr, v.data(), bytes);
    in.count(bytes, static_cast<uint64_t>(repeatTimes));
}

template <typename T>
uint32_t GetSortOffset(const uint32_t elemOffset)
{
    return elemOffset * 8 / static_cast<uint32_t>(sizeof(T));
}
template <typename T>
uint32_t GetSortLen(const uint32_t elemCount)
{
    return elemCount * 8 / static_cast<uint32_t>(sizeof(T));
}

}  // namespace AscendC
