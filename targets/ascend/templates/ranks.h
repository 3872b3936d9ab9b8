// Ranks of the host program: which one this process is, and the communicators of its groups (HCCL).
//
// RANK_ID and RANK_SIZE say which rank this is of how many; DEVICE_ID which device it takes (by default RANK_ID modulo
// the devices of the node). Ranks find one another by the file hccl_root in the common folder, which rank 0 writes and,
// when all have joined, removes.
#ifndef MOEC_RANKS_H
#define MOEC_RANKS_H

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "hccl/hccl.h"

namespace ranks {

[[noreturn]] inline void Fail(const std::string &what)
{
    std::fprintf(stderr, "run: error: %s\n", what.c_str());
    std::exit(1);
}

inline void Check(HcclResult status, const char *what)
{
    if (status != HCCL_SUCCESS) {
        Fail(std::string(what) + " failed with code " + std::to_string(status));
    }
}

inline uint32_t Variable(const char *name)
{
    const char *text = std::getenv(name);
    if (text == nullptr) {
        Fail(std::string("set ") + name + ": the layer is one rank's program");
    }
    return static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

inline uint32_t Own() { return Variable("RANK_ID"); }

inline int32_t Device()
{
    if (std::getenv("DEVICE_ID") != nullptr) {
        return static_cast<int32_t>(Variable("DEVICE_ID"));
    }
    uint32_t devices = 0;
    if (aclrtGetDeviceCount(&devices) != ACL_SUCCESS || devices == 0) {
        Fail("aclrtGetDeviceCount found no device");
    }
    return static_cast<int32_t>(Own() % devices);
}

// All ranks, and how they found one another.
class World {
public:
    explicit World(const std::string &folder) : rank(Own()), size(Variable("RANK_SIZE"))
    {
        if (rank >= size) {
            Fail("RANK_ID is " + std::to_string(rank) + ", RANK_SIZE " + std::to_string(size));
        }
        const std::string path = folder + "/hccl_root";
        HcclRootInfo root = {};
        if (rank == 0) {
            Check(HcclGetRootInfo(&root), "HcclGetRootInfo");
            std::ofstream(path + ".new", std::ios::binary).write(root.internal, sizeof(root.internal));
            if (std::rename((path + ".new").c_str(), path.c_str()) != 0) {
                Fail("cannot write " + path);
            }
        } else {
            Await(path, root);
        }
        Check(HcclCommInitRootInfo(size, &root, rank, &comm), "HcclCommInitRootInfo");
        if (rank == 0) {
            std::remove(path.c_str());
        }
    }

    void Destroy() { Check(HcclCommDestroy(comm), "HcclCommDestroy"); }

    const uint32_t rank;
    const uint32_t size;
    HcclComm comm = nullptr;

private:
    static void Await(const std::string &path, HcclRootInfo &root)
    {
        for (int tries = 0; tries < 6000; ++tries) {
            std::ifstream file(path, std::ios::binary);
            if (file.read(root.internal, sizeof(root.internal))) {
                return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        Fail("rank 0 has not written " + path + " within two minutes");
    }
};

// The set of ranks that this one is in: `size` ranks, `stride` apart.
class Group {
public:
    Group(World &world, const char *name, uint64_t number, int64_t members, int64_t stride)
        : size(static_cast<uint32_t>(members)), place(static_cast<uint32_t>(world.rank / stride % members))
    {
        if (world.size % (members * stride) != 0) {
            Fail("RANK_SIZE is no multiple of " + std::to_string(members * stride) + ", which group " + name + " takes");
        }
        const uint32_t first = world.rank - place * static_cast<uint32_t>(stride);
        std::vector<uint32_t> ids(size);
        for (uint32_t i = 0; i < size; ++i) {
            ids[i] = first + i * static_cast<uint32_t>(stride);
        }
        HcclCommConfig config;
        HcclCommConfigInit(&config);
        config.hcclDeterministic = 1;  // sums of a run are those of the next
        std::snprintf(config.hcclCommName, sizeof(config.hcclCommName), "%s_%u", name, first);
        const uint64_t id = number * world.size + first;
        Check(HcclCreateSubCommConfig(&world.comm, size, ids.data(), id, place, &config, &comm), "HcclCreateSubCommConfig");
    }

    void Destroy() { Check(HcclCommDestroy(comm), "HcclCommDestroy"); }

    // This rank's place in the group, as a tensor of one i64.
    std::vector<char> Place() const
    {
        const int64_t number = place;
        std::vector<char> data(sizeof(number));
        std::memcpy(data.data(), &number, sizeof(number));
        return data;
    }

    const uint32_t size;
    const uint32_t place;
    HcclComm comm = nullptr;
};

// Counts and offsets in elements from a list of rows in host memory.
class Lists {
public:
    Lists(const void *rows, size_t bytes, uint32_t members, uint64_t width) : counts(members), starts(members)
    {
        uint64_t start = 0;
        for (uint32_t i = 0; i < members; ++i) {
            int64_t n = 0;
            if (bytes == sizeof(int32_t)) {
                n = static_cast<const int32_t *>(rows)[i];
            } else {
                n = static_cast<const int64_t *>(rows)[i];
            }
            if (n < 0) {
                Fail("a list of rows for all_to_all_v holds " + std::to_string(n));
            }
            counts[i] = static_cast<uint64_t>(n) * width;
            starts[i] = start;
            start += counts[i];
        }
    }

    // The rows of all members fill a tensor of `elements`.
    void Fit(uint64_t elements, const char *name) const
    {
        const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
        if (total != elements) {
            Fail(std::string("all_to_all_v of ") + std::to_string(total) + " elements, and " + name + " has " + std::to_string(elements));
        }
    }

    std::vector<uint64_t> counts;
    std::vector<uint64_t> starts;
};

}  // namespace ranks

#endif  // MOEC_RANKS_H
