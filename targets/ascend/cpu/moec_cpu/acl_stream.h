// acl: contexts, streams and events.
#pragma once
#include "moec_cpu/acl_memory.h"

MOEC_CPU_FN aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId)
{
    if (!context) return ACL_ERROR_INVALID_PARAM;
    aclError e = aclrtSetDevice(deviceId);
    static int contexts[1024];
    static int used = 0;
    if (e == ACL_SUCCESS) *context = &contexts[used++ % 1024];
    return e;
}
MOEC_CPU_FN aclError aclrtDestroyContext(aclrtContext context) { return context ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM; }
MOEC_CPU_FN aclError aclrtSetCurrentContext(aclrtContext context) { return context ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM; }

MOEC_CPU_FN aclError aclrtCreateStream(aclrtStream* stream)
{
    if (!stream) return ACL_ERROR_INVALID_PARAM;
    if (moec_cpu::g_host.device < 0) return ACL_ERROR_RT_CONTEXT_NULL;
    moec_cpu::g_streams.push_back(std::make_unique<moec_cpu::Stream>());
    moec_cpu::g_streams.back()->number = static_cast<uint32_t>(moec_cpu::g_streams.size());
    *stream = moec_cpu::g_streams.back().get();
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) { return aclrtCreateStream(stream); }
MOEC_CPU_FN aclError aclrtDestroyStream(aclrtStream stream)
{
    if (!stream || !moec_cpu::known_stream(stream)) return ACL_ERROR_INVALID_RESOURCE_HANDLE;
    moec_cpu::Stream& s = moec_cpu::stream_of(stream);
    moec_cpu::run_stream(s);
    s.destroyed = true;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtDestroyStreamForce(aclrtStream stream) { return aclrtDestroyStream(stream); }
MOEC_CPU_FN aclError aclrtSynchronizeStream(aclrtStream stream)
{
    if (!moec_cpu::known_stream(stream)) return ACL_ERROR_INVALID_RESOURCE_HANDLE;
    moec_cpu::run_stream(moec_cpu::stream_of(stream));
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t) { return aclrtSynchronizeStream(stream); }
MOEC_CPU_FN aclError aclrtSynchronizeDevice()
{
    moec_cpu::run_all_streams();
    return ACL_SUCCESS;
}

MOEC_CPU_FN aclError aclrtCreateEvent(aclrtEvent* event)
{
    if (!event) return ACL_ERROR_INVALID_PARAM;
    *event = new moec_cpu::HostEvent;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t) { return aclrtCreateEvent(event); }
MOEC_CPU_FN aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t) { return aclrtCreateEvent(event); }
MOEC_CPU_FN aclError aclrtDestroyEvent(aclrtEvent event)
{
    if (!event) return ACL_ERROR_INVALID_PARAM;
    delete static_cast<moec_cpu::HostEvent*>(event);
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream, MoecSite site = MoecSite::here())
{
    if (!event || !moec_cpu::known_stream(stream)) return ACL_ERROR_INVALID_PARAM;
    if (moec_cpu::masked("set", site)) return ACL_SUCCESS;
    moec_cpu::Stream& s = moec_cpu::stream_of(stream);
    auto recorded = std::make_shared<moec_cpu::Recorded>();
    recorded->stream = &s;
    recorded->after = s.submitted + 1;
    static_cast<moec_cpu::HostEvent*>(event)->last = recorded;
    moec_cpu::Task t;
    t.run = [recorded] { recorded->clock = recorded->stream->clock; };
    t.site = site;
    t.what = "aclrtRecordEvent";
    moec_cpu::enqueue(s, std::move(t));
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtSynchronizeEvent(aclrtEvent event, MoecSite site = MoecSite::here())
{
    if (!event) return ACL_ERROR_INVALID_PARAM;
    if (moec_cpu::masked("wait", site)) return ACL_SUCCESS;
    auto recorded = static_cast<moec_cpu::HostEvent*>(event)->last;
    if (!recorded) return ACL_SUCCESS;
    moec_cpu::run_until(*recorded->stream, recorded->after);
    moec_cpu::join(moec_cpu::g_host_clock, recorded->clock);
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event, MoecSite site = MoecSite::here())
{
    if (!event || !moec_cpu::known_stream(stream)) return ACL_ERROR_INVALID_PARAM;
    if (moec_cpu::masked("wait", site)) return ACL_SUCCESS;
    auto recorded = static_cast<moec_cpu::HostEvent*>(event)->last;
    moec_cpu::Stream* s = &moec_cpu::stream_of(stream);
    if (!recorded || recorded->stream == s) return ACL_SUCCESS;
    moec_cpu::Task t;
    t.run = [recorded, s] { moec_cpu::join(s->clock, recorded->clock); };
    t.site = site;
    t.what = "aclrtStreamWaitEvent";
    t.on = recorded->stream;
    t.until = recorded->after;
    moec_cpu::enqueue(*s, std::move(t));
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status)
{
    if (!event || !status) return ACL_ERROR_INVALID_PARAM;
    auto recorded = static_cast<moec_cpu::HostEvent*>(event)->last;
    bool over = !recorded || recorded->stream->over >= recorded->after;
    *status = over ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent)
{
    if (!ms || !startEvent || !endEvent) return ACL_ERROR_INVALID_PARAM;
    *ms = 0.0f;
    return ACL_SUCCESS;
}
MOEC_CPU_FN aclError aclrtResetEvent(aclrtEvent event, aclrtStream) { return event ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM; }
