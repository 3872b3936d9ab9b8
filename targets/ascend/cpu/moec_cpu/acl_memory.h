// acl: initialisation, devices, memory and copies. Misuse of parameters returns an error code, as on the device;
// what would read or write memory that is not there is refused.
#pragma once
#include "acl/acl_base.h"
#include "moec_cpu/stream.h"

namespace moec_cpu {

struct HostState {
    bool initialised = false;
    bool finalised = false;
    int device = -1;
};
MOEC_CPU_VAR HostState g_host;

/// Checks one side of a host copy; `write` is the side that is written.
MOEC_CPU_FN void check_side(const void* p, size_t count, bool device, bool write, Site site, const char* op)
{
    Allocation* a = find_allocation(reinterpret_cast<uint64_t>(p));
    const char* verb = write ? "writes" : "reads";
    if (!a) {
        if (device) refuse(site, fmt("%s outside device memory", op), fmt("%s %zu bytes at %p, which aclrtMalloc did not give", verb, count, p));
        return;
    }
    if (a->freed) refuse(site, "use of freed global memory", fmt("%s %s a buffer allocated at %s:%d after it was freed", op, verb, a->site.file, a->site.line));
    uint64_t at = reinterpret_cast<uint64_t>(p) - a->begin;
    if (at + count > a->size) {
        refuse(site, fmt("%s out of range", op), fmt("%s bytes [%llu, %llu) of a buffer of %llu bytes allocated at %s:%d", verb,
                                                     static_cast<unsigned long long>(at), static_cast<unsigned long long>(at + count),
                                                     static_cast<unsigned long long>(a->size), a->site.file, a->site.line));
    }
    if (!device && !a->host) refuse(site, fmt("%s in the wrong direction", op), "a device buffer is given where the copy kind says host");
    if (device && a->host) refuse(site, fmt("%s in the wrong direction", op), "a host buffer is given where the copy kind says device");
}

MOEC_CPU_FN void mark_copied(void* dst, const void* src, size_t count)
{
    Allocation* d = find_allocation(reinterpret_cast<uint64_t>(dst));
    if (!d || d->host) return;
    uint64_t at = reinterpret_cast<uint64_t>(dst) - d->begin;
    Allocation* s = src ? find_allocation(reinterpret_cast<uint64_t>(src)) : nullptr;
    if (!s || s->host) {
        d->mark(at, at + count, true);
        return;
    }
    uint64_t from = reinterpret_cast<uint64_t>(src) - s->begin;
    for (size_t i = 0; i < count; ++i) d->mark(at + i, at + i + 1, s->is_written(from + i));
}

MOEC_CPU_FN void require_quiet(const void* p, Site site, const char* op)
{
    Allocation* a = find_allocation(reinterpret_cast<uint64_t>(p));
    if (!a || a->host || a->freed) return;
    if (const Task* t = pending_on(*a)) {
        refuse(site, fmt("%s of a buffer that is still in use", op),
               fmt("%s, submitted at %s:%d, has not been waited for; call aclrtSynchronizeStream first", t->what, t->site.file, t->site.line));
    }
}

MOEC_CPU_FN aclError copy_now(void* dst, size_t dst_max, const void* src, size_t count, aclrtMemcpyKind kind, Site site, const char* op)
{
    if (count == 0) return ACL_SUCCESS;
    if (!dst || !src || count > dst_max) return ACL_ERROR_INVALID_PARAM;
    bool to_device = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    bool from_device = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    if (kind == ACL_MEMCPY_DEFAULT) {
        Allocation *d = find_allocation(reinterpret_cast<uint64_t>(dst)), *s = find_allocation(reinterpret_cast<uint64_t>(src));
        to_device = d && !d->host;
        from_device = s && !s->host;
    }
    check_side(dst, count, to_device, true, site, op);
    check_side(src, count, from_device, false, site, op);
    std::memmove(dst, src, count);
    mark_copied(dst, src, count);
    return ACL_SUCCESS;
}

MOEC_CPU_FN aclError fill_now(void* p, size_t max, int32_t value, size_t count, Site site, const char* op)
{
    if (!p || count > max) return ACL_ERROR_INVALID_PARAM;
    check_side(p, count, true, true, site, op);
    std::memset(p, value, count);
    mark_copied(p, nullptr, count);
    return ACL_SUCCESS;
}

}  // namespace moec_cpu

using MoecSite = moec_cpu::Site;

MOEC_CPU_FN aclError aclInit(const char*)
{
    if (moec_cpu::g_host.initialised) return ACL_ERROR_REPEAT_INITIALIZE;
    moec_cpu::g_host.initialised = true;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclFinalize()
{
    if (moec_cpu::g_host.finalised) return ACL_ERROR_REPEAT_FINALIZE;
    moec_cpu::run_all_streams();
    moec_cpu::g_host.initialised = false;
    moec_cpu::g_host.finalised = true;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtSetDevice(int32_t deviceId)
{
    if (deviceId < 0 || deviceId > 7) return ACL_ERROR_INVALID_DEVICE;
    moec_cpu::g_host.device = deviceId;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtResetDevice(int32_t deviceId)
{
    if (deviceId < 0 || deviceId > 7) return ACL_ERROR_INVALID_DEVICE;
    moec_cpu::run_all_streams();
    moec_cpu::g_host.device = -1;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtResetDeviceForce(int32_t deviceId) { return aclrtResetDevice(deviceId); }
MOEC_CPU_FN aclError aclrtGetDevice(int32_t* deviceId)
{
    if (!deviceId) return ACL_ERROR_INVALID_PARAM;
    if (moec_cpu::g_host.device < 0) return ACL_ERROR_RT_CONTEXT_NULL;
    *deviceId = moec_cpu::g_host.device;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtGetDeviceCount(uint32_t* count)
{
    if (!count) return ACL_ERROR_INVALID_PARAM;
    *count = 8;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtGetRunMode(aclrtRunMode* runMode)
{
    if (!runMode) return ACL_ERROR_INVALID_PARAM;
    *runMode = ACL_HOST;
    return ACL_SUCCESS;
}
MOEC_CPU_FN const char* aclrtGetSocName() { return "Ascend910B1"; }
MOEC_CPU_FN const char* aclGetRecentErrMsg() { return ""; }

MOEC_CPU_FN aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy, MoecSite site = MoecSite::here())
{
    if (!devPtr || size == 0) return ACL_ERROR_INVALID_PARAM;
    if (moec_cpu::g_host.device < 0) return ACL_ERROR_RT_CONTEXT_NULL;
    *devPtr = moec_cpu::gm_alloc(size, false, site);
    return *devPtr ? ACL_SUCCESS : ACL_ERROR_STORAGE_OVER_LIMIT;
}
MOEC_CPU_FN aclError aclrtFree(void* devPtr, MoecSite site = MoecSite::here())
{
    if (!devPtr) return ACL_ERROR_INVALID_PARAM;
    moec_cpu::require_quiet(devPtr, site, "aclrtFree");
    return moec_cpu::gm_free(devPtr, false) ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM;
}
MOEC_CPU_FN aclError aclrtMallocHost(void** hostPtr, size_t size, MoecSite site = MoecSite::here())
{
    if (!hostPtr || size == 0) return ACL_ERROR_INVALID_PARAM;
    *hostPtr = moec_cpu::gm_alloc(size, true, site);
    return *hostPtr ? ACL_SUCCESS : ACL_ERROR_BAD_ALLOC;
}
MOEC_CPU_FN aclError aclrtFreeHost(void* hostPtr)
{
    return hostPtr && moec_cpu::gm_free(hostPtr, true) ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM;
}

MOEC_CPU_FN aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind, MoecSite site = MoecSite::here())
{
    moec_cpu::require_quiet(dst, site, "aclrtMemcpy");
    moec_cpu::require_quiet(src, site, "aclrtMemcpy");
    return moec_cpu::copy_now(dst, destMax, src, count, kind, site, "aclrtMemcpy");
}
MOEC_CPU_FN aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count, MoecSite site = MoecSite::here())
{
    moec_cpu::require_quiet(devPtr, site, "aclrtMemset");
    return moec_cpu::fill_now(devPtr, maxCount, value, count, site, "aclrtMemset");
}
MOEC_CPU_FN aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind, aclrtStream stream,
                                 MoecSite site = MoecSite::here())
{
    if (!dst || !src || count > destMax) return ACL_ERROR_INVALID_PARAM;
    if (!moec_cpu::known_stream(stream)) return ACL_ERROR_INVALID_RESOURCE_HANDLE;
    const uint64_t to = reinterpret_cast<uint64_t>(dst), from = reinterpret_cast<uint64_t>(src);
    moec_cpu::Task t;
    t.run = [=] { moec_cpu::copy_now(dst, destMax, src, count, kind, site, "aclrtMemcpyAsync"); };
    t.pointers = {to, from};
    t.site = site;
    t.what = "aclrtMemcpyAsync";
    t.touched = {{from, count, false}, {to, count, true}};
    moec_cpu::enqueue(moec_cpu::stream_of(stream), std::move(t));
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream,
                                 MoecSite site = MoecSite::here())
{
    if (!devPtr || count > maxCount) return ACL_ERROR_INVALID_PARAM;
    if (!moec_cpu::known_stream(stream)) return ACL_ERROR_INVALID_RESOURCE_HANDLE;
    moec_cpu::Task t;
    t.run = [=] { moec_cpu::fill_now(devPtr, maxCount, value, count, site, "aclrtMemsetAsync"); };
    t.pointers = {reinterpret_cast<uint64_t>(devPtr)};
    t.site = site;
    t.what = "aclrtMemsetAsync";
    t.touched = {{reinterpret_cast<uint64_t>(devPtr), count, true}};
    moec_cpu::enqueue(moec_cpu::stream_of(stream), std::move(t));
    return ACL_SUCCESS;
}
