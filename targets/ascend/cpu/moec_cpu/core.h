// One modelled core: its local memories with shadows, the clocks of its pipes, its event flags and special registers.
#pragma once
#include <memory>
#include <unordered_map>
#include "moec_cpu/gm.h"
#include "moec_cpu/half.h"

namespace AscendC {
class TPipe;
}

namespace moec_cpu {

enum Space : uint8_t { UB, L1, L0A, L0B, L0C, BT, FB, kSpaces, GM = kSpaces };

struct SpaceInfo {
    const char* name;
    uint32_t bytes;
    uint32_t align;
};

/// Capacities and address alignment of NPU arch 2201 (platform ini 8.1.RC1; CANN asc-devkit docs, architecture 2201).
MOEC_CPU_FN const SpaceInfo& space_info(Space s)
{
    static const SpaceInfo table[] = {{"UB", 192 * 1024, 32},  {"L1", 512 * 1024, 32},  {"L0A", 64 * 1024, 512},
                                      {"L0B", 64 * 1024, 512}, {"L0C", 128 * 1024, 64}, {"BT", 1024, 64},
                                      {"FB", 7 * 1024, 64},    {"GM", 0, 1}};
    return table[s];
}

/// What the last 256 bytes are kept for on 2201 (UB and L1 of mixed kernels).
constexpr uint32_t kReservedTail = 256;

struct Event {
    bool set = false;
    Clock clock;
    Site site{"?", 0};
    uint32_t waited = 0;  // when, on the pipe that waits, the last wait stood
    Site wait_site{"?", 0};
};

struct Core {
    bool aic = false;
    int id = 0;         // in the launch
    int block = 0;      // GetBlockIdx
    int sub = 0;        // GetSubBlockIdx
    int group = 0;      // AIC index this core belongs to
    bool mix = false;
    std::unique_ptr<uint8_t[]> memory[kSpaces];
    Shadow shadow[kSpaces];
    Clock clock[kPipes];
    uint32_t now[kPipes] = {};
    Event events[static_cast<int>(AscendC::HardEvent::MAX)][8];
    uint8_t allocated_events[static_cast<int>(AscendC::HardEvent::MAX)] = {};
    AscendC::TPipe* pipe = nullptr;
    uint64_t instructions = 0;

    uint64_t mask_low = ~0ULL, mask_high = ~0ULL;  // vector mask register
    bool mask_counter = false;
    uint64_t cmp_mask[2] = {0, 0};
    AscendC::AtomicDtype atomic_type = AscendC::AtomicDtype::ATOMIC_NONE;
    int atomic_op = 0;  // 0 add, 1 max, 2 min
    bool hf32 = false;
    float deq_scale = 1.0f;  // SetDeqScale
    Clock unit_mmad, unit_fix;  // unit flag: what the other side may rely on
    bool unit_ready = false;
    uint64_t gather_kept = 0;
    uint64_t sort_counts = 0;
    float reduce_value = 0, accumulated = 0;
    uint32_t reduce_index = 0;
    uint16_t fix_nd_num = 1, fix_nd_src = 0, fix_nd_dst = 0;
    uint64_t fix_quant = 0;
    uint64_t pad_bits = 0;
    uint64_t load_pad_bits = 0;

    uint8_t* data(Space s)
    {
        if (!memory[s]) {
            memory[s].reset(new uint8_t[space_info(s).bytes]);
            std::memset(memory[s].get(), 0xff, space_info(s).bytes);
        }
        return memory[s].get();
    }
};

MOEC_CPU_VAR Core* g_core = nullptr;

/// The running core; host code that calls a device function is refused.
MOEC_CPU_FN Core& core(Site site)
{
    if (!g_core) refuse(site, "device function outside a kernel", "call it from a launched kernel");
    return *g_core;
}

struct SiteEntry {
    Site site;
    const char* op;
};

MOEC_CPU_VAR std::vector<SiteEntry> g_sites;
MOEC_CPU_VAR std::unordered_map<uint64_t, uint32_t> g_site_index;

/// A small number for (call site, operation name).
MOEC_CPU_FN uint32_t intern_site(Site site, const char* op)
{
    uint64_t key = reinterpret_cast<uint64_t>(site.file) * 1000003u + static_cast<uint64_t>(site.line) * 8191u +
                   reinterpret_cast<uint64_t>(op);
    auto found = g_site_index.find(key);
    if (found != g_site_index.end()) return found->second;
    uint32_t index = static_cast<uint32_t>(g_sites.size());
    g_sites.push_back({site, op});
    g_site_index.emplace(key, index);
    return index;
}

MOEC_CPU_FN std::string describe_site(uint32_t index)
{
    const SiteEntry& e = g_sites[index];
    return fmt("%s at %s:%d", e.op, e.site.file, e.site.line);
}

}  // namespace moec_cpu
