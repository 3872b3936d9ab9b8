// Fixpipe: results from L0C to global memory or L1, converted, as rows (ND) or as column blocks (NZ).
#pragma once
#include "moec_cpu/cube_mmad.h"

namespace moec_cpu {

/// The scale of a scalar quantisation: a float whose low 13 mantissa bits the hardware ignores.
MOEC_CPU_FN float quant_scale(uint64_t bits) { return float_of(static_cast<uint32_t>(bits) & 0xffffe000u); }

/// Saturating rounding to 8 bits; bit 46 of the parameter says signed, bits 37..45 hold the offset.
MOEC_CPU_FN int32_t quant_byte(float value, uint64_t bits)
{
    int32_t offset = static_cast<int32_t>((bits >> 37) & 0x1ff);
    if (offset & 0x100) offset -= 512;
    float r = std::nearbyint(value * quant_scale(bits)) + static_cast<float>(offset);
    bool is_signed = bits >> 46 & 1;
    float low = is_signed ? -128.0f : 0.0f, high = is_signed ? 127.0f : 255.0f;
    return static_cast<int32_t>(r < low ? low : (r > high ? high : r));
}

template <typename D, typename S>
D fix_convert(S value, const AscendC::FixpipeParamsV220& p, uint64_t scale)
{
    if (p.reluEn && value < S(0)) value = S(0);
    if constexpr (std::is_same<D, S>::value) return value;
    else if constexpr (sizeof(D) == 1) return static_cast<D>(quant_byte(static_cast<float>(value), scale));
    else if constexpr (std::is_same<S, int32_t>::value) return D(static_cast<float>(value) * quant_scale(scale));
    else return D(value);
}

/// Whether a mode turns S into D; with `columns` each column has a scale of its own.
template <typename D, typename S>
bool fix_mode_fits(QuantMode_t q, bool columns)
{
    if (columns) return sizeof(D) == 1 ? q == (std::is_same<S, float>::value ? VQF322B8_PRE : VREQ8) : std::is_same<D, half>::value && std::is_same<S, int32_t>::value && q == VDEQF16;
    if (std::is_same<D, S>::value) return q == NoQuant;
    if (std::is_same<S, float>::value) {
        if (std::is_same<D, half>::value) return q == F322F16;
        if (std::is_same<D, bfloat16_t>::value) return q == F322BF16;
        return sizeof(D) == 1 && q == QF322B8_PRE;
    }
    if (std::is_same<D, half>::value) return q == DEQF16;
    return sizeof(D) == 1 && q == REQ8;
}

/// Reads the m x n results of one matrix that starts at block offset `base` bytes.
template <typename S>
void fix_reads(Instr& in, const LocalRef& src, uint64_t base, const AscendC::FixpipeParamsV220& p)
{
    for (uint32_t j = 0; j * 16 < p.nSize; ++j) {
        uint64_t at = base + static_cast<uint64_t>(j) * p.srcStride * 64;
        uint32_t columns = std::min<uint32_t>(16, p.nSize - j * 16);
        if (columns == 16) {
            in.read(src, at, at + p.mSize * 64ULL);
        } else {
            for (uint32_t i = 0; i < p.mSize; ++i) in.read(src, at + i * 64ULL, at + i * 64ULL + columns * 4);
        }
    }
}

template <typename D, typename S, typename Put>
void fixpipe(Instr& in, const LocalRef& src, const AscendC::FixpipeParamsV220& p, bool rows, const uint64_t* scales, Put put)
{
    in.require(src.space == L0C, "operand in the wrong memory", "Fixpipe reads L0C (CO1)");
    in.align(src, "src");
    in.require(p.nSize <= 4095, "parameter out of range", fmt("nSize %u, at most 4095", unsigned(p.nSize)));
    in.require(!rows || p.mSize <= 8192, "parameter out of range", fmt("mSize %u, at most 8192 with rows out", unsigned(p.mSize)));
    in.require(fix_mode_fits<D, S>(p.quantPre, scales != nullptr), "conversion does not fit the types",
               fmt("quantPre %d with these source and destination types; e.g. NoQuant, F322F16, F322BF16, DEQF16, QF322B8_PRE, REQ8; VDEQF16, VQF322B8_PRE, VREQ8 with a tensor of scales", static_cast<int>(p.quantPre)));
    in.require(!p.isChannelSplit || (!rows && std::is_same<D, float>::value), "channel split here", "isChannelSplit goes with float and CFG_NZ");
    if (p.unitFlag) {
        in.require(in.c.unit_ready, "unit flag without its Mmad", "Fixpipe with unitFlag waits for an Mmad with unitFlag 3, which never ran");
        in.c.clock[FIX].join(in.c.unit_mmad);
        in.c.unit_ready = false;
    }
    const S* base = reinterpret_cast<const S*>(in.c.data(L0C));
    uint32_t matrices = rows ? unsigned(p.ndNum) : 1u;
    std::vector<D> line;
    for (uint32_t d = 0; d < matrices; ++d) {
        uint64_t at = src.addr + static_cast<uint64_t>(d) * p.srcNdStride * 1024;
        fix_reads<S>(in, src, at, p);
        auto value = [&](uint32_t m, uint32_t n) {
            return fix_convert<D, S>(base[at / 4 + (static_cast<uint64_t>(n / 16) * p.srcStride + m) * 16 + n % 16], p, scales ? scales[n] : p.deqScalar);
        };
        if (rows) {
            uint64_t first = static_cast<uint64_t>(d) * p.dstNdStride;
            bool dense = p.dstStride == p.nSize;
            line.clear();
            for (uint32_t m = 0; m < p.mSize; ++m) {
                for (uint32_t n = 0; n < p.nSize; ++n) line.push_back(value(m, n));
                if (dense) continue;
                put(first + static_cast<uint64_t>(m) * p.dstStride, line);
                line.clear();
            }
            if (dense) put(first, line);
        } else {
            uint32_t width = p.isChannelSplit ? 8 : (sizeof(D) == 1 ? 32 : 16);
            for (uint32_t n0 = 0; n0 < p.nSize; n0 += width) {
                line.assign(static_cast<size_t>(p.mSize) * width, D(0));
                for (uint32_t m = 0; m < p.mSize; ++m) {
                    for (uint32_t n = 0; n < width && n0 + n < p.nSize; ++n) line[m * width + n] = value(m, n0 + n);
                }
                put(static_cast<uint64_t>(n0 / width) * p.dstStride * 32 / sizeof(D), line);
            }
        }
    }
    if (p.unitFlag) in.c.unit_fix = snapshot(in.c, FIX);
    in.count(static_cast<uint64_t>(matrices) * p.mSize * p.nSize * sizeof(D));
}

}  // namespace moec_cpu

namespace AscendC {

template <typename D, typename S>
constexpr bool kFixTypes = (std::is_same<S, float>::value && (std::is_same<D, float>::value || std::is_same<D, half>::value ||
                                                              std::is_same<D, bfloat16_t>::value || sizeof(D) == 1)) ||
                           (std::is_same<S, int32_t>::value &&
                            (std::is_same<D, int32_t>::value || std::is_same<D, half>::value || sizeof(D) == 1));

template <typename DstT, typename SrcT, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<DstT>& dst, const LocalTensor<SrcT>& src, const FixpipeParamsV220& params, Site site = Site::here())
{
    static_assert(kFixTypes<DstT, SrcT>, "Fixpipe: float to float/half/bfloat16_t/8 bits, int32_t to int32_t/half/8 bits");
    static_assert(config.format != CO2Layout::COLUMN_MAJOR, "Fixpipe: no column-major output on NPU arch 2201");
    using namespace moec_cpu;
    if (params.nSize == 0 || params.mSize == 0 || params.ndNum == 0) return;
    Instr in(FIX, "Fixpipe", site);
    bool rows = config.format == CO2Layout::ROW_MAJOR;
    in.require(params.dstStride != 0, "parameter out of range", "dstStride must not be 0");
    fixpipe<DstT, SrcT>(in, src.ref(), params, rows, nullptr, [&](uint64_t element, const std::vector<DstT>& line) {
        store_global<DstT>(in, dst.ref(), dst.ref().addr + element * sizeof(DstT), reinterpret_cast<const uint8_t*>(line.data()),
                           line.size() * sizeof(DstT));
    });
}

template <typename DstT, typename SrcT, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const LocalTensor<DstT>& dst, const LocalTensor<SrcT>& src, const FixpipeParamsV220& params, Site site = Site::here())
{
    static_assert(kFixTypes<DstT, SrcT> && !(std::is_same<SrcT, float>::value && std::is_same<DstT, float>::value),
                  "Fixpipe to L1: float to half/bfloat16_t/8 bits, int32_t to half/8 bits");
    using namespace moec_cpu;
    if (params.nSize == 0 || params.mSize == 0) return;
    Instr in(FIX, "Fixpipe", site);
    const LocalRef& to = dst.ref();
    in.require(to.space == L1, "operand in the wrong memory", "Fixpipe writes global memory or L1; there is no way from L0C to UB on NPU arch 2201");
    in.require(config.format == CO2Layout::NZ, "rows into L1", "Fixpipe to L1 keeps NZ: use CFG_NZ");
    in.align(to, "dst");
    fixpipe<DstT, SrcT>(in, src.ref(), params, false, nullptr, [&](uint64_t element, const std::vector<DstT>& line) {
        uint64_t at = to.addr + element * sizeof(DstT), bytes = line.size() * sizeof(DstT);
        in.write(to, at, at + bytes);
        std::memcpy(in.c.data(L1) + at, line.data(), bytes);
    });
}

/// With a scale a column, nSize of them in L1 (the call brings them to the fixpipe's buffer itself).
template <typename DstT, typename SrcT, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const GlobalTensor<DstT>& dst, const LocalTensor<SrcT>& src, const LocalTensor<uint64_t>& cbufWorkspace, const FixpipeParamsV220& params,
             Site site = Site::here())
{
    static_assert(kFixTypes<DstT, SrcT> && !std::is_same<DstT, SrcT>::value, "Fixpipe with scales: int32_t to half or 8 bits, float to 8 bits");
    static_assert(config.format != CO2Layout::COLUMN_MAJOR, "Fixpipe: no column-major output on NPU arch 2201");
    using namespace moec_cpu;
    if (params.nSize == 0 || params.mSize == 0 || params.ndNum == 0) return;
    Instr in(FIX, "Fixpipe", site);
    const LocalRef& from = cbufWorkspace.ref();
    in.require(from.space == L1, "operand in the wrong memory", "scales lie in L1");
    in.align(from, "cbufWorkspace");
    in.require(params.dstStride != 0, "parameter out of range", "dstStride must not be 0");
    in.read(from, from.addr, from.addr + params.nSize * 8ULL);
    std::vector<uint64_t> scales(params.nSize);
    std::memcpy(scales.data(), in.c.data(L1) + from.addr, scales.size() * 8);
    fixpipe<DstT, SrcT>(in, src.ref(), params, config.format == CO2Layout::ROW_MAJOR, scales.data(), [&](uint64_t element, const std::vector<DstT>& line) {
        store_global<DstT>(in, dst.ref(), dst.ref().addr + element * sizeof(DstT), reinterpret_cast<const uint8_t*>(line.data()),
                           line.size() * sizeof(DstT));
    });
}

/// The same into L1, in NZ.
template <typename DstT, typename SrcT, const FixpipeConfig& config = CFG_ROW_MAJOR>
void Fixpipe(const LocalTensor<DstT>& dst, const LocalTensor<SrcT>& src, const LocalTensor<uint64_t>& cbufWorkspace, const FixpipeParamsV220& params,
             Site site = Site::here())
{
    static_assert(kFixTypes<DstT, SrcT> && !std::is_same<DstT, SrcT>::value, "Fixpipe with scales: int32_t to half or 8 bits, float to 8 bits");
    using namespace moec_cpu;
    if (params.nSize == 0 || params.mSize == 0) return;
    Instr in(FIX, "Fixpipe", site);
    const LocalRef &to = dst.ref(), &from = cbufWorkspace.ref();
    in.require(to.space == L1 && from.space == L1, "operand in the wrong memory", "dst and scales lie in L1");
    in.require(config.format == CO2Layout::NZ, "rows into L1", "Fixpipe to L1 keeps NZ: use CFG_NZ");
    in.align(to, "dst");
    in.align(from, "cbufWorkspace");
    in.read(from, from.addr, from.addr + params.nSize * 8ULL);
    std::vector<uint64_t> scales(params.nSize);
    std::memcpy(scales.data(), in.c.data(L1) + from.addr, scales.size() * 8);
    fixpipe<DstT, SrcT>(in, src.ref(), params, false, scales.data(), [&](uint64_t element, const std::vector<DstT>& line) {
        const uint64_t at = to.addr + element * sizeof(DstT), bytes = line.size() * sizeof(DstT);
        in.write(to, at, at + bytes);
        std::memcpy(in.c.data(L1) + at, line.data(), bytes);
    });
}

}  // namespace AscendC
