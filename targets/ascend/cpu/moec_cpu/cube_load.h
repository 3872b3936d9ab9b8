// LoadData (2D and 3DV2) and LoadDataWithTranspose: fractals of 512 bytes from L1 (or global memory) to L0A and L0B.
// A fractal is 16 rows of 32 bytes; c0 = 32 / sizeof(T). Whole fractals move, so unwritten bytes stay unwritten.
#pragma once
#include "moec_cpu/copy.h"
#include "moec_cpu/params_cube.h"

namespace moec_cpu {

constexpr uint32_t kFractal = 512;

/// For every byte of [begin, begin+bytes): true where nothing was written.
MOEC_CPU_FN std::vector<bool> holes_of(Instr& in, Space s, uint64_t begin, uint64_t bytes)
{
    std::vector<bool> hole(bytes, false);
    auto fill = [&](uint64_t a, uint64_t b) { for (uint64_t i = a; i < b; ++i) hole[i - begin] = true; };
    uint64_t at = begin;
    in.c.shadow[s].visit(
        begin, begin + bytes,
        [&](Interval& i) {
            uint64_t e = std::min(i.end, begin + bytes);
            if (!i.written) fill(at, e);
            at = e;
        },
        [&](uint64_t a, uint64_t b) { fill(a, b); at = b; });
    return hole;
}

template <typename T>
void check_load(Instr& in, const LocalRef& dst, const LocalRef& src)
{
    in.require(dst.space == L0A || dst.space == L0B, "load into the wrong memory",
               fmt("dst is in %s, LoadData goes to L0A (A2) or L0B (B2)", space_info(dst.space).name));
    in.require(src.space == L1, "load from the wrong memory", fmt("src is in %s, not in L1", space_info(src.space).name));
    in.align(dst, "dst");
    in.align(src, "src");
}

template <typename T>
constexpr bool kLoadType = std::is_arithmetic<T>::value && sizeof(T) <= 4;
template <>
constexpr bool kLoadType<half> = true;
template <>
constexpr bool kLoadType<bfloat16_t> = true;

/// Element (r, c) of a square of `n` x `n`, transposed into fractals of 16 rows.
template <typename T>
void transpose_square(const T* src, uint8_t* dst, uint64_t fractal_step)
{
    constexpr uint32_t c0 = 32 / sizeof(T), n = c0 > 16 ? c0 : 16, parts = n * n * sizeof(T) / kFractal;
    for (uint32_t f = 0; f < parts; ++f) {
        T* out = reinterpret_cast<T*>(dst + f * fractal_step);
        for (uint32_t i = 0; i < 16; ++i) {
            for (uint32_t j = 0; j < c0; ++j) {
                // row and column of the transposed square that this place of fractal f holds
                uint32_t row = c0 > 16 ? f * 16 + i : i, col = c0 < 16 ? f * c0 + j : j;
                uint32_t sr = col, sc = row;  // in the source square
                uint32_t at = c0 < 16 ? (sc / c0) * (16 * c0) + sr * c0 + sc % c0 : sr * n + sc;
                out[i * c0 + j] = src[at];
            }
        }
    }
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2DParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::kLoadType<T>, "LoadData: an 8-, 16- or 32-bit type");
    using namespace moec_cpu;
    if (p.repeatTimes == 0) return;
    Instr in(MTE1, "LoadData", site);
    LocalRef d = dst.ref(), s = src.ref();
    check_load<T>(in, d, s);
    if (p.ifTranspose) {
        in.require(sizeof(T) == 2, "transpose of this type", "LoadData2DParams.ifTranspose works on 16-bit types; use LoadDataWithTranspose");
    }
    uint64_t step = (p.dstGap + 1ULL) * kFractal;
    if (p.dstGap == 0) in.write(d, d.addr, d.addr + static_cast<uint64_t>(p.repeatTimes) * kFractal);
    uint8_t *to = in.c.data(d.space), *from = in.c.data(L1);
    for (uint32_t i = 0; i < p.repeatTimes; ++i) {
        uint64_t index = p.addrMode == 0 ? p.startIndex + static_cast<uint64_t>(i) * p.srcStride
                                         : p.startIndex - static_cast<uint64_t>(i) * p.srcStride;
        uint64_t a = s.addr + index * kFractal, b = d.addr + i * step;
        if (p.dstGap != 0) in.write(d, b, b + kFractal);
        bool hole = in.read_raw(s, a, a + kFractal);
        if (!p.ifTranspose) {
            std::memcpy(to + b, from + a, kFractal);
            if (hole) in.copy_taint(L1, a, d.space, b, kFractal);
            continue;
        }
        const uint16_t* x = reinterpret_cast<const uint16_t*>(from + a);
        uint16_t* y = reinterpret_cast<uint16_t*>(to + b);
        for (int r = 0; r < 16; ++r) {
            for (int c = 0; c < 16; ++c) y[c * 16 + r] = x[r * 16 + c];
        }
        if (!hole) continue;
        std::vector<bool> h = holes_of(in, L1, a, kFractal);
        for (uint64_t e = 0; e < 256; ++e) {
            uint64_t t = b + ((e % 16) * 16 + e / 16) * 2;
            if (h[e * 2]) in.taint(d.space, t, t + 2);
        }
    }
    in.count(static_cast<uint64_t>(p.repeatTimes) * kFractal);
}

template <typename T>
void LoadData(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const LoadData2DParams& p, Site site = Site::here())
{
    static_assert(moec_cpu::kLoadType<T>, "LoadData: an 8-, 16- or 32-bit type");
    using namespace moec_cpu;
    if (p.repeatTimes == 0) return;
    Instr in(MTE2, "LoadData", site);
    LocalRef d = dst.ref();
    in.require(d.space == L0A || d.space == L0B || d.space == L1, "load into the wrong memory",
               "LoadData from global memory goes to L1, L0A or L0B");
    in.require(!p.ifTranspose, "transpose from global memory", "ifTranspose needs a source in L1");
    in.align(d, "dst");
    for (uint32_t i = 0; i < p.repeatTimes; ++i) {
        uint64_t index = p.addrMode == 0 ? p.startIndex + static_cast<uint64_t>(i) * p.srcStride
                                         : p.startIndex - static_cast<uint64_t>(i) * p.srcStride;
        move_in(in, src.ref(), src.ref().addr + index * kFractal, d, d.addr + i * (p.dstGap + 1ULL) * kFractal, kFractal);
    }
    in.count(static_cast<uint64_t>(p.repeatTimes) * kFractal);
}

/// Squares of 16x16 (16- and 32-bit) or 32x32 (8-bit), each transposed. A 32-bit square is two adjacent 16x8 fractals.
template <typename T>
void LoadDataWithTranspose(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData2dTransposeParams& p,
                           Site site = Site::here())
{
    static_assert(moec_cpu::kLoadType<T>, "LoadDataWithTranspose: an 8-, 16- or 32-bit type");
    using namespace moec_cpu;
    if (p.repeatTimes == 0) return;
    Instr in(MTE1, "LoadDataWithTranspose", site);
    LocalRef d = dst.ref(), s = src.ref();
    check_load<T>(in, d, s);
    constexpr uint64_t square = sizeof(T) == 2 ? kFractal : 2 * kFractal;
    constexpr uint32_t parts = square / kFractal;
    uint64_t fractal_step = (p.dstFracGap + 1ULL) * kFractal;
    for (uint32_t i = 0; i < p.repeatTimes; ++i) {
        uint64_t index = p.addrMode == 0 ? p.startIndex + static_cast<uint64_t>(i) * p.srcStride
                                         : p.startIndex - static_cast<uint64_t>(i) * p.srcStride;
        uint64_t a = s.addr + index * square, b = d.addr + i * (p.dstGap + 1ULL) * kFractal;
        bool hole = in.read_raw(s, a, a + square);
        for (uint32_t f = 0; f < parts; ++f) in.write(d, b + f * fractal_step, b + f * fractal_step + kFractal);
        const T* x = reinterpret_cast<const T*>(in.c.data(L1) + a);
        transpose_square<T>(x, in.c.data(d.space) + b, fractal_step);
        if (!hole) continue;
        std::vector<bool> h = holes_of(in, L1, a, square);
        std::vector<T> marks(square / sizeof(T));
        for (size_t e = 0; e < marks.size(); ++e) marks[e] = static_cast<T>(h[e * sizeof(T)] ? 1 : 0);
        std::vector<uint8_t> out(parts * kFractal);
        transpose_square<T>(marks.data(), out.data(), kFractal);
        for (uint32_t e = 0; e < marks.size(); ++e) {
            if (static_cast<float>(load<T>(out.data() + e * sizeof(T))) == 0) continue;
            uint64_t t = b + (e * sizeof(T) / kFractal) * fractal_step + e * sizeof(T) % kFractal;
            in.taint(d.space, t, t + sizeof(T));
        }
    }
    in.count(static_cast<uint64_t>(p.repeatTimes) * square);
}

}  // namespace AscendC
