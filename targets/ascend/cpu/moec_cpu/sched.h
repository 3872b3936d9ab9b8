// Cores as fibers. A core runs until it ends or waits for another core; the scheduler then takes the next one.
#pragma once
#include <functional>
#include <ucontext.h>
#include "moec_cpu/instr.h"

namespace moec_cpu {

constexpr uint64_t kStack = 1 << 20;

struct Fiber {
    Core core;
    ucontext_t context;
    void* stack = nullptr;
    bool started = false;
    bool done = false;
    std::function<bool()> blocked_on;  // returns true when the core may go on
    std::string waiting;
    Site wait_site{"?", 0};

    Fiber() = default;
    Fiber(const Fiber&) = delete;
    ~Fiber()
    {
        if (stack) munmap(stack, kStack + kPage);
    }
};

/// Sets made so far by one core for one cross-core flag, not yet matched by its partners.
struct CrossSet {
    const World* world;
    Site site;
};

struct CrossQueues {
    std::deque<CrossSet> pending[3];   // by mode
    std::deque<CrossSet> arrived;      // what CrossCoreWaitFlag takes
};

struct Launch {
    const char* name = "";
    std::function<void()> body;
    int type = -1;       // KernelMetaType, -1 = not declared
    bool provisional = false;
    uint32_t block_dim = 0;
    int ratio = 0;       // vector cores per cube core in a mixed launch
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<CrossQueues> cross;  // core*16 + flag
    std::map<std::pair<int32_t, int32_t>, std::deque<CrossSet>> ib;  // IBSet by (block, event)
    std::vector<const World*> barrier;   // arrived clocks of SyncAll
    std::vector<bool> barrier_in;
    std::vector<bool> barrier_aiv;
    uint32_t barrier_epoch = 0, barrier_aiv_epoch = 0;
    uint64_t rng = 0;
    int restart_as = -1;
    ucontext_t home;
};

MOEC_CPU_VAR Launch* g_launch_now = nullptr;
MOEC_CPU_VAR Fiber* g_fiber = nullptr;

MOEC_CPU_FN void enter(Fiber* f)
{
    g_fiber = f;
    g_core = &f->core;
    g_running.core = f->core.aic ? "aic" : "aiv";
    g_running.index = f->core.block;
}

/// Gives the processor back until `ready` holds.
MOEC_CPU_FN void block_until(std::function<bool()> ready, const std::string& what, Site site)
{
    if (ready()) return;
    Fiber* me = g_fiber;
    me->blocked_on = std::move(ready);
    me->waiting = what;
    me->wait_site = site;
    swapcontext(&me->context, &g_launch_now->home);
}

/// What all pipes of the running core have done up to now, as a table over all cores.
MOEC_CPU_FN const World* publish(Core& c, const Clock& clock)
{
    g_worlds.emplace_back();
    World& w = g_worlds.back();
    if (clock.world) w = *clock.world;
    w.time.resize(g_launch_now->fibers.size() * kPipes, 0);
    for (int p = 0; p < kPipes; ++p) {
        uint32_t& t = w.time[static_cast<size_t>(c.id) * kPipes + p];
        t = std::max(t, clock.local[p]);
    }
    return &w;
}

/// All pipes of the core are drained and know of each other.
MOEC_CPU_FN void drain(Core& c)
{
    Clock all;
    for (int p = 0; p < kPipes; ++p) {
        all.join(c.clock[p]);
        all.local[p] = c.now[p];
    }
    for (int p = 0; p < kPipes; ++p) c.clock[p] = all;
}

MOEC_CPU_FN void check_core_end(Core& c);

MOEC_CPU_FN void fiber_main()
{
    Fiber* me = g_fiber;
    g_launch_now->body();
    check_core_end(me->core);
    me->done = true;
    for (auto& m : me->core.memory) m.reset();
    for (auto& s : me->core.shadow) s.clear();
    swapcontext(&me->context, &g_launch_now->home);
}

MOEC_CPU_FN void start_fiber(Fiber& f)
{
    f.stack = mmap(nullptr, kStack + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f.stack == MAP_FAILED) refuse({"?", 0}, "out of memory", "no room for the stack of a core");
    mprotect(f.stack, kPage, PROT_NONE);
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = static_cast<char*>(f.stack) + kPage;
    f.context.uc_stack.ss_size = kStack;
    f.context.uc_link = nullptr;
    makecontext(&f.context, reinterpret_cast<void (*)()>(fiber_main), 0);
    f.started = true;
}

MOEC_CPU_FN void resume(Fiber& f)
{
    f.blocked_on = nullptr;
    if (!f.started) start_fiber(f);
    enter(&f);
    swapcontext(&g_launch_now->home, &f.context);
    g_core = nullptr;
    g_fiber = nullptr;
    if (f.done && f.stack) {
        munmap(f.stack, kStack + kPage);
        f.stack = nullptr;
    }
}

MOEC_CPU_FN uint64_t next_random(uint64_t& state)
{
    state += 0x9e3779b97f4a7c15ULL;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

[[noreturn]] MOEC_CPU_FN void refuse_deadlock(Launch& l)
{
    std::string who;
    int shown = 0;
    Fiber* first = nullptr;
    for (auto& f : l.fibers) {
        if (f->done) continue;
        if (!first) first = f.get();
        if (shown++ < 4) {
            who += fmt("%s%s %d in %s at %s:%d", shown > 1 ? "; " : "", f->core.aic ? "aic" : "aiv", f->core.block,
                       f->waiting.c_str(), f->wait_site.file, f->wait_site.line);
        }
    }
    enter(first);
    refuse(first->wait_site, "deadlock",
           fmt("%d cores wait and none can go on (%s%s); every wait needs its set on every core that takes part", shown,
               who.c_str(), shown > 4 ? "; ..." : ""));
}

/// Runs all cores of a launch; returns early when the kernel's type turned out to be another one.
MOEC_CPU_FN void run_fibers(Launch& l)
{
    std::vector<size_t> order(l.fibers.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = g_config.reverse ? order.size() - 1 - i : i;
    size_t left = order.size();
    while (left) {
        if (g_config.random) {
            for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[next_random(l.rng) % (i + 1)]);
        }
        bool moved = false;
        for (size_t i : order) {
            Fiber& f = *l.fibers[i];
            if (f.done || (f.blocked_on && !f.blocked_on())) continue;
            resume(f);
            if (l.restart_as >= 0) return;
            l.provisional = false;
            moved = true;
            if (f.done) --left;
        }
        if (!moved) refuse_deadlock(l);
    }
}

}  // namespace moec_cpu
