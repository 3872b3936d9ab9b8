// Layout inside UB: Transpose of 16x16 squares and TransDataTo5HD over 16 block addresses.
#pragma once
#include "moec_cpu/vec_arith.h"

namespace moec_cpu {

/// One repeat of TransDataTo5HD. 16-bit: dst[i] takes element i of the 16 sources. 32-bit: dst[2i] and dst[2i+1] take
/// element i of sources 0..7 and 8..15. 8-bit: dst[i] takes byte i of the chosen half, into the chosen half.
template <typename T>
void turn_blocks(const uint8_t (&in)[16][32], uint8_t (&out)[16][32], bool dst_high, bool src_high)
{
    for (uint32_t i = 0; i < 16; ++i) {
        for (uint32_t j = 0; j < 16; ++j) {
            if (sizeof(T) == 2) std::memcpy(out[i] + j * 2, in[j] + i * 2, 2);
            else if (sizeof(T) == 1) out[i][(dst_high ? 16 : 0) + j] = in[j][(src_high ? 16 : 0) + i];
            else if (i < 8) std::memcpy(out[2 * i + j / 8] + (j % 8) * 4, in[j] + i * 4, 4);
        }
    }
}

template <typename T>
void trans_data(Instr& in, const LocalRef (&dst)[16], const LocalRef (&src)[16], const AscendC::TransDataTo5HDParams& p)
{
    for (uint32_t r = 0; r < p.repeatTimes; ++r) {
        // a single repeat starts one stride further (CANN asc-devkit docs, TransDataTo5HD)
        uint64_t k = p.repeatTimes == 1 ? 1 : r;
        uint8_t from[16][32], to[16][32];
        uint8_t* ub = in.c.data(UB);
        for (int i = 0; i < 16; ++i) {
            uint64_t a = src[i].addr + k * p.srcRepStride * 32;
            uint32_t half_block = sizeof(T) == 1 ? 16 : 32, skip = sizeof(T) == 1 && p.srcHighHalf ? 16 : 0;
            in.align(src[i], "a source block");
            in.read(src[i], a + skip, a + skip + half_block);
            std::memcpy(from[i], ub + a, 32);
            std::memcpy(to[i], ub + dst[i].addr + k * p.dstRepStride * 32, 32);
        }
        turn_blocks<T>(from, to, p.dstHighHalf, p.srcHighHalf);
        for (int i = 0; i < 16; ++i) {
            uint64_t b = dst[i].addr + k * p.dstRepStride * 32;
            uint32_t half_block = sizeof(T) == 1 ? 16 : 32, skip = sizeof(T) == 1 && p.dstHighHalf ? 16 : 0;
            in.align(dst[i], "a destination block");
            in.write(dst[i], b + skip, b + skip + half_block);
            std::memcpy(ub + b + skip, to[i] + skip, half_block);
        }
    }
    in.count(p.repeatTimes * 512ULL, p.repeatTimes);
}

template <typename T>
constexpr bool kTransType = one_of<T, int8_t, uint8_t, int16_t, uint16_t, half, int32_t, uint32_t, float>;

}  // namespace moec_cpu

namespace AscendC {

template <typename T>
void Transpose(const LocalTensor<T>& dst, const LocalTensor<T>& src, Site site = Site::here())
{
    static_assert(moec_cpu::one_of<T, half, int16_t, uint16_t>, "Transpose: a 16-bit type, 16 x 16");
    using namespace moec_cpu;
    Instr in(V, "Transpose", site);
    LocalRef d = dst.ref(), s = src.ref();
    check_operand(in, operand(dst, 1, 8, "dst"));
    check_operand(in, operand(src, 1, 8, "src"));
    in.read(s, s.addr, s.addr + 512);
    in.write(d, d.addr, d.addr + 512);
    uint16_t block[256];
    uint8_t* ub = in.c.data(UB);
    std::memcpy(block, ub + s.addr, 512);
    for (uint32_t i = 0; i < 256; ++i) store<uint16_t>(ub + d.addr + (i % 16 * 16 + i / 16) * 2, block[i]);
    in.count(512, 1);
}

template <typename T>
void TransDataTo5HD(const LocalTensor<T> (&dstList)[NCHW_CONV_ADDR_LIST_SIZE], const LocalTensor<T> (&srcList)[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams& params, Site site = Site::here())
{
    static_assert(moec_cpu::kTransType<T>, "TransDataTo5HD: an 8-, 16- or 32-bit type");
    using namespace moec_cpu;
    if (params.repeatTimes == 0) return;
    Instr in(V, "TransDataTo5HD", site);
    LocalRef d[16], s[16];
    for (int i = 0; i < 16; ++i) {
        d[i] = dstList[i].ref();
        s[i] = srcList[i].ref();
    }
    trans_data<T>(in, d, s, params);
}

/// Addresses as GetPhyAddr gives them.
template <typename T>
void TransDataTo5HD(uint64_t dstList[NCHW_CONV_ADDR_LIST_SIZE], uint64_t srcList[NCHW_CONV_ADDR_LIST_SIZE],
                    const TransDataTo5HDParams& params, Site site = Site::here())
{
    static_assert(moec_cpu::kTransType<T>, "TransDataTo5HD: an 8-, 16- or 32-bit type");
    using namespace moec_cpu;
    if (params.repeatTimes == 0) return;
    Instr in(V, "TransDataTo5HD", site);
    LocalRef d[16], s[16];
    for (int i = 0; i < 16; ++i) {
        d[i] = {UB, static_cast<uint32_t>(dstList[i]), 0, space_info(UB).bytes};
        s[i] = {UB, static_cast<uint32_t>(srcList[i]), 0, space_info(UB).bytes};
    }
    trans_data<T>(in, d, s, params);
}

}  // namespace AscendC
