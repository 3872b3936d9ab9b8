// Messages between the ranks of a run and the process that does their collectives: a length, a kind, and fields.
#pragma once
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>
#include "moec_cpu/linkage.h"
#include "hccl/hccl_types.h"

namespace moec_cpu {

enum class Wire : uint32_t { Hello, Ready, Post, Result, Blocked, Bye, Error, Stop };

/// One collective of one rank.
struct Post {
    uint64_t ticket = 0;
    std::string comm;              // members and id: equal for those that meet
    std::string name;              // of the communicator, for people
    std::vector<uint32_t> members;
    uint32_t place = 0;            // of this rank among them
    std::string call;              // function, count and type
    std::string site;              // file and line of the call
    std::string op;
    uint32_t type = 0, reduce = 0, root = 0;
    uint64_t count = 0;            // what must be equal on all members (none for AlltoAllV)
    std::vector<uint64_t> send, receive;
    std::string data;
};

/// Writes fields one after the other.
struct Packer {
    std::string out;
    void raw(const void* p, size_t n) { out.append(static_cast<const char*>(p), n); }
    void u32(uint32_t v) { raw(&v, 4); }
    void u64(uint64_t v) { raw(&v, 8); }
    void text(const std::string& s) { u64(s.size()); out += s; }
    template <typename T>
    void list(const std::vector<T>& v)
    {
        u64(v.size());
        raw(v.data(), v.size() * sizeof(T));
    }
};

/// Reads them in the same order.
struct Unpacker {
    const std::string& in;
    size_t at = 0;
    void raw(void* p, size_t n) { std::memcpy(p, in.data() + at, n); at += n; }
    uint32_t u32() { uint32_t v; raw(&v, 4); return v; }
    uint64_t u64() { uint64_t v; raw(&v, 8); return v; }
    std::string text() { size_t n = u64(); std::string s = in.substr(at, n); at += n; return s; }
    template <typename T>
    std::vector<T> list()
    {
        std::vector<T> v(u64());
        raw(v.data(), v.size() * sizeof(T));
        return v;
    }
};

MOEC_CPU_FN std::string pack_post(const Post& p)
{
    Packer k;
    k.u64(p.ticket);
    k.text(p.comm);
    k.text(p.name);
    k.list(p.members);
    k.u32(p.place);
    k.text(p.call);
    k.text(p.site);
    k.text(p.op);
    k.u32(p.type);
    k.u32(p.reduce);
    k.u32(p.root);
    k.u64(p.count);
    k.list(p.send);
    k.list(p.receive);
    k.text(p.data);
    return k.out;
}

MOEC_CPU_FN Post unpack_post(const std::string& body)
{
    Unpacker k{body};
    Post p;
    p.ticket = k.u64();
    p.comm = k.text();
    p.name = k.text();
    p.members = k.list<uint32_t>();
    p.place = k.u32();
    p.call = k.text();
    p.site = k.text();
    p.op = k.text();
    p.type = k.u32();
    p.reduce = k.u32();
    p.root = k.u32();
    p.count = k.u64();
    p.send = k.list<uint64_t>();
    p.receive = k.list<uint64_t>();
    p.data = k.text();
    return p;
}

/// False when the other side is gone.
MOEC_CPU_FN bool send_all(int fd, const void* data, size_t n)
{
    const char* p = static_cast<const char*>(data);
    while (n > 0) {
        ssize_t done = ::send(fd, p, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        n -= static_cast<size_t>(done);
    }
    return true;
}

MOEC_CPU_FN bool send_frame(int fd, Wire kind, const std::string& body)
{
    uint64_t head[2] = {body.size(), static_cast<uint64_t>(kind)};
    return send_all(fd, head, sizeof head) && send_all(fd, body.data(), body.size());
}

MOEC_CPU_FN bool receive_all(int fd, void* data, size_t n)
{
    char* p = static_cast<char*>(data);
    while (n > 0) {
        ssize_t done = ::recv(fd, p, n, 0);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        n -= static_cast<size_t>(done);
    }
    return true;
}

MOEC_CPU_FN bool receive_frame(int fd, Wire& kind, std::string& body)
{
    uint64_t head[2];
    if (!receive_all(fd, head, sizeof head)) return false;
    kind = static_cast<Wire>(head[1]);
    body.resize(head[0]);
    return receive_all(fd, body.data(), body.size());
}

/// The address of a name that no file stands for.
MOEC_CPU_FN socklen_t address_of(const std::string& name, sockaddr_un& address)
{
    address = {};
    address.sun_family = AF_UNIX;
    size_t n = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), n);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
}

MOEC_CPU_FN size_t size_of(uint32_t type)
{
    static const size_t sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
    return type < 12 ? sizes[type] : 0;
}

MOEC_CPU_FN const char* name_of(uint32_t type)
{
    static const char* names[] = {"int8", "int16", "int32", "float16", "float32", "int64", "uint64", "uint8", "uint16", "uint32", "float64", "bfp16"};
    return type < 12 ? names[type] : "?";
}

}  // namespace moec_cpu
