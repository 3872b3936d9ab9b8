// Mmad: C[m,n] (+)= A[m,k] * B[k,n]. A lies in L0A as zZ, B in L0B as nZ, C in L0C as NZ with 16x16 blocks.
// Sums run over k in order, in float (int32 for int8).
#pragma once
#include "moec_cpu/cube_load.h"

namespace moec_cpu {

typedef float f32x4 __attribute__((vector_size(16)));

/// HF32: float rounded to 11 bits of mantissa, to nearest even.
MOEC_CPU_FN float to_hf32(float f)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7f800000u) == 0x7f800000u) return f;
    return float_of((u + 0x7ffu + ((u >> 12) & 1u)) & ~0xfffu);
}

template <typename T>
float cube_value(const uint8_t* p, bool hf32)
{
    float f = static_cast<float>(load<T>(p));
    if constexpr (std::is_same<T, float>::value) return hf32 ? to_hf32(f) : f;
    return f;
}

struct MmadShape {
    uint32_t m, n, k, m_blocks, n_blocks, k_blocks, c0;
    bool vector;  // m == 1: A is read as a plain row
};

template <typename T>
MmadShape mmad_shape(const AscendC::MmadParams& p)
{
    constexpr uint32_t c0 = 32 / sizeof(T);
    uint32_t kb = (p.k + c0 - 1) / c0;
    if (p.kDirectionAlign && sizeof(T) == 4) kb = (p.k + 15u) / 16 * 2;
    return {p.m, p.n, p.k, (p.m + 15u) / 16, (p.n + 15u) / 16, kb, c0, p.m == 1};
}

/// Reads exactly the elements that take part: rows below m and n, and k columns.
template <typename T>
void mmad_reads(Instr& in, const LocalRef& a, const LocalRef& b, const MmadShape& s)
{
    auto strip = [&](const LocalRef& r, uint64_t base, uint32_t rows, uint32_t columns) {
        if (columns == s.c0) {
            in.read(r, base, base + rows * 32ULL);
            return;
        }
        for (uint32_t i = 0; i < rows; ++i) in.read(r, base + i * 32ULL, base + i * 32ULL + columns * sizeof(T));
    };
    if (s.vector) {
        in.read(a, a.addr, a.addr + s.k * sizeof(T));
    } else if (s.m % 16 == 0 && s.k % s.c0 == 0 && s.k / s.c0 == s.k_blocks) {
        in.read(a, a.addr, a.addr + static_cast<uint64_t>(s.m_blocks) * s.k_blocks * kFractal);
    } else {
        for (uint32_t i = 0; i < s.m_blocks; ++i) {
            for (uint32_t j = 0; j * s.c0 < s.k; ++j) {
                strip(a, a.addr + (static_cast<uint64_t>(i) * s.k_blocks + j) * kFractal, std::min(16u, s.m - i * 16), std::min(s.c0, s.k - j * s.c0));
            }
        }
    }
    if (s.n % 16 == 0 && s.k % s.c0 == 0) {
        in.read(b, b.addr, b.addr + static_cast<uint64_t>(s.k / s.c0) * s.n_blocks * kFractal);
        return;
    }
    for (uint32_t j = 0; j * s.c0 < s.k; ++j) {
        for (uint32_t i = 0; i < s.n_blocks; ++i) {
            strip(b, b.addr + (static_cast<uint64_t>(j) * s.n_blocks + i) * kFractal, std::min(16u, s.n - i * 16), std::min(s.c0, s.k - j * s.c0));
        }
    }
}

/// The valid part of C, block column by block column.
template <typename Fn>
void each_result(const LocalRef& c, const MmadShape& s, Fn fn)
{
    for (uint32_t j = 0; j < s.n_blocks; ++j) {
        uint64_t base = c.addr + static_cast<uint64_t>(j) * s.m_blocks * 1024;
        uint32_t columns = std::min(16u, s.n - j * 16);
        if (columns == 16) {
            fn(base, base + s.m * 64ULL);
        } else {
            for (uint32_t i = 0; i < s.m; ++i) fn(base + i * 64ULL, base + i * 64ULL + columns * 4);
        }
    }
}

template <typename T>
void multiply_float(Core& core, const LocalRef& c, const LocalRef& a, const LocalRef& b, const MmadShape& s)
{
    static std::vector<float> left, right;
    left.resize(static_cast<size_t>(s.m) * s.k);
    right.assign(static_cast<size_t>(s.k) * 16, 0.0f);
    const uint8_t *pa = core.data(L0A) + a.addr, *pb = core.data(L0B) + b.addr;
    for (uint32_t i = 0; i < s.m; ++i) {
        for (uint32_t k = 0; k < s.k; ++k) {
            uint64_t at = s.vector ? k : (static_cast<uint64_t>(i / 16) * s.k_blocks + k / s.c0) * 16 * s.c0 + (i % 16) * s.c0 + k % s.c0;
            left[static_cast<size_t>(i) * s.k + k] = cube_value<T>(pa + at * sizeof(T), core.hf32);
        }
    }
    float* out = reinterpret_cast<float*>(core.data(L0C) + c.addr);
    for (uint32_t j = 0; j < s.n_blocks; ++j) {
        uint32_t columns = std::min(16u, s.n - j * 16);
        for (uint32_t k = 0; k < s.k; ++k) {
            uint64_t block = (static_cast<uint64_t>(k / s.c0) * s.n_blocks + j) * 16 * s.c0 + k % s.c0;
            for (uint32_t n = 0; n < columns; ++n) {
                right[k * 16 + n] = cube_value<T>(pb + (block + n * s.c0) * sizeof(T), core.hf32);
            }
        }
        for (uint32_t i = 0; i < s.m; ++i) {
            float* row = out + (static_cast<size_t>(j) * s.m_blocks * 16 + i) * 16;
            f32x4 sum[4];
            std::memcpy(sum, row, sizeof sum);
            const float* l = left.data() + static_cast<size_t>(i) * s.k;
            const float* r = right.data();
            for (uint32_t k = 0; k < s.k; ++k, r += 16) {
                f32x4 v[4];
                std::memcpy(v, r, sizeof v);
                for (int q = 0; q < 4; ++q) sum[q] += l[k] * v[q];
            }
            std::memcpy(row, sum, columns * sizeof(float));
        }
    }
}

MOEC_CPU_FN void multiply_int8(Core& core, const LocalRef& c, const LocalRef& a, const LocalRef& b, const MmadShape& s)
{
    const int8_t *pa = reinterpret_cast<int8_t*>(core.data(L0A) + a.addr), *pb = reinterpret_cast<int8_t*>(core.data(L0B) + b.addr);
    int32_t* out = reinterpret_cast<int32_t*>(core.data(L0C) + c.addr);
    for (uint32_t i = 0; i < s.m; ++i) {
        for (uint32_t n = 0; n < s.n; ++n) {
            int32_t sum = 0;
            for (uint32_t k = 0; k < s.k; ++k) {
                uint64_t at = s.vector ? k : (static_cast<uint64_t>(i / 16) * s.k_blocks + k / 32) * 512 + (i % 16) * 32 + k % 32;
                sum += pa[at] * pb[(static_cast<uint64_t>(k / 32) * s.n_blocks + n / 16) * 512 + (n % 16) * 32 + k % 32];
            }
            out[(static_cast<size_t>(n / 16) * s.m_blocks * 16 + i) * 16 + n % 16] += sum;
        }
    }
}

enum class CStart { Zero, Keep, Bias };

template <typename C, typename T>
void mmad(const LocalRef& c, const LocalRef& a, const LocalRef& b, const LocalRef* bias, const AscendC::MmadParams& p, Site site)
{
    if (p.m == 0 || p.n == 0 || p.k == 0) return;
    Instr in(M, "Mmad", site);
    in.require(c.space == L0C && a.space == L0A && b.space == L0B, "operand in the wrong memory", "C in L0C (CO1), A in L0A (A2), B in L0B (B2)");
    in.require(p.m <= 4095 && p.n <= 4095 && p.k <= 4095, "shape out of range", fmt("m %u, n %u, k %u: at most 4095", unsigned(p.m), unsigned(p.n), unsigned(p.k)));
    in.require(p.unitFlag == 0 || p.unitFlag == 2 || p.unitFlag == 3, "parameter out of range", "unitFlag is 0, 2 or 3");
    in.align(c, 1024, "C");
    in.align(a, "A");
    in.align(b, "B");
    MmadShape s = mmad_shape<T>(p);
    in.relaxed_same_pipe(s.m_blocks * s.n_blocks >= 10);  // larger ones need no PipeBarrier<PIPE_M> (vendor's Mmad page)
    const LocalRef table{BT, 0, 0, space_info(BT).bytes};
    if (!bias && p.cmatrixSource && !p.cmatrixInitVal) bias = &table;  // without an operand: the start of the bias table
    CStart start = bias ? CStart::Bias : (p.cmatrixInitVal && !p.isBias ? CStart::Zero : CStart::Keep);
    if (p.unitFlag) in.c.clock[M].join(in.c.unit_fix);
    mmad_reads<T>(in, a, b, s);
    if (start == CStart::Keep) each_result(c, s, [&](uint64_t x, uint64_t y) { in.read(c, x, y); });
    bool bias_hole = false;
    if (bias) {
        in.require(bias->space == BT, "operand in the wrong memory", "the bias lies in the bias table (C2)");
        in.align(*bias, "bias");
        bias_hole = in.read_raw(*bias, bias->addr, bias->addr + s.n * 4ULL);
    }
    // whole 16x16 blocks are stored; only m x n of them holds results
    in.write(c, c.addr, c.addr + static_cast<uint64_t>(s.n_blocks) * s.m_blocks * 1024, false);
    each_result(c, s, [&](uint64_t x, uint64_t y) { in.write(c, x, y); });
    if (bias_hole) {  // the table is filled in 64-byte units: columns past its data hold nothing
        std::vector<bool> h = holes_of(in, BT, bias->addr, s.n * 4ULL);
        for (uint32_t n = 0; n < s.n; ++n) {
            uint64_t at = c.addr + (static_cast<uint64_t>(n / 16) * s.m_blocks * 16 * 16 + n % 16) * 4;
            for (uint32_t i = 0; h[n * 4] && i < s.m; ++i) in.taint(L0C, at + i * 64ULL, at + i * 64ULL + 4);
        }
    }
    C* out = reinterpret_cast<C*>(in.c.data(L0C) + c.addr);
    if (start != CStart::Keep) {
        const C* row = bias ? reinterpret_cast<const C*>(in.c.data(BT) + bias->addr) : nullptr;
        for (uint32_t j = 0; j < s.n_blocks; ++j) {
            for (uint32_t i = 0; i < s.m; ++i) {
                for (uint32_t n = 0; n < std::min(16u, s.n - j * 16); ++n) {
                    out[(static_cast<size_t>(j) * s.m_blocks * 16 + i) * 16 + n] = row ? row[j * 16 + n] : C(0);
                }
            }
        }
    }
    if constexpr (std::is_same<T, int8_t>::value) multiply_int8(in.c, c, a, b, s);
    else multiply_float<T>(in.c, c, a, b, s);
    if (p.unitFlag) {
        in.c.unit_mmad = snapshot(in.c, M);
        in.c.unit_ready = p.unitFlag == 3;
    }
    in.count((static_cast<uint64_t>(s.m) + s.n) * s.k * sizeof(T), 0, static_cast<uint64_t>(s.m) * s.n * s.k);
}

}  // namespace moec_cpu

namespace AscendC {

template <typename D, typename A, typename B>
constexpr bool kMmadTypes = std::is_same<A, B>::value &&
                            ((std::is_same<D, int32_t>::value && std::is_same<A, int8_t>::value) ||
                             (std::is_same<D, float>::value && (std::is_same<A, half>::value || std::is_same<A, float>::value ||
                                                                std::is_same<A, bfloat16_t>::value)));

template <typename DstT, typename Src0T, typename Src1T>
void Mmad(const LocalTensor<DstT>& dst, const LocalTensor<Src0T>& fm, const LocalTensor<Src1T>& filter, const MmadParams& params,
          Site site = Site::here())
{
    static_assert(kMmadTypes<DstT, Src0T, Src1T>, "Mmad: half, bfloat16_t or float to float, int8_t to int32_t");
    moec_cpu::mmad<DstT, Src0T>(dst.ref(), fm.ref(), filter.ref(), nullptr, params, site);
}

template <typename DstT, typename Src0T, typename Src1T, typename BiasT>
void Mmad(const LocalTensor<DstT>& dst, const LocalTensor<Src0T>& fm, const LocalTensor<Src1T>& filter,
          const LocalTensor<BiasT>& bias, const MmadParams& params, Site site = Site::here())
{
    static_assert(kMmadTypes<DstT, Src0T, Src1T>, "Mmad: half, bfloat16_t or float to float, int8_t to int32_t");
    static_assert(std::is_same<DstT, BiasT>::value, "Mmad: the bias has the type of the result");
    moec_cpu::mmad<DstT, Src0T>(dst.ref(), fm.ref(), filter.ref(), &bias.ref(), params, site);
}

MOEC_CPU_FN void SetHF32Mode(bool hf32Mode, Site site = Site::here()) { moec_cpu::core(site).hf32 = hf32Mode; }

}  // namespace AscendC
