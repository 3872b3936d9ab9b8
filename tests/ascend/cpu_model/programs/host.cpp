// The acl side: error codes, lazy streams, misuse that is refused. Argument: the case.
#include <cstdio>
#include <cstring>
#include <string>
#include "acl/acl.h"
#include "kernel_operator.h"

extern "C" __global__ __aicore__ void scale(GM_ADDR x, float by, int32_t count, bool negate)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
    AscendC::LocalTensor<float> t(AscendC::TPosition::VECIN, 0, 64);
    AscendC::GlobalTensor<float> g;
    g.SetGlobalBuffer((__gm__ float*)x, count);
    AscendC::DataCopy(t, g, count);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(0);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(0);
    AscendC::Muls(t, t, negate ? -by : by, count);
    AscendC::SetFlag<AscendC::HardEvent::V_MTE3>(0);
    AscendC::WaitFlag<AscendC::HardEvent::V_MTE3>(0);
    AscendC::DataCopy(g, t, count);
}

// declares no type: the first cube memory makes it a cube kernel
extern "C" __global__ __aicore__ void untyped(GM_ADDR x)
{
    AscendC::TPipe pipe;
    AscendC::TBuf<AscendC::TPosition::A1> l1;
    pipe.InitBuffer(l1, 64);
    auto t = l1.Get<float>();
    AscendC::GlobalTensor<float> g;
    g.SetGlobalBuffer((__gm__ float*)x);
    AscendC::DataCopy(t, g, 8);
    AscendC::SetFlag<AscendC::HardEvent::MTE2_MTE3>(0);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_MTE3>(0);
    AscendC::DataCopy(g[8], t, 8);
}

#define EXPECT(value, wanted) \
    if ((value) != (wanted)) std::printf("line %d: %d\n", __LINE__, (int)(value))

int main(int argc, char** argv)
{
    std::string name = argc > 1 ? argv[1] : "";
    void* x = nullptr;
    EXPECT(aclrtMalloc(&x, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT(aclInit(nullptr), ACL_SUCCESS);
    EXPECT(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
    EXPECT(aclrtSetDevice(99), ACL_ERROR_INVALID_DEVICE);
    EXPECT(aclrtSetDevice(0), ACL_SUCCESS);
    aclrtContext context;
    EXPECT(aclrtCreateContext(&context, 0), ACL_SUCCESS);
    aclrtStream stream;
    EXPECT(aclrtCreateStream(&stream), ACL_SUCCESS);
    EXPECT(aclrtMalloc(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMalloc(&x, 0, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMalloc(&x, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    EXPECT((size_t)x % 512, 0u);
    float host[16], back[16];
    for (int i = 0; i < 16; ++i) host[i] = (float)i;
    EXPECT(aclrtMemcpy(x, 32, host, 64, ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_INVALID_PARAM);
    EXPECT(aclrtMemcpy(x, 64, host, 64, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
    void* pinned = nullptr;
    EXPECT(aclrtMallocHost(&pinned, 64), ACL_SUCCESS);
    aclrtEvent event;
    EXPECT(aclrtCreateEvent(&event), ACL_SUCCESS);
    uint32_t devices = 0;
    EXPECT(aclrtGetDeviceCount(&devices), ACL_SUCCESS);

    if (name == "ok") {
        ACLRT_LAUNCH_KERNEL(scale)(1, stream, x, 3.0, 16, true);
        EXPECT(aclrtRecordEvent(event, stream), ACL_SUCCESS);
        EXPECT(aclrtMemcpyAsync(pinned, 64, x, 64, ACL_MEMCPY_DEVICE_TO_HOST, stream), ACL_SUCCESS);
        EXPECT(aclrtSynchronizeEvent(event), ACL_SUCCESS);
        EXPECT(aclrtSynchronizeStream(stream), ACL_SUCCESS);
        EXPECT(aclrtMemcpy(back, 64, pinned, 64, ACL_MEMCPY_HOST_TO_HOST), ACL_SUCCESS);
        for (int i = 0; i < 16; ++i) EXPECT(back[i], -3.0f * i);
        ACLRT_LAUNCH_KERNEL(untyped)(1, stream, x);
        EXPECT(aclrtSynchronizeDevice(), ACL_SUCCESS);
        EXPECT(aclrtMemcpy(back, 64, x, 64, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
        for (int i = 0; i < 16; ++i) EXPECT(back[i], -3.0f * (i % 8));
        EXPECT(aclrtMemset(x, 64, 0, 64), ACL_SUCCESS);
        EXPECT(aclrtFree(x), ACL_SUCCESS);
        EXPECT(aclrtFree(x), ACL_ERROR_INVALID_PARAM);
        EXPECT(aclrtFree(host), ACL_ERROR_INVALID_PARAM);
        EXPECT(aclrtFreeHost(pinned), ACL_SUCCESS);
        EXPECT(aclrtDestroyEvent(event), ACL_SUCCESS);
        EXPECT(aclrtDestroyStream(stream), ACL_SUCCESS);
        EXPECT(aclrtSynchronizeStream(stream), ACL_ERROR_INVALID_RESOURCE_HANDLE);
        EXPECT(aclrtDestroyContext(context), ACL_SUCCESS);
        EXPECT(aclrtResetDevice(0), ACL_SUCCESS);
        EXPECT(aclFinalize(), ACL_SUCCESS);
        EXPECT(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
        return 0;
    }
    if (name == "no_sync") {
        ACLRT_LAUNCH_KERNEL(scale)(1, stream, x, 2.0f, 16, false);  // submitted
        aclrtMemcpy(back, 64, x, 64, ACL_MEMCPY_DEVICE_TO_HOST);  // no_sync
    }
    if (name == "freed_in_use") {
        ACLRT_LAUNCH_KERNEL(scale)(1, stream, x, 2.0f, 16, false);
        aclrtFree(x);  // freed_in_use
    }
    if (name == "after_free") {
        aclrtFree(x);
        ACLRT_LAUNCH_KERNEL(scale)(1, stream, x, 2.0f, 16, false);
        aclrtSynchronizeStream(stream);
    }
    if (name == "host_pointer") {
        ACLRT_LAUNCH_KERNEL(scale)(1, stream, host, 2.0f, 16, false);
        aclrtSynchronizeStream(stream);
    }
    if (name == "pinned_pointer") {
        ACLRT_LAUNCH_KERNEL(scale)(1, stream, pinned, 2.0f, 16, false);
        aclrtSynchronizeStream(stream);
    }
    if (name == "copy_range") aclrtMemcpy(x, 128, host, 128, ACL_MEMCPY_HOST_TO_DEVICE);  // copy_range
    if (name == "copy_direction") aclrtMemcpy(x, 64, host, 64, ACL_MEMCPY_HOST_TO_HOST);  // copy_direction
    if (name == "copy_freed") {
        aclrtFree(x);
        aclrtMemcpy(back, 64, x, 64, ACL_MEMCPY_DEVICE_TO_HOST);  // copy_freed
    }
    if (name == "bad_stream") {
        aclrtDestroyStream(stream);
        ACLRT_LAUNCH_KERNEL(scale)(1, stream, x, 2.0f, 16, false);  // bad_stream
    }
    if (name == "device_function") AscendC::GetBlockIdx();  // device_function
    return 0;
}
