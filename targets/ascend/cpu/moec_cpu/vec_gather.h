// Gather (elements by byte offset), Gatherb (32-byte blocks) and GatherMask (keep what a bit pattern selects).
#pragma once
#include "moec_cpu/vec_fill.h"

namespace moec_cpu {

template <typename T>
void gather(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
            const AscendC::LocalTensor<uint32_t>& offsets, uint32_t base, const Work& w, uint32_t dst_repeat)
{
    Operand d = operand(dst, 1, dst_repeat, "dst");
    check_operand(in, operand(src, 1, 8, "src"));
    LocalRef o = offsets.ref();
    in.align(o, "srcOffset");
    uint8_t* ub = in.c.data(UB);
    // offsets are dense: one a lane, whatever the mask
    std::vector<std::pair<uint64_t, T>> out;
    each_lane(w, [&](uint32_t r, uint32_t e) {
        uint64_t at = o.addr + (static_cast<uint64_t>(r) * w.lanes + e) * 4;
        in.read(o, at, at + 4);
        uint64_t from = static_cast<uint64_t>(src.ref().addr) + base + load<uint32_t>(ub + at);
        in.require((from - src.ref().addr) % sizeof(T) == 0, "misaligned gather offset",
                   fmt("offset %u of element %u is no multiple of %zu", load<uint32_t>(ub + at), r * w.lanes + e, sizeof(T)));
        in.read(src.ref(), from, from + sizeof(T));
        out.push_back({d.at(r, e), load<T>(ub + from)});
    });
    write_operand(in, d, w);
    in.count(w.elements() * sizeof(T), w.repeats);
    for (auto& [at, v] : out) store<T>(ub + at, v);
}

template <typename T>
constexpr bool kGatherType = one_of<T, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t>;

/// The built-in patterns: 1 and 2 keep every other element, 3..6 one of four, 7 all.
MOEC_CPU_FN bool pattern_keeps(uint8_t pattern, uint64_t index)
{
    if (pattern == 7) return true;
    if (pattern <= 2) return index % 2 == pattern - 1u;
    return index % 4 == pattern - 3u;
}

template <typename T, typename Keep>
void gather_mask(Instr& in, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, bool counter, uint32_t mask,
                 const AscendC::GatherMaskParams& p, uint64_t& kept, Keep keep)
{
    constexpr uint32_t lanes = 256 / sizeof(T), per = 32 / sizeof(T);
    uint32_t take = counter ? mask : lanes;
    in.require(!counter || mask > 0, "mask out of range", "counter mode needs the elements of a repeat in `mask`");
    Operand s = operand(src, p.src0BlockStride, p.src0RepeatStride, "src0");
    check_operand(in, s);
    LocalRef d = dst.ref();
    in.align(d, "dst");
    uint8_t* ub = in.c.data(UB);
    std::vector<T> out;
    Spans spans;
    for (uint32_t r = 0; r < p.repeatTimes; ++r) {
        for (uint32_t i = 0; i < take; i += per) spans.add(s.at(r, i), std::min(per, take - i) * sizeof(T));
    }
    for (const Span& x : spans.v) in.read(s.ref, x.begin, x.end);
    for (uint32_t r = 0; r < p.repeatTimes; ++r) {
        for (uint32_t i = 0; i < take; ++i) {
            if (keep(r, i)) out.push_back(load<T>(ub + s.at(r, i)));
        }
    }
    in.write(d, d.addr, d.addr + out.size() * sizeof(T));
    std::memcpy(ub + d.addr, out.data(), out.size() * sizeof(T));
    kept = out.size();
    in.c.gather_kept = kept;
    in.count(static_cast<uint64_t>(p.repeatTimes) * take * sizeof(T), p.repeatTimes);
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr,
            const uint64_t mask, const moec_cpu::U8 repeatTimes, const moec_cpu::U16 dstRepStride, Site site = Site::here())
{
    static_assert(moec_cpu::kGatherType<T>, "Gather: a 16- or 32-bit type");
    moec_cpu::Instr in(moec_cpu::V, "Gather", site);
    moec_cpu::gather<T>(in, dst, src, srcOffset, srcBaseAddr, moec_cpu::mask_work(in, mask, repeatTimes, 256 / sizeof(T), true), dstRepStride);
}
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr,
            const uint64_t mask[], const moec_cpu::U8 repeatTimes, const moec_cpu::U16 dstRepStride, Site site = Site::here())
{
    static_assert(moec_cpu::kGatherType<T>, "Gather: a 16- or 32-bit type");
    moec_cpu::Instr in(moec_cpu::V, "Gather", site);
    moec_cpu::gather<T>(in, dst, src, srcOffset, srcBaseAddr, moec_cpu::bits_work(in, mask, repeatTimes, 256 / sizeof(T), true), dstRepStride);
}
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, const uint32_t srcBaseAddr,
            const uint32_t count, Site site = Site::here())
{
    static_assert(moec_cpu::kGatherType<T>, "Gather: a 16- or 32-bit type");
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::V, "Gather", site);
    moec_cpu::gather<T>(in, dst, src, srcOffset, srcBaseAddr, moec_cpu::count_work(in, count, 256 / sizeof(T)), 8);
}

/// Eight blocks a repeat, each from its own byte offset.
template <typename T>
void Gatherb(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<uint32_t>& offset, const moec_cpu::U8 repeatTimes,
             const GatherRepeatParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, uint16_t, uint32_t>, "Gatherb: uint16_t or uint32_t");
    using namespace moec_cpu;
    if (repeatTimes == 0) return;
    Instr in(V, "Gatherb", site);
    LocalRef s = src0.ref(), o = offset.ref(), d = dst.ref();
    check_operand(in, operand(src0, 1, 8, "src0"));
    check_operand(in, operand(dst, 1, 8, "dst"));
    in.align(o, "offset");
    uint8_t* ub = in.c.data(UB);
    uint32_t stride = p.dstBlkStride ? unsigned(p.dstBlkStride) : 1u;
    in.read(o, o.addr, o.addr + repeatTimes * 32ULL);
    std::vector<uint8_t> blocks(repeatTimes * 256u);
    for (uint32_t i = 0; i < repeatTimes * 8u; ++i) {
        uint64_t from = static_cast<uint64_t>(s.addr) + load<uint32_t>(ub + o.addr + i * 4);
        in.require(from % 32 == 0, "misaligned gather offset", fmt("block offset %u is no multiple of 32", load<uint32_t>(ub + o.addr + i * 4)));
        in.read(s, from, from + 32);
        std::memcpy(blocks.data() + i * 32, ub + from, 32);
    }
    for (uint32_t i = 0; i < repeatTimes * 8u; ++i) {
        uint64_t to = d.addr + (static_cast<uint64_t>(i / 8) * p.dstRepStride + static_cast<uint64_t>(i % 8) * stride) * 32;
        in.write(d, to, to + 32);
        std::memcpy(ub + to, blocks.data() + i * 32, 32);
    }
    in.count(repeatTimes * 256ULL, repeatTimes);
}

template <typename T, typename U, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<U>& src1Pattern, const bool reduceMode,
                const uint32_t mask, const GatherMaskParams& params, uint64_t& rsvdCnt, Site site = Site::here())
{
    static_assert(moec_cpu::kGatherType<T> && std::is_same<U, std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>>::value,
                  "GatherMask: a 16-bit type with uint16_t patterns or a 32-bit type with uint32_t patterns");
    using namespace moec_cpu;
    if (params.repeatTimes == 0) return;
    Instr in(V, "GatherMask", site);
    LocalRef b = src1Pattern.ref();
    in.align(b, "src1Pattern");
    uint32_t take = reduceMode ? mask : 256 / sizeof(T);
    uint8_t* ub = in.c.data(UB);
    uint64_t step = params.src1RepeatStride * 32ULL, bytes = (take + 7) / 8;
    std::vector<uint8_t> bits;
    for (uint32_t r = 0; r < params.repeatTimes; ++r) {
        in.read(b, b.addr + r * step, b.addr + r * step + bytes);
        bits.insert(bits.end(), ub + b.addr + r * step, ub + b.addr + r * step + bytes);
    }
    gather_mask<T>(in, dst, src0, reduceMode, mask, params, rsvdCnt,
                   [&](uint32_t r, uint32_t i) { return bits[r * bytes + i / 8] >> (i % 8) & 1; });
}

template <typename T, GatherMaskMode mode = defaultGatherMaskMode>
void GatherMask(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const uint8_t src1Pattern, const bool reduceMode,
                const uint32_t mask, const GatherMaskParams& params, uint64_t& rsvdCnt, Site site = Site::here())
{
    static_assert(moec_cpu::kGatherType<T>, "GatherMask: a 16- or 32-bit type");
    using namespace moec_cpu;
    if (params.repeatTimes == 0) return;
    Instr in(V, "GatherMask", site);
    in.require(src1Pattern >= 1 && src1Pattern <= 7, "parameter out of range", fmt("pattern %u: 1..7", src1Pattern));
    gather_mask<T>(in, dst, src0, reduceMode, mask, params, rsvdCnt, [&](uint32_t, uint32_t i) { return pattern_keeps(src1Pattern, i); });
}

MOEC_CPU_FN int64_t GetGatherMaskRemainCount(Site site = Site::here()) { return static_cast<int64_t>(moec_cpu::core(site).gather_kept); }

}  // namespace AscendC
