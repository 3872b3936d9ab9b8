// Global memory: every device allocation is known, poisoned, fenced, and stays known after it is freed.
#pragma once
#include <map>
#include <memory>
#include <sys/mman.h>
#include "moec_cpu/config.h"
#include "moec_cpu/refuse.h"
#include "moec_cpu/shadow.h"

namespace moec_cpu {

constexpr uint64_t kPage = 4096;

struct Allocation {
    uint64_t begin = 0;
    uint64_t size = 0;
    uint64_t mapped = 0;
    bool freed = false;
    bool host = false;  // allocated by aclrtMallocHost: not reachable from kernels
    Site site{"?", 0};
    Shadow shadow;                    // of the running launch
    Shadow streams;                   // what tasks of streams did, by stream and number (stream.h)
    std::vector<uint64_t> written;    // one bit a byte, over all launches
    uint32_t launch = 0;              // the launch that `shadow` belongs to

    MOEC_CPU_FN bool all_written(uint64_t a, uint64_t b) const
    {
        while (a < b) {
            if ((a & 63) == 0 && b - a >= 64) {
                if (written[a >> 6] != ~0ULL) return false;
                a += 64;
            } else {
                if (!(written[a >> 6] >> (a & 63) & 1)) return false;
                ++a;
            }
        }
        return true;
    }

    bool is_written(uint64_t at) const { return written[at >> 6] >> (at & 63) & 1; }

    MOEC_CPU_FN void mark(uint64_t a, uint64_t b, bool value)
    {
        while (a < b) {
            if ((a & 63) == 0 && b - a >= 64) {
                written[a >> 6] = value ? ~0ULL : 0;
                a += 64;
            } else {
                uint64_t bit = 1ULL << (a & 63);
                if (value) written[a >> 6] |= bit;
                else written[a >> 6] &= ~bit;
                ++a;
            }
        }
    }
};

MOEC_CPU_VAR std::map<uint64_t, std::unique_ptr<Allocation>> g_gm;
MOEC_CPU_VAR Allocation* g_gm_last = nullptr;

/// The allocation (live or freed) whose mapping holds the address, or null.
MOEC_CPU_FN Allocation* find_allocation(uint64_t address)
{
    if (g_gm_last && address >= g_gm_last->begin && address < g_gm_last->begin + g_gm_last->mapped) return g_gm_last;
    auto it = g_gm.upper_bound(address);
    if (it == g_gm.begin()) return nullptr;
    Allocation* a = std::prev(it)->second.get();
    if (address >= a->begin + a->mapped) return nullptr;
    return g_gm_last = a;
}

/// Device memory of `size` bytes, 512-byte aligned, filled with 0xFF (NaN), followed by a page that faults.
MOEC_CPU_FN void* gm_alloc(uint64_t size, bool host, Site site)
{
    uint64_t usable = (size + kPage - 1) / kPage * kPage;
    void* p = mmap(nullptr, usable + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    mprotect(static_cast<char*>(p) + usable, kPage, PROT_NONE);
    std::memset(p, 0xff, usable);
    auto a = std::make_unique<Allocation>();
    a->begin = reinterpret_cast<uint64_t>(p);
    a->size = size;
    a->mapped = usable + kPage;
    a->host = host;
    a->site = site;
    if (!host) a->written.assign((size + 63) / 64, 0);
    g_gm[a->begin] = std::move(a);
    return p;
}

/// Frees at the exact start of a live allocation of that kind; false otherwise. The addresses stay reserved.
MOEC_CPU_FN bool gm_free(void* p, bool host)
{
    auto it = g_gm.find(reinterpret_cast<uint64_t>(p));
    if (it == g_gm.end() || it->second->freed || it->second->host != host) return false;
    Allocation& a = *it->second;
    a.freed = true;
    a.shadow.clear();
    a.streams.clear();
    a.written.clear();
    a.written.shrink_to_fit();
    mmap(p, a.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return true;
}

}  // namespace moec_cpu
