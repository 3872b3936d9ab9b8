// DataCopy: contiguous and strided moves between global and local memory, and inside a core.
// Units and gaps as the vendor documents them: 32-byte blocks, strides from the tail of a block to the head of the next.
#pragma once
#include "moec_cpu/atomic.h"
#include "moec_cpu/params_vector.h"

namespace moec_cpu {

/// Global to local: checked, copied, and what the host or kernels never wrote stays "never written".
MOEC_CPU_FN void move_in(Instr& in, const GlobalRef& g, uint64_t from, const LocalRef& l, uint64_t to, uint64_t bytes)
{
    if (bytes == 0) return;
    Allocation& a = in.global(g, from, bytes, Kind::Read);
    in.write(l, to, to + bytes);
    std::memcpy(in.c.data(l.space) + to, reinterpret_cast<const uint8_t*>(from), bytes);
    uint64_t at = from - a.begin;
    if (a.all_written(at, at + bytes)) return;
    for (uint64_t i = 0; i < bytes;) {
        uint64_t j = i;
        while (j < bytes && !a.is_written(at + j)) ++j;
        if (j > i) in.taint(l.space, to + i, to + j);
        i = j + 1;
    }
}

template <typename T>
void move_out(Instr& in, const LocalRef& l, uint64_t from, const GlobalRef& g, uint64_t to, uint64_t bytes)
{
    if (bytes == 0) return;
    in.read(l, from, from + bytes);
    store_global<T>(in, g, to, in.c.data(l.space) + from, bytes);
}

struct Bursts {
    uint32_t count;
    uint64_t bytes, src_step, dst_step;
    /// One burst where nothing lies between the blocks.
    Bursts merged() const
    {
        if (count > 1 && src_step == bytes && dst_step == bytes) return {1, bytes * count, 0, 0};
        return *this;
    }
};

MOEC_CPU_FN Bursts bursts_of(const AscendC::DataCopyParams& p, Instr& in)
{
    in.require(p.blockCount <= 4095, "block count out of range", fmt("blockCount %u, at most 4095", unsigned(p.blockCount)));
    uint64_t bytes = p.blockLen * 32ULL;
    return Bursts{p.blockCount, bytes, bytes + p.srcStride * 32ULL, bytes + p.dstStride * 32ULL}.merged();
}

template <typename T>
Bursts one_burst(uint64_t count, Instr& in)
{
    uint64_t bytes = count * sizeof(T);
    in.require(bytes % 32 == 0, "copy of a ragged length",
               fmt("%llu elements are %llu bytes, no multiple of 32; use DataCopyPad for the tail",
                   static_cast<unsigned long long>(count), static_cast<unsigned long long>(bytes)));
    return {1, bytes, 0, 0};
}

MOEC_CPU_FN void copy_in(Instr& in, const LocalRef& dst, const GlobalRef& src, const Bursts& b)
{
    in.require(dst.space == UB || dst.space == L1, "copy between these memories does not exist",
               fmt("global memory to %s", space_info(dst.space).name));
    in.align(dst, "dst");
    for (uint32_t i = 0; i < b.count; ++i) move_in(in, src, src.addr + i * b.src_step, dst, dst.addr + i * b.dst_step, b.bytes);
    in.count(b.count * b.bytes);
}

template <typename T>
void copy_out(Instr& in, const GlobalRef& dst, const LocalRef& src, const Bursts& b)
{
    in.require(src.space == UB || src.space == L1, "copy between these memories does not exist",
               fmt("%s to global memory (use Fixpipe for L0C)", space_info(src.space).name));
    in.align(src, "src");
    for (uint32_t i = 0; i < b.count; ++i) move_out<T>(in, src, src.addr + i * b.src_step, dst, dst.addr + i * b.dst_step, b.bytes);
    in.count(b.count * b.bytes);
}

/// The pipe of a copy inside a core: UB to UB is a vector instruction, L1 feeds the bias table and fixpipe buffers.
MOEC_CPU_FN Pipe local_copy_pipe(Space to, Space from, Site site)
{
    if (to == UB && from == UB) return V;
    if (to == BT && from == L1) return MTE1;
    if (to == FB && from == L1) return FIX;
    refuse(site, "copy between these memories does not exist",
           fmt("DataCopy: %s to %s on NPU arch 2201", space_info(from).name, space_info(to).name));
}

/// Whole blocks move, so what was never written stays so at its new place.
MOEC_CPU_FN void copy_local(Instr& in, const LocalRef& dst, const LocalRef& src, const Bursts& b)
{
    in.align(dst, "dst");
    in.align(src, "src");
    for (uint32_t i = 0; i < b.count; ++i) {
        uint64_t from = src.addr + i * b.src_step, to = dst.addr + i * b.dst_step;
        if (b.bytes == 0) continue;
        bool hole = in.read_raw(src, from, from + b.bytes);
        in.write(dst, to, to + b.bytes);
        if (hole) in.copy_taint(src.space, from, dst.space, to, b.bytes);
        std::memmove(in.c.data(dst.space) + to, in.c.data(src.space) + from, b.bytes);
    }
    in.count(b.count * b.bytes);
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const uint32_t count, Site site = Site::here())
{
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::MTE2, "DataCopy", site);
    moec_cpu::copy_in(in, dst.ref(), src.ref(), moec_cpu::one_burst<T>(count, in));
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params, Site site = Site::here())
{
    moec_cpu::Instr in(moec_cpu::MTE2, "DataCopy", site);
    moec_cpu::copy_in(in, dst.ref(), src.ref(), moec_cpu::bursts_of(params, in));
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Site site = Site::here())
{
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::MTE3, "DataCopy", site);
    moec_cpu::copy_out<T>(in, dst.ref(), src.ref(), moec_cpu::one_burst<T>(count, in));
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site site = Site::here())
{
    moec_cpu::Instr in(moec_cpu::MTE3, "DataCopy", site);
    moec_cpu::copy_out<T>(in, dst.ref(), src.ref(), moec_cpu::bursts_of(params, in));
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Site site = Site::here())
{
    if (count == 0) return;
    moec_cpu::Instr in(moec_cpu::local_copy_pipe(dst.ref().space, src.ref().space, site), "DataCopy", site);
    moec_cpu::copy_local(in, dst.ref(), src.ref(), moec_cpu::one_burst<T>(count, in));
}

/// Also L1 to the bias table (64-byte units, C2) and to the fixpipe buffer (128-byte units).
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Site site = Site::here())
{
    using namespace moec_cpu;
    Space to = dst.ref().space;
    Instr in(local_copy_pipe(to, src.ref().space, site), "DataCopy", site);
    Bursts b = bursts_of(params, in);
    if (to != UB) {
        uint64_t unit = to == BT ? 64 : 128;
        uint64_t bytes = params.blockLen * unit;
        b = Bursts{params.blockCount, bytes, bytes + params.srcStride * 32ULL, bytes + params.dstStride * unit}.merged();
    }
    copy_local(in, dst.ref(), src.ref(), b);
}

/// Typed L1 to bias table copy: half is widened to float on the way.
template <typename T, typename U, std::enable_if_t<!std::is_same<T, U>::value, int> = 0>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<U>& src, const DataCopyParams& params, Site site = Site::here())
{
    static_assert(std::is_same<T, float>::value && std::is_same<U, half>::value,
                  "DataCopy with two types: half in L1 to float in the bias table");
    using namespace moec_cpu;
    Instr in(local_copy_pipe(dst.ref().space, src.ref().space, site), "DataCopy", site);
    in.require(dst.ref().space == BT, "copy between these memories does not exist", "half to float needs the bias table");
    uint64_t elements = params.blockLen * 64ULL / sizeof(float);
    for (uint32_t i = 0; i < params.blockCount; ++i) {
        uint64_t from = src.ref().addr + i * (elements * 2 + params.srcStride * 32ULL);
        uint64_t to = dst.ref().addr + i * (elements * 4 + params.dstStride * 64ULL);
        in.read(src.ref(), from, from + elements * 2);
        in.write(dst.ref(), to, to + elements * 4);
        for (uint64_t e = 0; e < elements; ++e) {
            store<float>(in.c.data(BT) + to + e * 4, load<half>(in.c.data(L1) + from + e * 2));
        }
    }
    in.count(params.blockCount * elements * 2);
}

}  // namespace AscendC
