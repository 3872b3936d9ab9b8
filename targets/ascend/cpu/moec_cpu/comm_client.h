// A rank's side of collectives: communicators, and tasks on streams that send operands and wait for results.
#pragma once
#include <fcntl.h>
#include "moec_cpu/acl_stream.h"
#include "moec_cpu/comm_server.h"

namespace moec_cpu {

constexpr int kStoppedExit = 87;  // another rank has failed, and said why

struct Communicator {
    std::string name;
    std::string key;
    std::vector<uint32_t> members;
    uint32_t place = 0;
    bool world = false;
    bool destroyed = false;
};

struct CommClient {
    int fd = -1;
    uint32_t rank = 0;
    uint64_t tickets = 0, answered = 0;
    std::map<uint64_t, std::string> results;
    Site site{"?", 0};  // of the collective that it came to last
    std::vector<std::unique_ptr<Communicator>> made;
};
MOEC_CPU_VAR CommClient g_comm;

/// Takes one message, which must be there or come.
MOEC_CPU_FN void take_frame()
{
    Wire kind;
    std::string body;
    if (!receive_frame(g_comm.fd, kind, body)) {
        std::fprintf(stderr, "moec-cpu: rank %u stops: the other ranks are gone\n", g_comm.rank);
        _exit(kStoppedExit);
    }
    if (kind == Wire::Error) refuse(g_comm.site, fmt("rank %u stopped", g_comm.rank), body);
    if (kind == Wire::Stop) {
        std::fprintf(stderr, "moec-cpu: rank %u stops: %s\n", g_comm.rank, body.c_str());
        _exit(kStoppedExit);
    }
    if (kind != Wire::Result) return;
    Unpacker k{body};
    uint64_t ticket = k.u64();
    g_comm.results[ticket] = k.text();
    ++g_comm.answered;
}

/// Takes the messages that have come.
MOEC_CPU_FN void take_frames()
{
    pollfd p{g_comm.fd, POLLIN, 0};
    while (poll(&p, 1, 0) > 0) take_frame();
}

/// Nothing goes on here until another rank does something.
MOEC_CPU_FN void wait_for_ranks()
{
    Packer k;
    k.u64(g_comm.answered);
    send_frame(g_comm.fd, Wire::Blocked, k.out);
    take_frame();
}

MOEC_CPU_FN HcclResult join_world(uint32_t ranks, const std::string& name, uint32_t rank, HcclComm* comm, Site site)
{
    if (g_comm.fd >= 0) refuse(site, "HcclCommInitRootInfo twice", "a process has one communicator of all ranks; make others with HcclCreateSubCommConfig");
    sockaddr_un address;
    socklen_t length = address_of(name, address);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) return HCCL_E_TIMEOUT;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    g_comm.fd = fd;
    g_comm.rank = rank;
    g_comm.site = site;
    g_idle = wait_for_ranks;
    Packer k;
    k.u32(rank);
    k.u32(ranks);
    send_frame(fd, Wire::Hello, k.out);
    take_frame();  // Ready, or an error
    auto c = std::make_unique<Communicator>();
    c->name = "all ranks";
    c->key = "world";
    for (uint32_t r = 0; r < ranks; ++r) c->members.push_back(r);
    c->place = rank;
    c->world = true;
    *comm = c.get();
    g_comm.made.push_back(std::move(c));
    return HCCL_SUCCESS;
}

MOEC_CPU_FN Communicator* communicator(HcclComm comm, Site site, const char* op)
{
    for (auto& c : g_comm.made) {
        if (c.get() == comm && !c->destroyed) return c.get();
    }
    refuse(site, fmt("%s over a communicator that does not exist", op), "make it with HcclCommInitRootInfo or HcclCreateSubCommConfig");
}

/// What a call gives a task to do.
struct Exchange {
    Post post;
    const char* what = "";
    const char* from = nullptr;
    uint64_t from_bytes = 0;
    std::vector<std::pair<uint64_t, uint64_t>> pieces;  // of `from`, where it is not sent as a whole: start, bytes
    char* to = nullptr;
    uint64_t to_bytes = 0;
    std::vector<std::pair<uint64_t, uint64_t>> places;  // in `to`, likewise
    bool posted = false;
};

MOEC_CPU_FN uint64_t send_post(Post& p)
{
    p.ticket = ++g_comm.tickets;
    if (!send_frame(g_comm.fd, Wire::Post, pack_post(p))) take_frame();
    return p.ticket;
}

MOEC_CPU_FN void check_sent(const Exchange& e, Site site)
{
    for (auto& [start, bytes] : e.pieces) {
        if (bytes == 0) continue;
        check_side(e.from + start, bytes, true, false, site, e.post.op.c_str());
        Allocation* a = find_allocation(reinterpret_cast<uint64_t>(e.from + start));
        uint64_t at = reinterpret_cast<uint64_t>(e.from + start) - a->begin;
        if (!a->all_written(at, at + bytes)) {
            refuse(site, fmt("%s sends memory that nothing has written", e.post.op.c_str()), "wait for what makes it before the collective");
        }
    }
    for (auto& [start, bytes] : e.places) {
        if (bytes > 0) check_side(e.to + start, bytes, true, true, site, e.post.op.c_str());
    }
}

/// Puts a collective on a stream. All ranks' members must come to it; what it gives is there when the task is over.
MOEC_CPU_FN void queue_exchange(Exchange given, aclrtStream stream, Site site)
{
    auto e = std::make_shared<Exchange>(std::move(given));
    Task t;
    t.site = site;
    t.what = e->what;
    for (auto& [start, bytes] : e->pieces) t.touched.push_back({reinterpret_cast<uint64_t>(e->from) + start, bytes, false});
    for (auto& [start, bytes] : e->places) t.touched.push_back({reinterpret_cast<uint64_t>(e->to) + start, bytes, true});
    for (const Touched& r : t.touched) t.pointers.push_back(r.begin);
    t.ready = [e, site] {
        g_comm.site = site;
        if (!e->posted) {
            check_sent(*e, site);
            for (auto& [start, bytes] : e->pieces) {
                if (bytes > 0) e->post.data.append(e->from + start, bytes);
            }
            send_post(e->post);
            e->post.data.clear();
            e->posted = true;
        }
        take_frames();
        return g_comm.results.count(e->post.ticket) > 0;
    };
    t.run = [e] {
        const std::string& got = g_comm.results[e->post.ticket];
        uint64_t at = 0;
        for (auto& [start, bytes] : e->places) {
            if (bytes == 0) continue;
            std::memcpy(e->to + start, got.data() + at, bytes);
            mark_copied(e->to + start, nullptr, bytes);
            at += bytes;
        }
        g_comm.results.erase(e->post.ticket);
    };
    enqueue(stream_of(stream), std::move(t));
}

}  // namespace moec_cpu
