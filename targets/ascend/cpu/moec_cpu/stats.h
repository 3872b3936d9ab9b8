// Instruction counts: per launch, per pipe and instruction name: count, bytes, repeats (vector) and m*n*k (Mmad).
#pragma once
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>
#include "moec_cpu/clock.h"
#include "moec_cpu/config.h"

namespace moec_cpu {

struct Count {
    uint64_t count = 0, bytes = 0, repeats = 0, macs = 0;
};

struct LaunchStats {
    std::string kernel;
    uint32_t block_dim = 0;
    std::string type;
    std::map<std::pair<uint8_t, std::string>, Count> counts;
};

MOEC_CPU_VAR std::vector<LaunchStats> g_stats;
MOEC_CPU_VAR std::map<std::pair<uint8_t, const char*>, Count*> g_stat_slots;  // of the running launch

MOEC_CPU_FN Count& stat_slot(uint8_t pipe, const char* op)
{
    Count*& slot = g_stat_slots[{pipe, op}];
    if (!slot) slot = &g_stats.back().counts[{pipe, op}];
    return *slot;
}

/// Writes the JSON file; called after every launch, so that a later refusal keeps what ran before.
MOEC_CPU_FN void write_stats()
{
    if (g_config.stats.empty()) return;
    std::FILE* f = std::fopen(g_config.stats.c_str(), "w");
    if (!f) return;
    std::fprintf(f, "{\"launches\": [");
    for (size_t i = 0; i < g_stats.size(); ++i) {
        const LaunchStats& s = g_stats[i];
        std::fprintf(f, "%s\n  {\"kernel\": \"%s\", \"type\": \"%s\", \"block_dim\": %u, \"instructions\": [", i ? "," : "",
                     s.kernel.c_str(), s.type.c_str(), s.block_dim);
        bool first = true;
        for (const auto& [key, c] : s.counts) {
            std::fprintf(f, "%s\n    {\"pipe\": \"%s\", \"op\": \"%s\", \"count\": %llu, \"bytes\": %llu, \"repeats\": %llu, \"mnk\": %llu}",
                         first ? "" : ",", pipe_name(key.first), key.second.c_str(),
                         static_cast<unsigned long long>(c.count), static_cast<unsigned long long>(c.bytes),
                         static_cast<unsigned long long>(c.repeats), static_cast<unsigned long long>(c.macs));
            first = false;
        }
        std::fprintf(f, "]}");
    }
    std::fprintf(f, "\n]}\n");
    std::fclose(f);
}

}  // namespace moec_cpu
