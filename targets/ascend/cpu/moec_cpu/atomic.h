// SetAtomicAdd/Max/Min/None and the store to global memory that obeys them.
#pragma once
#include "moec_cpu/queue.h"

namespace moec_cpu {

using AscendC::AtomicDtype;

template <typename T>
constexpr AtomicDtype atomic_type()
{
    if (std::is_same<T, float>::value) return AtomicDtype::ATOMIC_F32;
    if (std::is_same<T, half>::value) return AtomicDtype::ATOMIC_F16;
    if (std::is_same<T, int16_t>::value) return AtomicDtype::ATOMIC_S16;
    if (std::is_same<T, int32_t>::value) return AtomicDtype::ATOMIC_S32;
    if (std::is_same<T, int8_t>::value) return AtomicDtype::ATOMIC_S8;
    if (std::is_same<T, bfloat16_t>::value) return AtomicDtype::ATOMIC_BF16;
    return AtomicDtype::ATOMIC_NONE;
}

/// a + b, max or min in T's own arithmetic; 16-bit floats are computed in float and rounded once.
template <typename T>
T combine(T a, T b, int op)
{
    if constexpr (std::is_same<T, half>::value || std::is_same<T, bfloat16_t>::value) {
        float x = static_cast<float>(a), y = static_cast<float>(b);
        return static_cast<T>(op == 0 ? x + y : (op == 1 ? (x > y ? x : y) : (x < y ? x : y)));
    } else if constexpr (std::is_integral<T>::value) {
        using U = std::make_unsigned_t<T>;
        if (op == 0) return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
        return op == 1 ? (a > b ? a : b) : (a < b ? a : b);
    } else {
        return op == 0 ? a + b : (op == 1 ? (a > b ? a : b) : (a < b ? a : b));
    }
}

/// Stores bytes of element type T to global memory, plainly or atomically as the core is set.
template <typename T>
void store_global(Instr& in, const GlobalRef& ref, uint64_t at, const uint8_t* from, uint64_t bytes)
{
    Core& c = in.c;
    if (c.atomic_type == AtomicDtype::ATOMIC_NONE) {
        in.global(ref, at, bytes, Kind::Write);
        std::memcpy(reinterpret_cast<uint8_t*>(at), from, bytes);
        return;
    }
    in.require(c.atomic_type == atomic_type<T>(), "atomic mode of another type",
               "the data type of the copy differs from the one given to SetAtomicAdd/Max/Min; call SetAtomicNone first");
    in.global(ref, at, bytes, Kind::Atomic);
    for (uint64_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
        uint8_t* p = reinterpret_cast<uint8_t*>(at) + i;
        store<T>(p, combine<T>(load<T>(p), load<T>(from + i), c.atomic_op));
    }
}

MOEC_CPU_FN void set_atomic(AtomicDtype type, int op, const char* name, Site site)
{
    stat_slot(S, name).count += 1;
    Core& c = core(site);
    c.atomic_type = type;
    c.atomic_op = op;
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T>
constexpr bool kAtomicType = std::is_same<T, float>::value || std::is_same<T, half>::value ||
                             std::is_same<T, bfloat16_t>::value || std::is_same<T, int32_t>::value ||
                             std::is_same<T, int16_t>::value || std::is_same<T, int8_t>::value;

template <typename T>
void SetAtomicAdd(Site site = Site::here())
{
    static_assert(kAtomicType<T>, "SetAtomicAdd: float, half, bfloat16_t, int32_t, int16_t or int8_t");
    moec_cpu::set_atomic(moec_cpu::atomic_type<T>(), 0, "SetAtomicAdd", site);
}
template <typename T>
void SetAtomicMax(Site site = Site::here())
{
    static_assert(kAtomicType<T>, "SetAtomicMax: float, half, bfloat16_t, int32_t, int16_t or int8_t");
    moec_cpu::set_atomic(moec_cpu::atomic_type<T>(), 1, "SetAtomicMax", site);
}
template <typename T>
void SetAtomicMin(Site site = Site::here())
{
    static_assert(kAtomicType<T>, "SetAtomicMin: float, half, bfloat16_t, int32_t, int16_t or int8_t");
    moec_cpu::set_atomic(moec_cpu::atomic_type<T>(), 2, "SetAtomicMin", site);
}
template <typename T>
void SetAtomicType(Site site = Site::here())
{
    static_assert(kAtomicType<T>, "SetAtomicType: float, half, bfloat16_t, int32_t, int16_t or int8_t");
    moec_cpu::set_atomic(moec_cpu::atomic_type<T>(), moec_cpu::core(site).atomic_op, "SetAtomicType", site);
}
MOEC_CPU_FN void SetAtomicNone(Site site = Site::here())
{
    moec_cpu::set_atomic(AtomicDtype::ATOMIC_NONE, 0, "SetAtomicNone", site);
}
MOEC_CPU_FN void DisableDmaAtomic(Site site = Site::here()) { SetAtomicNone(site); }

template <AtomicDtype type, AtomicOp op>
void SetStoreAtomicConfig(Site site = Site::here())
{
    moec_cpu::set_atomic(type, static_cast<int>(op), "SetStoreAtomicConfig", site);
}
MOEC_CPU_FN void GetStoreAtomicConfig(uint16_t& atomicType, uint16_t& atomicOp, Site site = Site::here())
{
    moec_cpu::Core& c = moec_cpu::core(site);
    atomicType = static_cast<uint16_t>(c.atomic_type);
    atomicOp = static_cast<uint16_t>(c.atomic_op);
}

}  // namespace AscendC
