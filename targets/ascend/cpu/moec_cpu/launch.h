// Kernel launches: kernel types, the cores of a launch, and ACLRT_LAUNCH_KERNEL.
#pragma once
#include "moec_cpu/sched.h"

namespace moec_cpu {

constexpr uint32_t kMaxBlockDim = 65535;
constexpr uint32_t kCubeCores = 24;    // Ascend910B1 (platform ini 8.1.RC1)
constexpr uint32_t kVectorCores = 48;

MOEC_CPU_FN std::map<std::string, int>& kernel_types()
{
    static std::map<std::string, int> types;
    return types;
}

MOEC_CPU_FN bool declare_type(const char* kernel, int type)
{
    kernel_types()[kernel] = type;
    return true;
}

/// KERNEL_TASK_TYPE_DEFAULT registers the type before main, keyed by the kernel's name.
template <typename Tag>
struct RegisterType {
    static inline const bool done = declare_type(Tag::name(), Tag::type);
};

MOEC_CPU_FN const char* type_name(int type)
{
    static const char* names[] = {"AIV_ONLY", "AIC_ONLY", "MIX_AIV_1_0", "MIX_AIC_1_0", "MIX_AIC_1_1", "MIX_AIC_1_2"};
    return type >= 0 && type < 6 ? names[type] : "AIV_ONLY";
}

/// A kernel that declares no type starts as vector-only; the first sign of another kind restarts it before it has
/// any effect.
MOEC_CPU_FN void suggest_type(int type)
{
    Launch* l = g_launch_now;
    if (!l || !l->provisional || l->type == type) return;
    l->restart_as = type;
    Fiber* me = g_fiber;
    swapcontext(&me->context, &l->home);
}

MOEC_CPU_FN void settle_type()
{
    if (g_launch_now) g_launch_now->provisional = false;
}

MOEC_CPU_FN void make_fibers(Launch& l)
{
    l.fibers.clear();
    int cubes = l.type == KERNEL_TYPE_AIV_ONLY || l.type == KERNEL_TYPE_MIX_AIV_1_0 ? 0 : 1;
    int vectors = l.type == KERNEL_TYPE_MIX_AIC_1_2 ? 2 : (l.type == KERNEL_TYPE_AIC_ONLY || l.type == KERNEL_TYPE_MIX_AIC_1_0 ? 0 : 1);
    l.ratio = vectors;
    for (uint32_t b = 0; b < l.block_dim; ++b) {
        for (int k = 0; k < cubes + vectors; ++k) {
            auto f = std::make_unique<Fiber>();
            Core& c = f->core;
            c.id = static_cast<int>(l.fibers.size());
            c.aic = k < cubes;
            c.group = static_cast<int>(b);
            c.sub = c.aic ? 0 : k - cubes;
            c.mix = cubes && vectors;
            c.block = c.aic || !c.mix ? static_cast<int>(b) : static_cast<int>(b) * vectors + c.sub;
            l.fibers.push_back(std::move(f));
        }
    }
    l.ib.clear();
    l.cross.assign(l.fibers.size() * 16, CrossQueues());
    l.barrier.assign(l.fibers.size(), nullptr);
    l.barrier_in.assign(l.fibers.size(), false);
    l.barrier_aiv.assign(l.fibers.size(), false);
    g_worlds.clear();
}

MOEC_CPU_FN void launch(const char* name, uint32_t block_dim, int forced_type, std::function<void()> body, Site site)
{
    if (block_dim == 0 || block_dim > kMaxBlockDim) {
        refuse(site, fmt("launch of %s with blockDim %u", name, block_dim),
               fmt("blockDim must be 1..%u; a real chip has %u cube and %u vector cores", kMaxBlockDim, kCubeCores, kVectorCores));
    }
    Launch l;
    l.name = name;
    l.body = std::move(body);
    l.block_dim = block_dim;
    l.rng = g_config.seed;
    auto found = kernel_types().find(name);
    l.type = found != kernel_types().end() ? found->second : forced_type;
    l.provisional = l.type < 0;
    if (l.type < 0) l.type = KERNEL_TYPE_AIV_ONLY;
    g_launch_now = &l;
    g_running.kernel = name;
    while (true) {
        ++g_launch;
        make_fibers(l);
        g_stats.push_back({name, block_dim, "", {}});
        g_stat_slots.clear();
        l.restart_as = -1;
        run_fibers(l);
        if (l.restart_as < 0) break;
        l.type = l.restart_as;
        l.provisional = false;
        g_stats.pop_back();
    }
    g_stats.back().type = type_name(l.type);
    for (size_t i = 0; i < l.cross.size(); ++i) {
        CrossQueues& q = l.cross[i];
        for (auto* d : {&q.arrived, &q.pending[0], &q.pending[1], &q.pending[2]}) {
            if (d->empty()) continue;
            enter(l.fibers[i / 16].get());
            refuse(d->front().site, "cross-core flag left set at the end",
                   fmt("flag %zu has %zu sets that no CrossCoreWaitFlag took; pair every set with a wait", i % 16, d->size()));
        }
    }
    g_running.kernel = nullptr;
    g_launch_now = nullptr;
    g_core = nullptr;
    g_worlds.clear();
    write_stats();
}

/// Integers travel as 64 bits, so that the callee sees what an implicit conversion would give; pointers and the
/// rest unchanged; double becomes float, the only floating scalar a kernel takes.
template <typename A>
auto widen(A a)
{
    if constexpr (std::is_enum<A>::value || std::is_same<A, bool>::value) return static_cast<int64_t>(a);
    else if constexpr (std::is_integral<A>::value && std::is_signed<A>::value) return static_cast<int64_t>(a);
    else if constexpr (std::is_integral<A>::value) return static_cast<uint64_t>(a);
    else if constexpr (std::is_same<A, double>::value) return static_cast<float>(a);
    else if constexpr (std::is_null_pointer<A>::value) return static_cast<void*>(nullptr);
    else return a;
}

/// A kernel by its symbol: the signature is unknown, arguments follow the C calling convention.
struct KernelRef {
    const char* name;
    void (*symbol)();
    Site site;
    template <typename Stream, typename... Args>
    uint32_t operator()(uint32_t block_dim, Stream stream, Args... args) const
    {
        return submit(stream, block_dim, widen(args)...);
    }

private:
    template <typename... W>
    uint32_t submit(void* stream, uint32_t block_dim, W... args) const;
};

}  // namespace moec_cpu
