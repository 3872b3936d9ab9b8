// DataCopyPad: rows of any byte length between global memory and UB, padded to 32-byte blocks on the UB side.
#pragma once
#include "moec_cpu/copy.h"

namespace moec_cpu {

struct PadRows {
    uint32_t count;
    uint64_t bytes;       // payload of a row
    uint64_t gm_gap;      // bytes between rows in global memory
    uint64_t ub_gap;      // blocks between rows in UB
    bool pad = false;
    uint32_t left = 0, right = 0;  // elements
};

template <typename T>
void check_rows(Instr& in, const PadRows& r)
{
    in.require(r.count <= 4095, "block count out of range", fmt("blockCount %u, at most 4095", r.count));
    in.require(r.bytes <= 2097151, "block length out of range",
               fmt("blockLen %llu bytes, at most 2097151", static_cast<unsigned long long>(r.bytes)));
    in.require(r.bytes % sizeof(T) == 0, "block length no multiple of the element",
               fmt("blockLen is in bytes: %llu is no multiple of %zu", static_cast<unsigned long long>(r.bytes), sizeof(T)));
    in.require(r.left * sizeof(T) <= 32 && r.right * sizeof(T) <= 32, "padding too long",
               fmt("leftPadding %u and rightPadding %u elements: at most 32 bytes each", r.left, r.right));
}

/// Rows into UB. The ragged rest of a row's last block is written only when padding is asked for.
template <typename T>
void pad_in(Instr& in, const LocalRef& dst, const GlobalRef& src, const PadRows& r, T value)
{
    in.require(dst.space == UB || dst.space == L1, "copy between these memories does not exist",
               fmt("DataCopyPad into %s", space_info(dst.space).name));
    in.align(dst, "dst");
    check_rows<T>(in, r);
    bool skip = masked("pad", in.site());
    uint64_t left = r.pad ? r.left * sizeof(T) : 0, right = r.pad ? r.right * sizeof(T) : 0;
    uint64_t row = (left + r.bytes + right + 31) / 32 * 32;
    uint64_t gap = dst.space == UB ? r.ub_gap * 32 : r.ub_gap * 32;
    uint8_t* base = in.c.data(dst.space);
    for (uint32_t i = 0; i < r.count && r.bytes; ++i) {
        uint64_t to = dst.addr + i * (row + gap), body = to + left, end = body + r.bytes;
        if (end > to + left) {
            if (row > left + r.bytes || left) in.write(dst, to, to + row);
            move_in(in, src, src.addr + i * (r.bytes + r.gm_gap), dst, body, r.bytes);
        }
        bool filled = r.pad && (left || right) && !skip;
        if (filled) {
            for (uint64_t b = to; b < body; b += sizeof(T)) store<T>(base + b, value);
            for (uint64_t b = end; b + sizeof(T) <= to + row; b += sizeof(T)) store<T>(base + b, value);
        } else {
            if (left) in.taint(dst.space, to, body);
            if (to + row > end) in.taint(dst.space, end, to + row);
            std::memset(base + to, 0xff, left);
            std::memset(base + end, 0xff, to + row - end);
        }
    }
    in.count(r.count * r.bytes);
}

/// Rows out of UB; `pad` masked: whole blocks are stored, as a plain copy would.
template <typename T>
void pad_out(Instr& in, const GlobalRef& dst, const LocalRef& src, const PadRows& r)
{
    in.require(src.space == UB || src.space == L1, "copy between these memories does not exist",
               fmt("DataCopyPad out of %s", space_info(src.space).name));
    in.align(src, "src");
    check_rows<T>(in, r);
    uint64_t row = (r.bytes + 31) / 32 * 32;
    bool whole = masked("pad", in.site());
    for (uint32_t i = 0; i < r.count; ++i) {
        move_out<T>(in, src, src.addr + i * (row + r.ub_gap * 32), dst, dst.addr + i * (r.bytes + r.gm_gap), whole ? row : r.bytes);
    }
    in.count(r.count * r.bytes);
}

template <typename P>
PadRows rows_in(const P& p, bool pad, uint32_t left, uint32_t right)
{
    return {p.blockCount, p.blockLen, p.srcStride, p.dstStride, pad, left, right};
}

template <typename P>
PadRows rows_out(const P& p)
{
    return {p.blockCount, p.blockLen, p.dstStride, p.srcStride};
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& params,
                 const DataCopyPadExtParams<T>& pad, Site site = Site::here())
{
    moec_cpu::Instr in(moec_cpu::MTE2, "DataCopyPad", site);
    moec_cpu::pad_in<T>(in, dst.ref(), src.ref(), moec_cpu::rows_in(params, pad.isPad, pad.leftPadding, pad.rightPadding),
                        pad.paddingValue);
}

template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params,
                 const DataCopyPadParams& pad, Site site = Site::here())
{
    moec_cpu::Instr in(moec_cpu::MTE2, "DataCopyPad", site);
    T value;
    std::memcpy(&value, &pad.paddingValue, sizeof(T));
    moec_cpu::pad_in<T>(in, dst.ref(), src.ref(), moec_cpu::rows_in(params, pad.isPad, pad.leftPadding, pad.rightPadding),
                        value);
}

template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& params,
                 Site site = Site::here())
{
    moec_cpu::Instr in(moec_cpu::MTE3, "DataCopyPad", site);
    moec_cpu::pad_out<T>(in, dst.ref(), src.ref(), moec_cpu::rows_out(params));
}

template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params,
                 Site site = Site::here())
{
    moec_cpu::Instr in(moec_cpu::MTE3, "DataCopyPad", site);
    moec_cpu::pad_out<T>(in, dst.ref(), src.ref(), moec_cpu::rows_out(params));
}

/// Sets the register that DataCopyPad takes its filling from when isPad is false. The model keeps such filling
/// "never written": the documents disagree on when the register applies.
template <typename T, TPosition pos = TPosition::MAX>
void SetPadValue(T paddingValue, Site site = Site::here())
{
    std::memcpy(&moec_cpu::core(site).pad_bits, &paddingValue, sizeof(T));
}

}  // namespace AscendC
