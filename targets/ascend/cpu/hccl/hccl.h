// HCCL's host API: communicators and collectives. Each rank is a process; one more does the collectives (comm_server.h).
#pragma once
#include "acl/acl.h"
#include "hccl/hccl_types.h"
#include "moec_cpu/comm_client.h"

inline void HcclCommConfigInit(HcclCommConfig* config)
{
    *config = {};
    uint64_t size = sizeof(HcclCommConfig);
    std::memcpy(config->reserved, &size, sizeof size);
    std::memcpy(config->reserved + sizeof size, &HCCL_COMM_CONFIG_MAGIC_WORD, sizeof HCCL_COMM_CONFIG_MAGIC_WORD);
    config->hcclBufferSize = HCCL_COMM_DEFAULT_BUFFSIZE;
}

MOEC_CPU_FN HcclResult HcclGetRootInfo(HcclRootInfo* rootInfo)
{
    if (!rootInfo) return HCCL_E_PTR;
    static int made = 0;
    const char* seconds = std::getenv("MOEC_CPU_JOIN");
    std::string name = moec_cpu::fmt("moec-hccl-%d-%d", static_cast<int>(getpid()), made++);
    if (!moec_cpu::start_server(name, seconds ? std::atoi(seconds) : 60)) return HCCL_E_SYSCALL;
    std::memset(rootInfo->internal, 0, sizeof rootInfo->internal);
    std::memcpy(rootInfo->internal, name.data(), name.size());
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank, HcclComm* comm, MoecSite site = MoecSite::here())
{
    if (!rootInfo || !comm) return HCCL_E_PTR;
    if (nRanks == 0 || rank >= nRanks) return HCCL_E_PARA;
    return moec_cpu::join_world(nRanks, rootInfo->internal, rank, comm, site);
}

MOEC_CPU_FN HcclResult HcclCreateSubCommConfig(HcclComm* comm, uint32_t rankNum, uint32_t* rankIds, uint64_t subCommId, uint32_t subCommRankId,
                                               HcclCommConfig* config, HcclComm* subComm, MoecSite site = MoecSite::here())
{
    if (!comm || !rankIds || !config || !subComm) return HCCL_E_PTR;
    uint32_t magic = 0;
    std::memcpy(&magic, config->reserved + sizeof(uint64_t), sizeof magic);
    moec_cpu::Communicator* whole = moec_cpu::communicator(*comm, site, "HcclCreateSubCommConfig");
    bool ordered = true;
    for (uint32_t i = 0; i < rankNum; ++i) ordered = ordered && rankIds[i] < whole->members.size() && (i == 0 || rankIds[i] > rankIds[i - 1]);
    if (magic != HCCL_COMM_CONFIG_MAGIC_WORD || !whole->world || !ordered || subCommRankId >= rankNum || rankIds[subCommRankId] != moec_cpu::g_comm.rank) {
        return HCCL_E_PARA;
    }
    auto c = std::make_unique<moec_cpu::Communicator>();
    c->members.assign(rankIds, rankIds + rankNum);
    c->place = subCommRankId;
    c->key = moec_cpu::fmt("sub%llu:", static_cast<unsigned long long>(subCommId));
    for (uint32_t r : c->members) c->key += std::to_string(r) + ",";
    c->name = config->hcclCommName[0] ? config->hcclCommName : c->key;
    moec_cpu::Post p;
    p.comm = c->key;
    p.name = c->name;
    p.members = c->members;
    p.place = c->place;
    p.op = "HcclCreateSubCommConfig";
    p.call = moec_cpu::fmt("HcclCreateSubCommConfig of %u ranks", rankNum);
    p.site = moec_cpu::fmt("%s:%d", site.file, site.line);
    moec_cpu::g_comm.site = site;
    uint64_t ticket = moec_cpu::send_post(p);
    while (!moec_cpu::g_comm.results.count(ticket)) moec_cpu::wait_for_ranks();
    moec_cpu::g_comm.results.erase(ticket);
    *subComm = c.get();
    moec_cpu::g_comm.made.push_back(std::move(c));
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclCommDestroy(HcclComm comm, MoecSite site = MoecSite::here())
{
    if (!comm) return HCCL_E_PTR;
    moec_cpu::Communicator* c = moec_cpu::communicator(comm, site, "HcclCommDestroy");
    c->destroyed = true;
    if (c->world) {
        moec_cpu::run_all_streams();
        moec_cpu::send_frame(moec_cpu::g_comm.fd, moec_cpu::Wire::Bye, "");
        close(moec_cpu::g_comm.fd);
        moec_cpu::g_comm.fd = -1;
    }
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclGetRankSize(HcclComm comm, uint32_t* rankSize, MoecSite site = MoecSite::here())
{
    if (!comm || !rankSize) return HCCL_E_PTR;
    *rankSize = static_cast<uint32_t>(moec_cpu::communicator(comm, site, "HcclGetRankSize")->members.size());
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank, MoecSite site = MoecSite::here())
{
    if (!comm || !rank) return HCCL_E_PTR;
    *rank = moec_cpu::communicator(comm, site, "HcclGetRankId")->place;
    return HCCL_SUCCESS;
}

namespace moec_cpu {

/// The parts that all collectives have; `sent` and `got` are elements.
MOEC_CPU_FN Exchange exchange_of(const char* op, HcclComm comm, uint32_t type, uint64_t count, const void* from, uint64_t sent, void* to, uint64_t got, Site site)
{
    Communicator* c = communicator(comm, site, op);
    Exchange e;
    e.post.comm = c->key;
    e.post.name = c->name;
    e.post.members = c->members;
    e.post.place = c->place;
    e.what = op;
    e.post.op = op;
    e.post.call = fmt("%s of %llu %s", op, static_cast<unsigned long long>(count), name_of(type));
    e.post.site = fmt("%s:%d", site.file, site.line);
    e.post.type = type;
    e.post.count = count;
    e.from = static_cast<const char*>(from);
    e.to = static_cast<char*>(to);
    e.pieces = {{0, sent * size_of(type)}};
    e.places = {{0, got * size_of(type)}};
    return e;
}

MOEC_CPU_FN HcclResult valid(const void* a, const void* b, HcclComm comm, aclrtStream stream, uint32_t type)
{
    if (!a || !b || !comm) return HCCL_E_PTR;
    return known_stream(stream) && size_of(type) > 0 ? HCCL_SUCCESS : HCCL_E_PARA;
}

/// Separate buffers, as AlltoAll and AlltoAllV ask.
MOEC_CPU_FN void require_apart(const char* op, const void* from, const void* to, Site site)
{
    if (from == to) refuse(site, fmt("%s in place", op), "the buffers to send and to receive must differ");
}

}  // namespace moec_cpu

MOEC_CPU_FN HcclResult HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                                     aclrtStream stream, MoecSite site = MoecSite::here())
{
    if (HcclResult wrong = moec_cpu::valid(sendBuf, recvBuf, comm, stream, dataType)) return wrong;
    if (!moec_cpu::reduces(dataType, op)) return HCCL_E_NOT_SUPPORT;
    auto e = moec_cpu::exchange_of("HcclAllReduce", comm, dataType, count, sendBuf, count, recvBuf, count, site);
    e.post.reduce = op;
    moec_cpu::queue_exchange(std::move(e), stream, site);
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, HcclDataType dataType, HcclReduceOp op, HcclComm comm,
                                         aclrtStream stream, MoecSite site = MoecSite::here())
{
    if (HcclResult wrong = moec_cpu::valid(sendBuf, recvBuf, comm, stream, dataType)) return wrong;
    if (!moec_cpu::reduces(dataType, op)) return HCCL_E_NOT_SUPPORT;
    uint64_t ranks = moec_cpu::communicator(comm, site, "HcclReduceScatter")->members.size();
    auto e = moec_cpu::exchange_of("HcclReduceScatter", comm, dataType, recvCount, sendBuf, recvCount * ranks, recvBuf, recvCount, site);
    e.post.reduce = op;
    moec_cpu::queue_exchange(std::move(e), stream, site);
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, HcclDataType dataType, HcclComm comm, aclrtStream stream,
                                     MoecSite site = MoecSite::here())
{
    if (HcclResult wrong = moec_cpu::valid(sendBuf, recvBuf, comm, stream, dataType)) return wrong;
    uint64_t ranks = moec_cpu::communicator(comm, site, "HcclAllGather")->members.size();
    moec_cpu::queue_exchange(moec_cpu::exchange_of("HcclAllGather", comm, dataType, sendCount, sendBuf, sendCount, recvBuf, sendCount * ranks, site), stream, site);
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclBroadcast(void* buf, uint64_t count, HcclDataType dataType, uint32_t root, HcclComm comm, aclrtStream stream,
                                     MoecSite site = MoecSite::here())
{
    if (HcclResult wrong = moec_cpu::valid(buf, buf, comm, stream, dataType)) return wrong;
    moec_cpu::Communicator* c = moec_cpu::communicator(comm, site, "HcclBroadcast");
    if (root >= c->members.size()) return HCCL_E_PARA;
    bool sends = c->place == root;
    auto e = moec_cpu::exchange_of("HcclBroadcast", comm, dataType, count, buf, sends ? count : 0, buf, sends ? 0 : count, site);
    e.post.root = root;
    moec_cpu::queue_exchange(std::move(e), stream, site);
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclAlltoAll(const void* sendBuf, uint64_t sendCount, HcclDataType sendType, const void* recvBuf, uint64_t recvCount,
                                    HcclDataType recvType, HcclComm comm, aclrtStream stream, MoecSite site = MoecSite::here())
{
    if (HcclResult wrong = moec_cpu::valid(sendBuf, recvBuf, comm, stream, sendType)) return wrong;
    if (sendType != recvType || sendCount != recvCount) return HCCL_E_PARA;
    moec_cpu::require_apart("HcclAlltoAll", sendBuf, recvBuf, site);
    uint64_t all = sendCount * moec_cpu::communicator(comm, site, "HcclAlltoAll")->members.size();
    auto e = moec_cpu::exchange_of("HcclAlltoAll", comm, sendType, sendCount, sendBuf, all, const_cast<void*>(recvBuf), all, site);
    moec_cpu::queue_exchange(std::move(e), stream, site);
    return HCCL_SUCCESS;
}

MOEC_CPU_FN HcclResult HcclAlltoAllV(const void* sendBuf, const void* sendCounts, const void* sdispls, HcclDataType sendType, const void* recvBuf,
                                     const void* recvCounts, const void* rdispls, HcclDataType recvType, HcclComm comm, aclrtStream stream,
                                     MoecSite site = MoecSite::here())
{
    if (HcclResult wrong = moec_cpu::valid(sendBuf, recvBuf, comm, stream, sendType)) return wrong;
    if (!sendCounts || !sdispls || !recvCounts || !rdispls) return HCCL_E_PTR;
    if (sendType != recvType) return HCCL_E_PARA;
    moec_cpu::require_apart("HcclAlltoAllV", sendBuf, recvBuf, site);
    auto e = moec_cpu::exchange_of("HcclAlltoAllV", comm, sendType, 0, sendBuf, 0, const_cast<void*>(recvBuf), 0, site);
    e.pieces.clear();
    e.places.clear();
    uint64_t total = 0;
    const uint64_t width = moec_cpu::size_of(sendType);
    for (size_t i = 0; i < e.post.members.size(); ++i) {
        const uint64_t out = static_cast<const uint64_t*>(sendCounts)[i], in = static_cast<const uint64_t*>(recvCounts)[i];
        e.post.send.push_back(out);
        e.post.receive.push_back(in);
        e.pieces.push_back({static_cast<const uint64_t*>(sdispls)[i] * width, out * width});
        e.places.push_back({static_cast<const uint64_t*>(rdispls)[i] * width, in * width});
        total += out;
    }
    e.post.call = moec_cpu::fmt("HcclAlltoAllV of %llu %s", static_cast<unsigned long long>(total), moec_cpu::name_of(sendType));
    moec_cpu::queue_exchange(std::move(e), stream, site);
    return HCCL_SUCCESS;
}
