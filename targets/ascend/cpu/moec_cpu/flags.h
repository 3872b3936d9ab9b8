// Synchronisation inside a core: SetFlag, WaitFlag, PipeBarrier, and event ids.
#pragma once
#include "moec_cpu/tensor.h"

namespace moec_cpu {

struct EventInfo {
    const char* name;
    Pipe from, to;
};

MOEC_CPU_FN const EventInfo& event_info(AscendC::HardEvent e)
{
    static const EventInfo table[] = {
        {"MTE2_MTE1", MTE2, MTE1}, {"MTE1_MTE2", MTE1, MTE2}, {"MTE1_M", MTE1, M}, {"M_MTE1", M, MTE1},
        {"MTE2_V", MTE2, V}, {"V_MTE2", V, MTE2}, {"MTE3_V", MTE3, V}, {"V_MTE3", V, MTE3}, {"M_V", M, V}, {"V_M", V, M},
        {"V_V", V, V}, {"MTE3_MTE1", MTE3, MTE1}, {"MTE1_MTE3", MTE1, MTE3}, {"MTE1_V", MTE1, V}, {"MTE2_M", MTE2, M},
        {"M_MTE2", M, MTE2}, {"V_MTE1", V, MTE1}, {"M_FIX", M, FIX}, {"FIX_M", FIX, M}, {"MTE3_MTE2", MTE3, MTE2},
        {"MTE2_MTE3", MTE2, MTE3}, {"S_V", S, V}, {"V_S", V, S}, {"S_MTE2", S, MTE2}, {"MTE2_S", MTE2, S},
        {"S_MTE3", S, MTE3}, {"MTE3_S", MTE3, S}, {"MTE2_FIX", MTE2, FIX}, {"FIX_MTE2", FIX, MTE2}, {"FIX_S", FIX, S},
        {"M_S", M, S}, {"FIX_MTE3", FIX, MTE3}, {"MTE1_FIX", MTE1, FIX}, {"FIX_MTE1", FIX, MTE1}, {"FIX_FIX", FIX, FIX}};
    return table[static_cast<int>(e)];
}

/// Everything the pipe has been given up to now, complete.
MOEC_CPU_FN Clock snapshot(Core& c, Pipe p)
{
    Clock k = c.clock[p];
    k.join(c.clock[S]);
    k.local[p] = c.now[p];
    return k;
}

/// Whether `k` knows this core's pipe p to be past `time`, from its own flags or back from another core.
MOEC_CPU_FN bool knows(const Core& c, const Clock& k, Pipe p, uint32_t time)
{
    if (k.local[p] >= time) return true;
    size_t entry = static_cast<size_t>(c.id) * kPipes + p;
    return k.world && entry < k.world->time.size() && k.world->time[entry] >= time;
}

/// Vector events mean nothing on a cube core of a mixed kernel, and the other way round.
MOEC_CPU_FN bool foreign_event(const Core& c, const EventInfo& e)
{
    return c.aic && (e.from == V || e.to == V);
}

MOEC_CPU_FN Event& event_at(Core& c, AscendC::HardEvent e, int id, Site site, const char* op)
{
    if (id < 0 || id > 7) {
        refuse(site, "event id out of range", fmt("%s<%s>(%d): ids are 0..7", op, event_info(e).name, id));
    }
    return c.events[static_cast<int>(e)][id];
}

/// `own`: whether the kernel chose the id; queues take the lowest free one, as the vendor's do.
MOEC_CPU_FN void set_event(AscendC::HardEvent e, int id, Site site, bool own = true)
{
    Core& c = core(site);
    const EventInfo& info = event_info(e);
    g_running.last = site;
    if (foreign_event(c, info) || masked("set", site)) return;
    Event& ev = event_at(c, e, id, site, "SetFlag");
    if (ev.set) {
        refuse(site, "flag set twice", fmt("%s id %d is still set from %s:%d; wait for it before setting it again", info.name,
                                           id, ev.site.file, ev.site.line));
    }
    ev.clock = snapshot(c, info.from);
    if (own && g_config.strict && !knows(c, ev.clock, info.to, ev.waited)) {
        refuse(site, "flag may be set twice",
               fmt("%s id %d: %s may come here before %s has passed the wait at %s:%d, and would set a flag that is still set; "
                   "let %s wait for %s first, or use another id",
                   info.name, id, pipe_name(info.from), pipe_name(info.to), ev.wait_site.file, ev.wait_site.line,
                   pipe_name(info.from), pipe_name(info.to)));
    }
    ev.set = true;
    ev.site = site;
    Count& n = stat_slot(info.from, "SetFlag");
    n.count += 1;
}

/// Flags whose wait a mask left out. The wait's hazard is looked for first; the flag itself counts as left set at the end.
struct Unwaited {
    uint32_t launch;
    int core;
    AscendC::HardEvent event;
    int id;
    Site site;
};
MOEC_CPU_VAR std::vector<Unwaited> g_unwaited;

MOEC_CPU_FN void leave_unwaited(Core& c, AscendC::HardEvent e, int id)
{
    Event& ev = event_at(c, e, id, g_running.last, "WaitFlag");
    if (!ev.set) return;
    ev.set = false;
    for (const Unwaited& u : g_unwaited) {
        if (u.launch == g_launch && u.core == c.id && u.event == e && u.id == id) return;
    }
    g_unwaited.push_back({g_launch, c.id, e, id, ev.site});
}

MOEC_CPU_FN void wait_event(AscendC::HardEvent e, int id, Site site)
{
    Core& c = core(site);
    const EventInfo& info = event_info(e);
    g_running.last = site;
    if (foreign_event(c, info)) return;
    if (masked("wait", site)) {
        leave_unwaited(c, e, id);
        return;
    }
    Event& ev = event_at(c, e, id, site, "WaitFlag");
    if (!ev.set) {
        refuse(site, "wait without set", fmt("%s id %d is not set, the core would hang here; SetFlag must come first", info.name, id));
    }
    ev.set = false;
    c.clock[info.to].join(ev.clock);
    if (info.to != S) {  // the scalar unit is past its waits when it issues anything
        ev.waited = ++c.now[info.to];
        ev.wait_site = site;
    }
    Count& n = stat_slot(info.to, "WaitFlag");
    n.count += 1;
}

MOEC_CPU_FN void barrier(pipe_t pipe, Site site)
{
    Core& c = core(site);
    g_running.last = site;
    if (masked("barrier", site)) return;
    static const Pipe table[] = {S, V, M, MTE1, MTE2, MTE3};
    if (pipe == PIPE_ALL) {
        drain(c);
        stat_slot(S, "PipeBarrier").count += 1;
        return;
    }
    Pipe p = pipe == PIPE_FIX ? FIX : table[pipe <= PIPE_MTE3 ? pipe : 0];
    c.clock[p].local[p] = c.now[p];
    stat_slot(p, "PipeBarrier").count += 1;
}

MOEC_CPU_FN void check_core_end(Core& c)
{
    for (const Unwaited& u : g_unwaited) {
        if (u.launch != g_launch || u.core != c.id) continue;
        refuse(u.site, "flag left set at the end",
               fmt("SetFlag<%s>(%d) has no WaitFlag; the next kernel would take it for its own", event_info(u.event).name, u.id));
    }
    for (int e = 0; e < static_cast<int>(AscendC::HardEvent::MAX); ++e) {
        for (int id = 0; id < 8; ++id) {
            const Event& ev = c.events[e][id];
            if (!ev.set) continue;
            refuse(ev.site, "flag left set at the end",
                   fmt("SetFlag<%s>(%d) has no WaitFlag; the next kernel would take it for its own", event_info(static_cast<AscendC::HardEvent>(e)).name, id));
        }
    }
}

/// The lowest event id of that kind that is not allocated; refused when all eight are.
MOEC_CPU_FN AscendC::TEventID pick_event(AscendC::HardEvent e, bool take, Site site)
{
    Core& c = core(site);
    uint8_t& used = c.allocated_events[static_cast<int>(e)];
    for (int id = 0; id < 8; ++id) {
        if (used >> id & 1) continue;
        if (take) used = static_cast<uint8_t>(used | 1u << id);
        return static_cast<AscendC::TEventID>(id);
    }
    refuse(site, "no event id left", fmt("all 8 ids of %s are allocated; release some or use fewer buffers", event_info(e).name));
}

MOEC_CPU_FN void release_event(AscendC::HardEvent e, int id, Site site)
{
    Core& c = core(site);
    if (id < 0 || id > 7) refuse(site, "event id out of range", fmt("ReleaseEventID(%d): ids are 0..7", id));
    c.allocated_events[static_cast<int>(e)] &= static_cast<uint8_t>(~(1u << id));
}

}  // namespace moec_cpu

namespace AscendC {

template <HardEvent event>
void SetFlag(int32_t eventID, Site site = Site::here())
{
    moec_cpu::set_event(event, eventID, site);
}

template <HardEvent event>
void WaitFlag(int32_t eventID, Site site = Site::here())
{
    moec_cpu::wait_event(event, eventID, site);
}

template <pipe_t pipe>
void PipeBarrier(Site site = Site::here())
{
    moec_cpu::barrier(pipe, site);
}

template <pipe_t src, pipe_t dst>
class TQueSync {
public:
    void SetFlag(TEventID id, Site site = Site::here()) { moec_cpu::set_event(event(), id, site); }
    void WaitFlag(TEventID id, Site site = Site::here()) { moec_cpu::wait_event(event(), id, site); }

private:
    static moec_cpu::Pipe map(pipe_t p)
    {
        static const moec_cpu::Pipe table[] = {moec_cpu::S, moec_cpu::V, moec_cpu::M, moec_cpu::MTE1, moec_cpu::MTE2,
                                               moec_cpu::MTE3};
        return p == PIPE_FIX ? moec_cpu::FIX : table[p];
    }
    static HardEvent event()
    {
        for (int e = 0; e < static_cast<int>(HardEvent::MAX); ++e) {
            const moec_cpu::EventInfo& i = moec_cpu::event_info(static_cast<HardEvent>(e));
            if (i.from == map(src) && i.to == map(dst)) return static_cast<HardEvent>(e);
        }
        moec_cpu::refuse(moec_cpu::g_running.last, "no such event", "these two pipes have no event between them");
    }
};

template <MemDsbT arg0>
void DataSyncBarrier(Site site = Site::here())
{
    moec_cpu::core(site);
}

template <typename T, CacheLine entireType, DcciDst dcciDst>
void DataCacheCleanAndInvalid(const GlobalTensor<T>&, Site site = Site::here())
{
    moec_cpu::core(site);
}
template <typename T, CacheLine entireType, DcciDst dcciDst>
void DataCacheCleanAndInvalid(const LocalTensor<T>&, Site site = Site::here())
{
    moec_cpu::core(site);
}
template <typename T, CacheLine entireType>
void DataCacheCleanAndInvalid(const GlobalTensor<T>&, Site site = Site::here())
{
    moec_cpu::core(site);
}

}  // namespace AscendC
