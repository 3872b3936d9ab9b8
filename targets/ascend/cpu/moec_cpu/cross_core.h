// Synchronisation between cores: CrossCoreSetFlag, CrossCoreWaitFlag, SyncAll, IBSet, IBWait.
#pragma once
#include "moec_cpu/flags.h"

namespace moec_cpu {

MOEC_CPU_FN void require_mixed_type(const char* op, Site site)
{
    Launch& l = *g_launch_now;
    bool declared = kernel_types().count(l.name) != 0;
    if (declared && (l.type == KERNEL_TYPE_AIV_ONLY || l.type == KERNEL_TYPE_AIC_ONLY)) {
        refuse(site, "cross-core synchronisation in a kernel of one core kind",
               fmt("%s needs the hardware scheduler; declare KERNEL_TYPE_MIX_AIV_1_0, MIX_AIC_1_0, MIX_AIC_1_1 or MIX_AIC_1_2", op));
    }
    uint32_t limit = l.type == KERNEL_TYPE_MIX_AIV_1_0 || l.type == KERNEL_TYPE_AIV_ONLY ? kVectorCores : kCubeCores;
    if (l.block_dim > limit) {
        refuse(site, "cross-core synchronisation with too many blocks",
               fmt("%s with blockDim %u: only %u blocks run at once, the others never arrive", op, l.block_dim, limit));
    }
}

/// The cores that take part in a mode: 0 all of the same kind, 1 the vector cores of the group, 2 the other kind.
MOEC_CPU_FN bool in_scope(int mode, const Core& me, const Core& other)
{
    if (mode == 0) return me.aic == other.aic;
    if (other.group != me.group) return false;
    return mode == 1 ? !other.aic : true;
}

MOEC_CPU_FN void cross_set(int mode, pipe_t pipe, uint32_t flag, Site site)
{
    Core& c = core(site);
    Launch& l = *g_launch_now;
    g_running.last = site;
    require_mixed_type("CrossCoreSetFlag", site);
    if (flag > 15) refuse(site, "cross-core flag out of range", fmt("flag %u: ids are 0..15 (11..14 belong to SyncAll)", flag));
    if (mode > 2) refuse(site, "cross-core mode out of range", fmt("mode %d: NPU arch 2201 has modes 0, 1 and 2", mode));
    if (pipe == PIPE_S || pipe == PIPE_ALL) refuse(site, "cross-core flag on a pipe that has none", "use PIPE_V, PIPE_M, PIPE_MTE1..3 or PIPE_FIX");
    if (mode == 1 && c.aic) refuse(site, "cross-core mode 1 on a cube core", "mode 1 joins the vector cores of a group");
    if (masked("set", site)) return;
    static const Pipe table[] = {S, V, M, MTE1, MTE2, MTE3};
    Pipe p = pipe == PIPE_FIX ? FIX : table[pipe];
    stat_slot(p, "CrossCoreSetFlag").count += 1;
    auto queues = [&](int id) -> CrossQueues& { return l.cross[static_cast<size_t>(id) * 16 + flag]; };
    queues(c.id).pending[mode].push_back({publish(c, snapshot(c, p)), site});
    // complete when every sender of the scope has one pending; mode 2 has the cube core or all vector cores as senders
    std::vector<int> senders, targets;
    for (auto& f : l.fibers) {
        const Core& o = f->core;
        if (!in_scope(mode, c, o)) continue;
        if (mode != 2 || o.aic == c.aic) senders.push_back(o.id);
        if (mode != 2 || o.aic != c.aic) targets.push_back(o.id);
    }
    for (int id : senders) {
        if (queues(id).pending[mode].empty()) return;
    }
    Clock all;
    for (int id : senders) {
        all.join_world(queues(id).pending[mode].front().world);
        queues(id).pending[mode].pop_front();
    }
    for (int id : targets) {
        auto& arrived = queues(id).arrived;
        if (arrived.size() >= 15) refuse(site, "cross-core flag overflow", fmt("flag %u was set 15 times without a wait; its counter holds 15", flag));
        arrived.push_back({all.world, site});
    }
}

MOEC_CPU_FN void cross_wait(uint32_t flag, Site site)
{
    Core& c = core(site);
    Launch& l = *g_launch_now;
    g_running.last = site;
    require_mixed_type("CrossCoreWaitFlag", site);
    if (flag > 15) refuse(site, "cross-core flag out of range", fmt("flag %u: ids are 0..15 (11..14 belong to SyncAll)", flag));
    CrossQueues* q = &l.cross[static_cast<size_t>(c.id) * 16 + flag];
    block_until([q] { return !q->arrived.empty(); }, fmt("CrossCoreWaitFlag(%u)", flag), site);
    CrossSet set = q->arrived.front();
    q->arrived.pop_front();
    if (masked("wait", site)) return;
    for (int p = 0; p < kPipes; ++p) c.clock[p].join_world(set.world);
    stat_slot(S, "CrossCoreWaitFlag").count += 1;
}

MOEC_CPU_FN void sync_all(bool vector_only, Site site, const char* op, bool hardware)
{
    Core& c = core(site);
    Launch& l = *g_launch_now;
    g_running.last = site;
    if (hardware) require_mixed_type(op, site);
    if (vector_only && c.aic) return;
    if (masked("syncall", site)) return;
    drain(c);
    stat_slot(S, "SyncAll").count += 1;
    auto& in = vector_only ? l.barrier_aiv : l.barrier_in;
    uint32_t& epoch = vector_only ? l.barrier_aiv_epoch : l.barrier_epoch;
    in[c.id] = true;
    l.barrier[c.id] = publish(c, c.clock[S]);
    bool all_in = true;
    for (auto& f : l.fibers) {
        if (!(vector_only && f->core.aic) && !in[f->core.id]) all_in = false;
    }
    uint32_t seen = epoch;
    if (all_in) {
        Clock all;
        for (auto& f : l.fibers) {
            if (vector_only && f->core.aic) continue;
            all.join_world(l.barrier[f->core.id]);
            in[f->core.id] = false;
        }
        for (auto& f : l.fibers) {
            if (vector_only && f->core.aic) continue;
            for (int p = 0; p < kPipes; ++p) f->core.clock[p].join_world(all.world);
        }
        ++epoch;
        return;
    }
    uint32_t* e = &epoch;
    block_until([e, seen] { return *e != seen; }, op, site);
}

/// Set and taken in order: each IBSet releases one IBWait of the same block and event.
MOEC_CPU_FN void ib_set(int32_t block, int32_t event, Site site)
{
    Core& c = core(site);
    g_running.last = site;
    if (masked("set", site)) return;
    drain(c);
    g_launch_now->ib[{block, event}].push_back({publish(c, c.clock[S]), site});
    stat_slot(S, "IBSet").count += 1;
}

MOEC_CPU_FN void ib_wait(int32_t block, int32_t event, Site site)
{
    Core& c = core(site);
    g_running.last = site;
    auto* q = &g_launch_now->ib[{block, event}];
    block_until([q] { return !q->empty(); }, fmt("IBWait(%d, %d)", block, event), site);
    CrossSet set = q->front();
    q->pop_front();
    if (masked("wait", site)) return;
    for (int p = 0; p < kPipes; ++p) c.clock[p].join_world(set.world);
    stat_slot(S, "IBWait").count += 1;
}

}  // namespace moec_cpu

namespace AscendC {

template <uint8_t modeId, pipe_t pipe>
void CrossCoreSetFlag(uint16_t flagId, Site site = Site::here())
{
    moec_cpu::cross_set(modeId, pipe, flagId, site);
}

template <uint8_t modeId = 0, pipe_t pipe = PIPE_S>
void CrossCoreWaitFlag(uint16_t flagId, Site site = Site::here())
{
    moec_cpu::cross_wait(flagId, site);
}

template <bool isAIVOnly = true>
void SyncAll(Site site = Site::here())
{
    moec_cpu::sync_all(isAIVOnly, site, "SyncAll", true);
}

/// Software form: needs 32 bytes a core in both workspaces. It orders the cores as the hardware form does.
template <bool isAIVOnly = true>
void SyncAll(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace, const int32_t usedCores = 0,
             Site site = Site::here())
{
    using namespace moec_cpu;
    Core& c = core(site);
    uint32_t cores = usedCores > 0 ? static_cast<uint32_t>(usedCores) : g_launch_now->block_dim;
    if (cores != g_launch_now->block_dim) {
        refuse(site, "unsupported software barrier", fmt("SyncAll over %u of %u cores; the model joins all of them", cores, g_launch_now->block_dim));
    }
    if (ubWorkspace.ref().addr + cores * 32 > ubWorkspace.ref().hi) {
        refuse(site, "workspace too small", fmt("SyncAll needs %u bytes of ubWorkspace for %u cores", cores * 32, cores));
    }
    Allocation* a = find_allocation(gmWorkspace.ref().addr);
    if (!a || a->freed || gmWorkspace.ref().addr + cores * 32 > a->begin + a->size || gmWorkspace.ref().addr + cores * 32 > gmWorkspace.ref().hi) {
        refuse(site, "workspace too small", fmt("SyncAll needs %u bytes of gmWorkspace for %u cores", cores * 32, cores));
    }
    if (!a->all_written(gmWorkspace.ref().addr - a->begin, gmWorkspace.ref().addr - a->begin + cores * 32)) {
        refuse(site, "workspace not cleared", "gmWorkspace of SyncAll must be zero before the kernel starts (aclrtMemset)");
    }
    (void)c;
    sync_all(isAIVOnly, site, "SyncAll", false);
}

/// IBSet announces event `eventID` of block `blockIdx`, IBWait waits for it: one core hands over to another.
template <bool isAIVOnly = true>
void IBSet(const GlobalTensor<int32_t>&, const LocalTensor<int32_t>&, int32_t blockIdx, int32_t eventID, Site site = Site::here())
{
    moec_cpu::ib_set(blockIdx, eventID, site);
}
template <bool isAIVOnly = true>
void IBWait(const GlobalTensor<int32_t>&, const LocalTensor<int32_t>&, int32_t blockIdx, int32_t eventID, Site site = Site::here())
{
    moec_cpu::ib_wait(blockIdx, eventID, site);
}

}  // namespace AscendC
