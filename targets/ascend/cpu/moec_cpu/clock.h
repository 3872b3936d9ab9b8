// Happens-before: every instruction of a pipe gets a time; a clock says which times are known to be complete.
// Inside one core a clock has one entry per pipe. What is known of other cores (SyncAll, cross-core flags) is an
// immutable table shared by pointer, so that ordinary flags copy a few words only.
#pragma once
#include <algorithm>
#include <deque>
#include <vector>
#include "moec_cpu/enums.h"
#include "moec_cpu/linkage.h"

namespace moec_cpu {

enum Pipe : uint8_t { S, V, M, MTE1, MTE2, MTE3, FIX, kPipes };

MOEC_CPU_FN const char* pipe_name(uint8_t p)
{
    static const char* names[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"};
    return p < kPipes ? names[p] : "?";
}

/// Times of all pipes of all cores: entry core*kPipes + pipe.
struct World {
    std::vector<uint32_t> time;
};

MOEC_CPU_VAR std::deque<World> g_worlds;  // of the running launch

struct Clock {
    uint32_t local[kPipes] = {};
    const World* world = nullptr;

    void join(const Clock& o)
    {
        for (int p = 0; p < kPipes; ++p) local[p] = std::max(local[p], o.local[p]);
        join_world(o.world);
    }

    MOEC_CPU_FN void join_world(const World* o)
    {
        if (o == nullptr || o == world) return;
        if (world == nullptr || covers(*o, *world)) {
            world = o;
        } else if (!covers(*world, *o)) {
            g_worlds.push_back(*world);
            World& w = g_worlds.back();
            for (size_t i = 0; i < w.time.size(); ++i) w.time[i] = std::max(w.time[i], o->time[i]);
            world = &w;
        }
    }

private:
    static bool covers(const World& big, const World& small)
    {
        for (size_t i = 0; i < small.time.size(); ++i) {
            if (big.time[i] < small.time[i]) return false;
        }
        return true;
    }
};

}  // namespace moec_cpu
