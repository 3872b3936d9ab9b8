// Test programs: kernels named CASE(x)(in, out); stdin is `in`, stdout is `out`.
//   program CASE_NAME   runs one case; a case says how many bytes come out and on how many blocks it runs.
#pragma once
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "acl/acl.h"
#include "kernel_operator.h"

using namespace AscendC;

struct Case {
    size_t out_bytes;
    std::function<void(aclrtStream, void*, void*)> launch;
};

inline std::map<std::string, Case>& cases()
{
    static std::map<std::string, Case> all;
    return all;
}

struct AddCase {
    AddCase(const char* name, size_t out_bytes, std::function<void(aclrtStream, void*, void*)> launch) { cases()[name] = {out_bytes, launch}; }
};

#define CASE(name, type, out_bytes, blocks)                                                                        \
    extern "C" __global__ __aicore__ void name(GM_ADDR in, GM_ADDR out);                                           \
    static AddCase add_##name(#name, out_bytes, [](aclrtStream s, void* in, void* out) {                           \
        ACLRT_LAUNCH_KERNEL(name)(blocks, s, in, out);                                                             \
    });                                                                                                            \
    static void body_##name(GM_ADDR in, GM_ADDR out);                                                              \
    extern "C" __global__ __aicore__ void name(GM_ADDR in, GM_ADDR out)                                            \
    {                                                                                                              \
        KERNEL_TASK_TYPE_DEFAULT(type);                                                                            \
        body_##name(in, out);                                                                                      \
    }                                                                                                              \
    static void body_##name([[maybe_unused]] GM_ADDR in, [[maybe_unused]] GM_ADDR out)
#define VECTOR_CASE(name, out_bytes) CASE(name, KERNEL_TYPE_AIV_ONLY, out_bytes, 1)
#define CUBE_CASE(name, out_bytes) CASE(name, KERNEL_TYPE_AIC_ONLY, out_bytes, 1)

/// One UB, loads and stores with the flags they need.
struct Bench {
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    GM_ADDR in;
    GM_ADDR out;
    Bench(GM_ADDR i, GM_ADDR o) : in(i), out(o) { pipe.InitBuffer(ub, 190 * 1024); }
    template <typename T>
    LocalTensor<T> at(uint32_t byte, uint32_t count)
    {
        return ub.GetWithOffset<T>(count, byte);
    }
    template <typename T>
    LocalTensor<T> load(uint32_t byte, uint32_t count, uint32_t gm_byte)
    {
        LocalTensor<T> t = at<T>(byte, (count * sizeof(T) + 31) / 32 * 32 / sizeof(T));
        GlobalTensor<T> g;
        g.SetGlobalBuffer((__gm__ T*)(in + gm_byte));
        DataCopyPad(t, g, DataCopyExtParams(1, count * sizeof(T), 0, 0, 0), DataCopyPadExtParams<T>());
        SetFlag<HardEvent::MTE2_V>(0);
        WaitFlag<HardEvent::MTE2_V>(0);
        return t;
    }
    template <typename T>
    void store(const LocalTensor<T>& t, uint32_t count, uint32_t gm_byte = 0)
    {
        GlobalTensor<T> g;
        g.SetGlobalBuffer((__gm__ T*)(out + gm_byte));
        SetFlag<HardEvent::V_MTE3>(0);
        WaitFlag<HardEvent::V_MTE3>(0);
        DataCopyPad(g, t, DataCopyExtParams(1, count * sizeof(T), 0, 0, 0));
    }
};

inline int run_case(int argc, char** argv)
{
    auto found = cases().find(argc > 1 ? argv[1] : "");
    if (found == cases().end()) return 64;
    std::vector<char> bytes;
    char chunk[65536];
    for (size_t n; (n = std::fread(chunk, 1, sizeof chunk, stdin)) > 0;) bytes.insert(bytes.end(), chunk, chunk + n);
    aclInit(nullptr);
    aclrtSetDevice(0);
    aclrtStream stream;
    aclrtCreateStream(&stream);
    void *in = nullptr, *out = nullptr;
    size_t out_bytes = found->second.out_bytes;
    aclrtMalloc(&in, bytes.empty() ? 32 : bytes.size(), ACL_MEM_MALLOC_HUGE_FIRST);
    if (!bytes.empty()) aclrtMemcpy(in, bytes.size(), bytes.data(), bytes.size(), ACL_MEMCPY_HOST_TO_DEVICE);
    aclrtMalloc(&out, out_bytes, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemset(out, out_bytes, 0, out_bytes);
    found->second.launch(stream, in, out);
    aclrtSynchronizeStream(stream);
    std::vector<char> result(out_bytes);
    aclrtMemcpy(result.data(), out_bytes, out, out_bytes, ACL_MEMCPY_DEVICE_TO_HOST);
    std::fwrite(result.data(), 1, out_bytes, stdout);
    aclrtFree(in);
    aclrtFree(out);
    aclrtDestroyStream(stream);
    aclrtResetDevice(0);
    return aclFinalize();
}

int main(int argc, char** argv) { return run_case(argc, argv); }
