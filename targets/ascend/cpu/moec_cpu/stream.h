// Streams: tasks run when somebody waits for them, so that a missing synchronisation shows. A task may have to wait: for
// an event of another stream, or for the other ranks of a collective. What streams touch without an event between them
// is refused, whatever order they ran in.
#pragma once
#include "moec_cpu/flags.h"
#include "moec_cpu/launch.h"

namespace moec_cpu {

struct Stream;

/// How many tasks of each stream (by number) are known to be over.
using StreamClock = std::map<uint32_t, uint64_t>;

/// Bytes that a task reads or writes besides what kernels do.
struct Touched {
    uint64_t begin, bytes;
    bool write;
};

struct Task {
    std::function<void()> run;
    std::vector<uint64_t> pointers;  // device addresses the task was given
    Site site;
    const char* what;
    std::function<bool()> ready;     // asked until true; none: at once
    Stream* on = nullptr;            // runs when `until` tasks of this stream are over
    uint64_t until = 0;
    std::vector<Touched> touched;
    StreamClock issued;              // what the host had waited for when it was submitted
};

struct Stream {
    std::deque<Task> tasks;
    bool destroyed = false;
    uint32_t number = 0;
    uint64_t submitted = 0, over = 0;
    StreamClock clock;               // what is over when its next task starts
};

/// One recording of an event; waits hold on to it while the event is recorded again.
struct Recorded {
    Stream* stream;
    uint64_t after;                  // tasks of the stream that must have run
    StreamClock clock;
};

struct HostEvent {
    std::shared_ptr<Recorded> last;
};

MOEC_CPU_VAR Stream g_default_stream;
MOEC_CPU_VAR std::vector<std::unique_ptr<Stream>> g_streams;
MOEC_CPU_VAR StreamClock g_host_clock;
MOEC_CPU_VAR std::function<void()> g_idle;  // waits for the other ranks; set by HCCL

MOEC_CPU_FN Stream& stream_of(void* handle) { return handle ? *static_cast<Stream*>(handle) : g_default_stream; }

MOEC_CPU_FN bool known_stream(void* handle)
{
    if (!handle) return true;
    for (auto& s : g_streams) {
        if (s.get() == handle && !s->destroyed) return true;
    }
    return false;
}

MOEC_CPU_FN void join(StreamClock& clock, const StreamClock& other)
{
    for (const auto& [stream, count] : other) clock[stream] = std::max(clock[stream], count);
}

MOEC_CPU_FN void enqueue(Stream& s, Task t)
{
    t.issued = g_host_clock;
    ++s.submitted;
    s.tasks.push_back(std::move(t));
}

/// Checks bytes (by address) that a task of `s` touches against what other streams did to them, and remembers it.
MOEC_CPU_FN void check_streams(Stream& s, const Task& t, Allocation& a, uint64_t begin, uint64_t end, bool write)
{
    Access now{static_cast<uint32_t>(s.over + 1), intern_site(t.site, t.what), static_cast<uint16_t>(s.number), 0, write ? Kind::Write : Kind::Read};
    auto against = [&](Interval& i) {
        for (uint32_t k = 0; k < i.past.size(); ++k) {
            const Access& old = i.past[k];
            if (old.core == s.number || (!write && old.kind == Kind::Read)) continue;
            auto known = s.clock.find(old.core);
            if (known != s.clock.end() && known->second >= old.time) continue;
            Site before = g_sites[old.site].site;
            refuse(t.site, "streams touch the same memory unordered",
                   fmt("%s %s what a task of another stream, submitted at %s:%d, %s; record an event there and let this stream wait for it",
                       t.what, write ? "writes" : "reads", before.file, before.line, old.kind == Kind::Read ? "reads" : "writes"));
        }
    };
    if (write) {
        a.streams.visit(begin, end, against, [](uint64_t, uint64_t) {});
        a.streams.replace(begin, end, now, true);
        return;
    }
    a.streams.update(begin, end, [&](Interval& i) {
        against(i);
        for (uint32_t k = 0; k < i.past.size(); ++k) {
            if (i.past[k].core == s.number && i.past[k].kind == Kind::Read) {
                i.past[k] = now;
                return;
            }
        }
        i.past.push(now);
    });
}

/// What the task touched: the ranges that it names, and what its kernel did.
MOEC_CPU_FN void check_task(Stream& s, const Task& t, uint32_t launches_before)
{
    for (const Touched& r : t.touched) {
        Allocation* a = find_allocation(r.begin);
        if (a && !a->freed && r.bytes > 0) check_streams(s, t, *a, r.begin, r.begin + r.bytes, r.write);
    }
    if (g_launch == launches_before) return;
    for (uint64_t p : t.pointers) {
        Allocation* a = find_allocation(p);
        if (!a || a->freed || a->launch != g_launch) continue;
        a->shadow.visit_all([&](uint64_t begin, const Interval& i) {
            bool write = false;
            for (uint32_t k = 0; k < i.past.size(); ++k) write = write || i.past[k].kind != Kind::Read;
            if (i.past.size() > 0) check_streams(s, t, *a, begin, i.end, write);
        });
    }
}

/// Runs the first task if it need not wait.
MOEC_CPU_FN bool advance(Stream& s)
{
    if (s.tasks.empty()) return false;
    if (s.tasks.front().on && s.tasks.front().on->over < s.tasks.front().until) return false;
    join(s.clock, s.tasks.front().issued);
    if (s.tasks.front().ready && !s.tasks.front().ready()) return false;
    Task t = std::move(s.tasks.front());
    s.tasks.pop_front();
    uint32_t launches = g_launch;
    t.run();
    if (g_streams.size() > 1) check_task(s, t, launches);
    s.clock[s.number] = ++s.over;
    return true;
}

MOEC_CPU_FN bool advance_others(Stream& s)
{
    bool moved = false;
    for (auto& o : g_streams) {
        while (o.get() != &s && advance(*o)) moved = true;
    }
    while (&g_default_stream != &s && advance(g_default_stream)) moved = true;
    return moved;
}

/// Runs a stream until `count` of its tasks are over, and of others what it waits for.
MOEC_CPU_FN void run_until(Stream& s, uint64_t count)
{
    while (s.over < count) {
        if (advance(s)) continue;
        Task& front = s.tasks.front();
        if (front.on && front.on->over < front.until) {
            run_until(*front.on, front.until);
        } else if (!advance_others(s)) {
            if (!g_idle) refuse(front.site, "streams wait for one another in vain", "an event is waited for that its stream never reaches");
            g_idle();
        }
    }
}

/// The host waits for a stream.
MOEC_CPU_FN void run_stream(Stream& s)
{
    run_until(s, s.submitted);
    join(g_host_clock, s.clock);
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
    moec_cpu::enqueue(stream_of(stream), std::move(t));
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
        moec_cpu::enqueue(stream_of(stream), std::move(t));
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
