// Kernel keywords, core identity and other system variables of the device side.
#pragma once
#include <cassert>
#include "moec_cpu/cross_core.h"

#ifndef __NPU_ARCH__
#define __NPU_ARCH__ 2201
#endif
#ifndef __CCE_AICORE__
#define __CCE_AICORE__ 220
#endif

#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __fbuf__
#define __ssbuf__
#define __aicore__
#define __global__ __attribute__((used))
#define __vector__
#define __cube__
#define __mix__(cubes, vectors)
#define __schedmode__(mode)
#define __sync_alias__
#define __inout_pipe__(x)
#define __in_pipe__(x)
#define __out_pipe__(x)
#define __BLOCK_LOCAL__

#ifndef GM_ADDR
#define GM_ADDR __gm__ uint8_t*
#endif

namespace moec_cpu {

MOEC_CPU_FN bool core_is(bool aic)
{
    suggest_type(KERNEL_TYPE_MIX_AIC_1_2);  // a kernel that asks and declares no type runs as a mixed one
    return g_core && g_core->aic == aic;
}

}  // namespace moec_cpu

#define ASCEND_IS_AIC (::moec_cpu::core_is(true))
#define ASCEND_IS_AIV (::moec_cpu::core_is(false))
#define ASCEND_IS_NOT_AIC (!::moec_cpu::core_is(true))
#define ASCEND_IS_NOT_AIV (!::moec_cpu::core_is(false))
#define block_idx (::AscendC::GetBlockIdx())
#define g_coreType (::moec_cpu::core_is(true) ? ::AscendC::AIC : ::AscendC::AIV)

/// Known before the launch: the enclosing function's name is registered with the type when the program starts.
#define KERNEL_TASK_TYPE_DEFAULT(value)                                              \
    do {                                                                             \
        static constexpr const char* moec_cpu_name = __func__;                       \
        struct MoecCpuTag {                                                          \
            static const char* name() { return moec_cpu_name; }                      \
            enum { type = (value) };                                                 \
        };                                                                           \
        (void)&::moec_cpu::RegisterType<MoecCpuTag>::done;                           \
    } while (0)
#define KERNEL_TASK_TYPE(key, value) KERNEL_TASK_TYPE_DEFAULT(value)

#define ASCENDC_ASSERT(cond, behavior) \
    do {                               \
        if (!(cond)) {                 \
            behavior;                  \
        }                              \
    } while (0)

namespace AscendC {

template <typename T, typename U>
using IsSameType = std::is_same<T, U>;
template <typename T>
using PrimT = T;

MOEC_CPU_FN int64_t GetBlockIdx(Site site = Site::here()) { return moec_cpu::core(site).block; }
MOEC_CPU_FN int64_t GetBlockNum(Site site = Site::here())
{
    moec_cpu::core(site);
    return moec_cpu::g_launch_now->block_dim;
}
MOEC_CPU_FN int64_t GetSubBlockIdx(Site site = Site::here()) { return moec_cpu::core(site).sub; }
MOEC_CPU_FN int64_t GetSubBlockNum(Site site = Site::here())
{
    return moec_cpu::core(site).mix ? moec_cpu::g_launch_now->ratio : 1;
}
MOEC_CPU_FN int64_t GetTaskRation(Site site = Site::here())
{
    moec_cpu::Core& c = moec_cpu::core(site);
    return c.mix && !c.aic ? moec_cpu::g_launch_now->ratio : 1;
}
MOEC_CPU_FN int64_t GetTaskRatio(Site site = Site::here()) { return GetTaskRation(site); }
inline constexpr int16_t GetDataBlockSizeInBytes() { return ONE_BLK_SIZE; }
MOEC_CPU_FN int64_t GetSystemCycle(Site site = Site::here())
{
    moec_cpu::Core& c = moec_cpu::core(site);
    uint64_t n = 0;
    for (uint32_t t : c.now) n += t;
    return static_cast<int64_t>(n);
}
MOEC_CPU_FN int64_t GetProgramCounter() { return 0; }
MOEC_CPU_FN void Trap(Site site = Site::here()) { moec_cpu::refuse(site, "Trap", "the kernel called Trap()"); }
MOEC_CPU_FN void ICachePreLoad(const int64_t) {}
MOEC_CPU_FN int64_t GetICachePreloadStatus() { return 0; }
template <typename T>
void DataCachePreload(const GlobalTensor<uint64_t>&, const T)
{
}

MOEC_CPU_FN void InitSocState(Site site = Site::here()) { moec_cpu::core(site); }

/// Hands out the addresses of one memory from 0 up, 32-byte aligned (newer CANN; static tensors without TPipe).
template <Hardware hardware>
class LocalMemAllocator {
public:
    static_assert(hardware != Hardware::GM && hardware != Hardware::MAX, "LocalMemAllocator: a local memory");

    template <TPosition pos, typename T, uint32_t tileSize>
    LocalTensor<T> Alloc(Site site = Site::here())
    {
        return take<T>(pos, tileSize, site);
    }
    template <typename T, uint32_t tileSize>
    LocalTensor<T> Alloc(Site site = Site::here())
    {
        return take<T>(default_position(), tileSize, site);
    }
    template <TPosition pos, typename T>
    LocalTensor<T> Alloc(uint32_t tileSize, Site site = Site::here())
    {
        return take<T>(pos, tileSize, site);
    }
    template <typename T>
    LocalTensor<T> Alloc(uint32_t tileSize, Site site = Site::here())
    {
        return take<T>(default_position(), tileSize, site);
    }
    uint32_t GetCurAddr() const { return next_; }

private:
    static constexpr TPosition default_position()
    {
        switch (hardware) {
            case Hardware::UB: return TPosition::VECCALC;
            case Hardware::L1: return TPosition::A1;
            case Hardware::L0A: return TPosition::A2;
            case Hardware::L0B: return TPosition::B2;
            case Hardware::L0C: return TPosition::CO1;
            case Hardware::BIAS: return TPosition::C2;
            default: return TPosition::C2PIPE2GM;
        }
    }
    template <typename T>
    LocalTensor<T> take(TPosition pos, uint32_t elements, Site site)
    {
        LocalTensor<T> t(pos, next_, elements, site);
        next_ += moec_cpu::round_up32(elements * static_cast<uint64_t>(sizeof(T)));
        return t;
    }
    uint32_t next_ = 0;
};

/// The part of a workspace that is the kernel's own: all of it, as no system part stands before it here.
MOEC_CPU_FN GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }

/// bf16 has no arithmetic: these are the scalar conversions.
MOEC_CPU_FN float ToFloat(const bfloat16_t& value) { return static_cast<float>(value); }
MOEC_CPU_FN bfloat16_t ToBfloat16(const float& value) { return bfloat16_t(value); }

template <typename U>
U CeilDivision(U a, U b)
{
    return b == 0 ? a : (a + b - 1) / b;
}

}  // namespace AscendC
