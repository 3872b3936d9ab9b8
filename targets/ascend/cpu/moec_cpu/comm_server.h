// The process that does the collectives of a run: it gets every rank's operands, checks that ranks come to the same ones
// in the same order, does them, and answers. It knows who waits, so that a deadlock ends the run with a message.
#pragma once
#include <algorithm>
#include <deque>
#include <fcntl.h>
#include <map>
#include <poll.h>
#include "moec_cpu/comm_reduce.h"

namespace moec_cpu {

struct Peer {
    int fd = -1;
    int rank = -1;
    bool finished = false;
    bool blocked = false;
    uint64_t answered = 0;  // results sent to it
};

struct Meeting {
    std::vector<std::deque<Post>> queues;  // by place in the communicator
};

struct Server {
    int listener = -1;
    uint32_t ranks = 0;
    bool started = false;
    std::vector<Peer> peers;
    std::map<std::string, Meeting> meetings;

    MOEC_CPU_FN Peer* of(uint32_t rank)
    {
        for (Peer& p : peers) {
            if (p.rank == static_cast<int>(rank)) return &p;
        }
        return nullptr;
    }

    /// Ends the run: `rank` gets the message, the others are told to stop.
    [[noreturn]] MOEC_CPU_FN void fail(int rank, const std::string& what)
    {
        for (Peer& p : peers) {
            if (p.fd >= 0) send_frame(p.fd, p.rank == rank ? Wire::Error : Wire::Stop, what);
        }
        _exit(0);
    }

    MOEC_CPU_FN std::string told(const Post& p) const
    {
        return "rank " + std::to_string(p.members[p.place]) + " calls " + p.call + " at " + p.site;
    }

    MOEC_CPU_FN static bool alike(const Post& a, const Post& b)
    {
        return a.op == b.op && a.type == b.type && a.reduce == b.reduce && a.root == b.root && a.count == b.count;
    }

    MOEC_CPU_FN void post(Post p)
    {
        Meeting& m = meetings[p.comm];
        m.queues.resize(p.members.size());
        uint32_t place = p.place;
        m.queues[place].push_back(std::move(p));
        if (m.queues[place].size() > 1) return;
        const Post& mine = m.queues[place].front();
        for (auto& q : m.queues) {
            if (q.empty() || alike(q.front(), mine)) continue;
            const Post *a = &q.front(), *b = &mine;
            if (a->place > b->place) std::swap(a, b);
            fail(static_cast<int>(a->members[a->place]), "collectives over " + mine.name + " do not match: " + told(*a) + ", " + told(*b));
        }
        while (std::all_of(m.queues.begin(), m.queues.end(), [](auto& q) { return !q.empty(); })) meet(m);
    }

    MOEC_CPU_FN void meet(Meeting& m)
    {
        std::vector<Post> posts;
        for (auto& q : m.queues) {
            posts.push_back(std::move(q.front()));
            q.pop_front();
        }
        for (const Post& p : posts) {
            if (!alike(p, posts[0])) fail(static_cast<int>(posts[0].members[0]), "collectives over " + p.name + " do not match: " + told(posts[0]) + ", " + told(p));
        }
        std::vector<std::string> results = done(posts);
        for (size_t i = 0; i < posts.size(); ++i) {
            Peer* to = of(posts[i].members[i]);
            Packer k;
            k.u64(posts[i].ticket);
            k.text(results[i]);
            if (!to || !send_frame(to->fd, Wire::Result, k.out)) continue;
            ++to->answered;
            to->blocked = false;
        }
    }

    /// What each member gets.
    MOEC_CPU_FN std::vector<std::string> done(const std::vector<Post>& posts)
    {
        const Post& first = posts[0];
        size_t ranks_ = posts.size();
        std::vector<std::string> out(ranks_);
        std::vector<const std::string*> parts;
        for (const Post& p : posts) parts.push_back(&p.data);
        if (first.op == "HcclAllReduce") {
            out.assign(ranks_, reduced(parts, first.type, first.reduce));
        } else if (first.op == "HcclReduceScatter") {
            std::string whole = reduced(parts, first.type, first.reduce);
            for (size_t i = 0; i < ranks_; ++i) out[i] = whole.substr(i * whole.size() / ranks_, whole.size() / ranks_);
        } else if (first.op == "HcclAllGather") {
            for (const std::string* p : parts) out[0] += *p;
            out.assign(ranks_, std::string(out[0]));
        } else if (first.op == "HcclBroadcast") {
            out.assign(ranks_, posts[first.root].data);
        } else if (first.op == "HcclAlltoAll") {
            for (size_t i = 0; i < ranks_; ++i) {
                for (const std::string* p : parts) out[i] += p->substr(i * p->size() / ranks_, p->size() / ranks_);
            }
        } else if (first.op == "HcclAlltoAllV") {
            exchange(posts, out);
        }
        return out;
    }

    MOEC_CPU_FN void exchange(const std::vector<Post>& posts, std::vector<std::string>& out)
    {
        size_t width = size_of(posts[0].type);
        for (size_t i = 0; i < posts.size(); ++i) {
            for (size_t j = 0; j < posts.size(); ++j) {
                if (posts[j].send[i] == posts[i].receive[j]) continue;
                fail(static_cast<int>(posts[i].members[i]), "HcclAlltoAllV over " + posts[i].name + " does not match: " + told(posts[i]) + " and expects " +
                         std::to_string(posts[i].receive[j]) + " elements of rank " + std::to_string(posts[j].members[j]) + ", which sends " +
                         std::to_string(posts[j].send[i]));
            }
        }
        for (const Post& from : posts) {
            size_t at = 0;
            for (size_t i = 0; i < posts.size(); ++i) {
                out[i].append(from.data, at, from.send[i] * width);
                at += from.send[i] * width;
            }
        }
    }

    /// Where no rank can go on: all wait or have finished, and every answer has been taken.
    MOEC_CPU_FN void look_for_deadlock()
    {
        if (!started || peers.size() < ranks) return;
        bool any = false;
        for (const Peer& p : peers) {
            if (!p.finished && !p.blocked) return;
            any = any || p.blocked;
        }
        if (!any) return;
        std::map<uint32_t, std::string> where;
        for (auto& entry : meetings) {
            for (auto& q : entry.second.queues) {
                if (q.empty()) continue;
                const Post& p = q.front();
                where.emplace(p.members[p.place], p.call + " over " + p.name + " at " + p.site);
            }
        }
        std::vector<std::pair<std::string, std::string>> ranks_at;  // where, which; by the first of them
        int first = -1;
        for (uint32_t r = 0; r < ranks; ++r) {
            Peer* p = of(r);
            if (p && p->blocked && first < 0) first = p->rank;
            std::string at = p && p->finished ? "at the end" : where.count(r) ? "in " + where[r] : "on its streams";
            auto known = std::find_if(ranks_at.begin(), ranks_at.end(), [&](auto& e) { return e.first == at; });
            if (known == ranks_at.end()) ranks_at.push_back({at, std::to_string(r)});
            else known->second += ", " + std::to_string(r);
        }
        std::string text = "deadlock: ranks wait for one another in vain";
        for (auto& entry : ranks_at) text += "; rank " + entry.second + " " + entry.first;
        fail(first, text);
    }

    /// One message of a rank; false when it is gone.
    MOEC_CPU_FN bool take(Peer& p)
    {
        Wire kind;
        std::string body;
        if (!receive_frame(p.fd, kind, body)) return false;
        Unpacker k{body};
        if (kind == Wire::Hello) {
            p.rank = static_cast<int>(k.u32());
            uint32_t count = k.u32();
            if (ranks != 0 && count != ranks) fail(p.rank, "rank " + std::to_string(p.rank) + " joins " + std::to_string(count) + " ranks, others " + std::to_string(ranks));
            for (Peer& o : peers) {
                if (&o != &p && o.rank == p.rank) fail(p.rank, "two processes join as rank " + std::to_string(p.rank));
            }
            ranks = count;
            if (peers.size() == ranks && std::all_of(peers.begin(), peers.end(), [](Peer& o) { return o.rank >= 0; })) {
                started = true;
                for (Peer& o : peers) send_frame(o.fd, Wire::Ready, "");
            }
        } else if (kind == Wire::Post) {
            post(unpack_post(body));
        } else if (kind == Wire::Blocked) {
            p.blocked = k.u64() == p.answered;
            look_for_deadlock();
        } else if (kind == Wire::Bye) {
            p.finished = true;
            look_for_deadlock();
        }
        return true;
    }

    MOEC_CPU_FN void serve(int seconds)
    {
        while (true) {
            std::vector<pollfd> fds;
            if (!started) fds.push_back({listener, POLLIN, 0});
            size_t skip = fds.size();
            std::vector<size_t> who;
            for (size_t i = 0; i < peers.size(); ++i) {
                if (peers[i].fd < 0) continue;
                fds.push_back({peers[i].fd, POLLIN, 0});
                who.push_back(i);
            }
            if (started && who.empty()) return;
            int ready = poll(fds.data(), fds.size(), started ? -1 : seconds * 1000);
            if (ready < 0 && errno == EINTR) continue;
            if (ready <= 0) {
                std::string missing;
                for (uint32_t r = 0; r < ranks; ++r) {
                    if (!of(r)) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
                }
                fail(peers.empty() ? -1 : peers[0].rank, "rank " + missing + " has not joined within " + std::to_string(seconds) + " seconds");
            }
            for (size_t i = skip; i < fds.size(); ++i) {
                if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
                Peer& p = peers[who[i - skip]];
                if (take(p)) continue;
                if (!p.finished) fail(-1, "rank " + std::to_string(p.rank) + " has stopped");
                close(p.fd);
                p.fd = -1;
            }
            if (skip && (fds[0].revents & POLLIN)) {
                Peer p;
                p.fd = accept(listener, nullptr, nullptr);
                if (p.fd >= 0) peers.push_back(p);
            }
        }
    }
};

/// Starts the process; false where the system refuses.
MOEC_CPU_FN bool start_server(const std::string& name, int seconds)
{
    sockaddr_un address;
    socklen_t length = address_of(name, address);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1024) != 0) return false;
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        int nothing = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; ++fd) dup2(nothing, fd);
        Server server;
        server.listener = listener;
        server.serve(seconds);
        _exit(0);
    }
    close(listener);
    return true;
}

}  // namespace moec_cpu
