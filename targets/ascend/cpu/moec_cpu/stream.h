// Streams: tasks run when somebody waits for them, so that a missing synchronisation shows.
#pragma once
#include "moec_cpu/flags.h"
#include "moec_cpu/launch.h"

namespace moec_cpu {

struct Task {
    std::function<void()> run;
    std::vector<uint64_t> pointers;  // device addresses the task was given
    Site site;
    const char* what;
};

struct Stream {
    std::deque<Task> tasks;
    bool destroyed = false;
};

struct HostEvent {
    Stream* stream = nullptr;
    uint64_t after = 0;  // tasks of the stream that must have run
    bool recorded = false;
};

inline Stream g_default_stream;
inline std::vector<std::unique_ptr<Stream>> g_streams;

MOEC_CPU_FN Stream& stream_of(void* handle) { return handle ? *static_cast<Stream*>(handle) : g_default_stream; }

MOEC_CPU_FN bool known_stream(void* handle)
{
    if (!handle) return true;
    for (auto& s : g_streams) {
        if (s.get() == handle && !s->destroyed) return true;
    }
    return false;
}

MOEC_CPU_FN void run_stream(Stream& s)
{
    while (!s.tasks.empty()) {
        Task t = std::move(s.tasks.front());
        s.tasks.pop_front();
        t.run();
    }
}

MOEC_CPU_FN void run_all_streams()
{
    run_stream(g_default_stream);
    for (auto& s : g_streams) run_stream(*s);
}

/// The first waiting task that was given an address inside this buffer.
MOEC_CPU_FN const Task* pending_on(const Allocation& a)
{
    auto scan = [&](Stream& s) -> const Task* {
        for (const Task& t : s.tasks) {
            for (uint64_t p : t.pointers) {
                if (p >= a.begin && p < a.begin + std::max<uint64_t>(a.size, 1)) return &t;
            }
        }
        return nullptr;
    };
    if (const Task* t = scan(g_default_stream)) return t;
    for (auto& s : g_streams) {
        if (const Task* t = scan(*s)) return t;
    }
    return nullptr;
}

template <typename W>
void note_pointer(std::vector<uint64_t>& out, W w)
{
    if constexpr (std::is_pointer<W>::value) out.push_back(reinterpret_cast<uint64_t>(w));
}

template <typename... W>
uint32_t KernelRef::submit(void* stream, uint32_t block_dim, W... args) const
{
    if (!known_stream(stream)) refuse(site, fmt("launch of %s on a stream that does not exist", name), "create it with aclrtCreateStream");
    Task t;
    (note_pointer(t.pointers, args), ...);
    t.site = site;
    t.what = name;
    auto call = reinterpret_cast<void (*)(W...)>(symbol);
    const char* kernel = name;
    Site at = site;
    t.run = [=] { launch(kernel, block_dim, -1, [=] { call(args...); }, at); };
    stream_of(stream).tasks.push_back(std::move(t));
    return 0;
}

/// A launch by function: what name<<<blocks, buffer, stream>>>(args) becomes (asc_to_cpp.py).
template <typename... P>
struct FunctionLaunch {
    const char* name;
    int type;
    uint32_t blocks;
    void* stream;
    void (*kernel)(P...);
    Site site;
    void operator()(P... args) const
    {
        if (!known_stream(stream)) refuse(site, fmt("launch of %s on a stream that does not exist", name), "create it with aclrtCreateStream");
        Task t;
        (note_pointer(t.pointers, args), ...);
        t.site = site;
        t.what = name;
        FunctionLaunch me = *this;
        t.run = [=] { launch(me.name, me.blocks, me.type, [=] { me.kernel(args...); }, me.site); };
        stream_of(stream).tasks.push_back(std::move(t));
    }
};

template <typename... P>
FunctionLaunch<P...> launch_function(const char* name, int type, uint32_t blocks, void* stream, void (*kernel)(P...), Site site = Site::here())
{
    return {name, type, blocks, stream, kernel, site};
}

}  // namespace moec_cpu

/// ACLRT_LAUNCH_KERNEL(name)(blockDim, stream, args...): finds the kernel by its symbol, so that neither a
/// declaration nor a generated aclrtlaunch_<name>.h is needed. Kernels are extern "C", as CANN asks.
#ifndef ACLRT_LAUNCH_KERNEL
#define ACLRT_LAUNCH_KERNEL(kernel_func)                                                     \
    ([](::moec_cpu::Site site) {                                                             \
        extern void moec_cpu_kernel_##kernel_func() __asm__(#kernel_func);                   \
        return ::moec_cpu::KernelRef{#kernel_func, &moec_cpu_kernel_##kernel_func, site};    \
    }(::moec_cpu::Site::here()))
#endif
