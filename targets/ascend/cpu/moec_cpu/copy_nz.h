// DataCopy with Nd2NzParams: row-major global memory to NZ (column strips of 32 bytes) in L1.
#pragma once
#include "moec_cpu/copy.h"

namespace AscendC {

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const Nd2NzParams& p, Site site = Site::here())
{
    using namespace moec_cpu;
    Instr in(MTE2, "Nd2Nz", site);
    const LocalRef& to = dst.ref();
    in.require(to.space == L1, "copy between these memories does not exist", "Nd2Nz goes from global memory to L1");
    in.align(to, "dst");
    auto limit = [&](const char* name, uint32_t v, uint32_t low, uint32_t high) {
        in.require(v >= low && v <= high, "parameter out of range", fmt("%s %u must be %u..%u", name, v, low, high));
    };
    if (p.ndNum == 0 || p.nValue == 0 || p.dValue == 0) return;
    limit("ndNum", p.ndNum, 0, 4095);
    limit("nValue", p.nValue, 0, 16384);
    limit("srcDValue", p.srcDValue, 1, 65535);
    limit("dstNzC0Stride", p.dstNzC0Stride, 1, 16384);
    limit("dstNzNStride", p.dstNzNStride, 1, 16384);
    constexpr uint32_t c0 = 32 / sizeof(T);
    uint32_t strips = (p.dValue + c0 - 1) / c0;
    uint8_t* base = in.c.data(L1);
    std::vector<Span> holes;
    for (uint32_t m = 0; m < p.ndNum; ++m) {
        uint64_t from = src.ref().addr + static_cast<uint64_t>(m) * p.srcNdMatrixStride * sizeof(T);
        uint64_t at = to.addr + static_cast<uint64_t>(m) * p.dstNzMatrixStride * sizeof(T);
        for (uint32_t s = 0; s < strips; ++s) {
            uint64_t strip = at + static_cast<uint64_t>(s) * p.dstNzC0Stride * 32;
            if (p.dstNzNStride == 1) {
                in.write(to, strip, strip + p.nValue * 32ULL);
            } else {
                for (uint32_t n = 0; n < p.nValue; ++n) {
                    uint64_t row = strip + static_cast<uint64_t>(n) * p.dstNzNStride * 32;
                    in.write(to, row, row + 32);
                }
            }
        }
        for (uint32_t n = 0; n < p.nValue; ++n) {
            uint64_t row = from + static_cast<uint64_t>(n) * p.srcDValue * sizeof(T);
            uint64_t bytes = p.dValue * sizeof(T);
            Allocation& a = in.global(src.ref(), row, bytes, Kind::Read);
            bool clean = a.all_written(row - a.begin, row - a.begin + bytes);
            for (uint32_t s = 0; s < strips; ++s) {
                uint64_t cell = at + (static_cast<uint64_t>(s) * p.dstNzC0Stride + static_cast<uint64_t>(n) * p.dstNzNStride) * 32;
                uint64_t take = std::min<uint64_t>(32, bytes - s * 32ULL);
                std::memcpy(base + cell, reinterpret_cast<const uint8_t*>(row) + s * 32ULL, take);
                std::memset(base + cell + take, 0, 32 - take);
                if (clean) continue;
                for (uint64_t i = 0; i < take; ++i) {
                    if (!a.is_written(row - a.begin + s * 32ULL + i)) holes.push_back({cell + i, cell + i + 1});
                }
            }
        }
    }
    for (const Span& h : holes) in.taint(L1, h.begin, h.end);
    in.count(static_cast<uint64_t>(p.ndNum) * p.nValue * p.dValue * sizeof(T));
}

}  // namespace AscendC
