// printf and DumpTensor of kernels: to stdout, with the core that speaks.
#pragma once
#include <cinttypes>
#include "moec_cpu/vec_core.h"

namespace moec_cpu {

template <typename T>
void print_values(const char* what, uint32_t desc, uint32_t count, const uint8_t* data)
{
    std::printf("%s desc %u (core %s %d):", what, desc, g_running.core, g_running.index);
    for (uint32_t i = 0; i < count; ++i) {
        T v = load<T>(data + i * sizeof(T));
        if constexpr (std::is_integral<T>::value) std::printf(" %" PRId64, static_cast<int64_t>(v));
        else std::printf(" %g", static_cast<double>(static_cast<float>(v)));
    }
    std::printf("\n");
}

}  // namespace moec_cpu

namespace AscendC {

template <typename... A>
void printf(const char* format, A... args)
{
    if constexpr (sizeof...(A) == 0) std::fputs(format, stdout);
    else std::printf(format, args...);
}
template <typename... A>
void PRINTF(const char* format, A... args)
{
    AscendC::printf(format, args...);
}

template <typename T>
void DumpTensor(const LocalTensor<T>& input, uint32_t desc, uint32_t dumpSize, Site site = Site::here())
{
    using namespace moec_cpu;
    Core& c = core(site);
    const LocalRef& r = input.ref();
    uint32_t count = std::min<uint32_t>(dumpSize, (r.hi - r.addr) / sizeof(T));
    print_values<T>("DumpTensor", desc, count, c.data(r.space) + r.addr);
}

template <typename T>
void DumpTensor(const GlobalTensor<T>& input, uint32_t desc, uint32_t dumpSize, Site site = Site::here())
{
    using namespace moec_cpu;
    core(site);
    Allocation* a = find_allocation(input.ref().addr);
    if (!a || a->freed) refuse(site, "global memory access outside any allocation", "DumpTensor of memory that is not there");
    uint64_t room = (a->begin + a->size - input.ref().addr) / sizeof(T);
    print_values<T>("DumpTensor", desc, static_cast<uint32_t>(std::min<uint64_t>(dumpSize, room)), reinterpret_cast<const uint8_t*>(input.ref().addr));
}

}  // namespace AscendC
