// LoadData with LoadData3DParamsV2: image to column of an NC1HWC0 feature map in L1, then a rectangle of that matrix
// (rows = output positions, columns = channel block, kernel row, kernel column, channel) to L0A or L0B.
#pragma once
#include "moec_cpu/cube_load.h"

namespace moec_cpu {

/// Source byte offset of matrix element (m, k), or -1 where it falls on padding.
template <typename T>
int64_t image_offset(const AscendC::LoadData3DParamsV2<T>& p, uint32_t w_out, uint32_t m, uint32_t k)
{
    constexpr uint32_t c0 = 32 / sizeof(T);
    uint32_t fw = p.filterW + (p.filterSizeW ? 256 : 0), fh = p.filterH + (p.filterSizeH ? 256 : 0);
    uint32_t block = k / c0, point = block % (fw * fh), c1 = block / (fw * fh);
    int64_t h = static_cast<int64_t>(m / w_out) * p.strideH + (point / fw) * p.dilationFilterH - p.padList[2];
    int64_t w = static_cast<int64_t>(m % w_out) * p.strideW + (point % fw) * p.dilationFilterW - p.padList[0];
    if (h < 0 || w < 0 || h >= p.l1H || w >= p.l1W) return -1;
    return (((static_cast<int64_t>(c1) * p.l1H + h) * p.l1W + w) * c0 + k % c0) * static_cast<int64_t>(sizeof(T));
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T, const IsResetLoad3dConfig& defaultConfig = IS_RESER_LOAD3D_DEFAULT_CONFIG>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2<T>& p, Site site = Site::here())
{
    static_assert(moec_cpu::kLoadType<T>, "LoadData: an 8-, 16- or 32-bit type");
    using namespace moec_cpu;
    if (p.l1H == 0 || p.l1W == 0 || p.channelSize == 0 || p.kExtension == 0 || p.mExtension == 0) return;
    Instr in(MTE1, "LoadData", site);
    LocalRef d = dst.ref(), s = src.ref();
    check_load<T>(in, d, s);
    constexpr uint32_t c0 = 32 / sizeof(T);
    bool to_b = d.space == L0B;
    in.require(!to_b || sizeof(T) > 1, "load of this type", "LoadData3DV2 into L0B takes 16- and 32-bit types");
    in.require(to_b || !p.enTranspose || sizeof(T) > 1, "transpose of this type", "enTranspose takes 16- and 32-bit types");
    in.require(p.kStartPt % c0 == 0, "parameter out of range", fmt("kStartPt %u must be a multiple of %u", unsigned(p.kStartPt), c0));
    uint32_t fw = p.filterW + (p.filterSizeW ? 256 : 0), fh = p.filterH + (p.filterSizeH ? 256 : 0);
    int64_t span_w = (static_cast<int64_t>(fw) - 1) * p.dilationFilterW + 1, span_h = (static_cast<int64_t>(fh) - 1) * p.dilationFilterH + 1;
    int64_t w_out = (p.l1W + p.padList[0] + p.padList[1] - span_w) / (p.strideW ? unsigned(p.strideW) : 1u) + 1;
    int64_t h_out = (p.l1H + p.padList[2] + p.padList[3] - span_h) / (p.strideH ? unsigned(p.strideH) : 1u) + 1;
    in.require(w_out > 0 && h_out > 0, "empty image", "the kernel is larger than the padded feature map");
    bool turned = to_b || p.enTranspose;  // the matrix is stored with k as its rows
    uint32_t m_blocks = (p.mExtension + 15u) / 16, k_blocks = (p.kExtension + c0 - 1) / c0;
    uint64_t bytes = turned ? static_cast<uint64_t>(m_blocks) * 16 * ((p.kExtension + 15u) / 16 * 16) * sizeof(T)
                            : static_cast<uint64_t>(m_blocks) * k_blocks * kFractal;
    in.write(d, d.addr, d.addr + bytes);
    std::vector<bool> set(bytes / sizeof(T), false);
    std::vector<Span> holes;
    uint8_t *to = in.c.data(d.space) + d.addr, *from = in.c.data(L1);
    uint32_t n_blocks16 = (p.kExtension + 15u) / 16, m_strips = m_blocks * 16 / c0;
    for (uint32_t m = 0; m < p.mExtension; ++m) {
        for (uint32_t kb = 0; kb < k_blocks; ++kb) {
            uint32_t take = std::min<uint32_t>(c0, p.kExtension - kb * c0);
            bool inside = m + p.mStartPt < w_out * h_out;
            int64_t at = inside ? image_offset(p, static_cast<uint32_t>(w_out), m + p.mStartPt, p.kStartPt + kb * c0) : -1;
            bool hole = at >= 0 && in.read_raw(s, s.addr + at, s.addr + at + take * sizeof(T));
            for (uint32_t j = 0; j < take; ++j) {
                uint32_t k = kb * c0 + j;
                uint64_t place;
                if (!turned) place = (static_cast<uint64_t>(m / 16) * k_blocks + kb) * (16 * c0) + (m % 16) * c0 + j;
                else if (to_b) place = (static_cast<uint64_t>(m / c0) * n_blocks16 + k / 16) * (16 * c0) + (k % 16) * c0 + m % c0;
                else place = (static_cast<uint64_t>(k / 16) * m_strips + m / c0) * (16 * c0) + (k % 16) * c0 + m % c0;
                T value = at >= 0 ? load<T>(from + s.addr + at + j * sizeof(T)) : p.padValue;
                store<T>(to + place * sizeof(T), value);
                set[place] = inside && !hole;
            }
        }
    }
    for (uint64_t e = 0; e < set.size();) {
        uint64_t f = e;
        while (f < set.size() && !set[f]) ++f;
        if (f > e) in.taint(d.space, d.addr + e * sizeof(T), d.addr + f * sizeof(T));
        e = f + 1;
    }
    in.count(static_cast<uint64_t>(m_blocks) * k_blocks * kFractal);
}

}  // namespace AscendC
