// half (IEEE binary16) and bfloat16_t: storage types with round-to-nearest-even conversions.
// half converts implicitly, as the device's own type does; bfloat16_t only explicitly, since it has no arithmetic.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace moec_cpu {

inline uint32_t bits_of(float f) { uint32_t u; std::memcpy(&u, &f, 4); return u; }
inline float float_of(uint32_t u) { float f; std::memcpy(&f, &u, 4); return f; }

/// Rounding directions of Cast (RINT = ties to even, ROUND = ties away from zero).
enum class Round : uint8_t { Rint, Floor, Ceil, Away, Trunc, Odd };

/// True when the magnitude must grow, given the dropped bits `rest` of `half_ulp*2` and the last kept bit.
inline bool round_up(uint32_t rest, uint32_t half_ulp, bool odd, bool negative, Round r)
{
    switch (r) {
        case Round::Rint: return rest > half_ulp || (rest == half_ulp && odd);
        case Round::Away: return rest >= half_ulp && rest != 0;
        case Round::Floor: return negative && rest != 0;
        case Round::Ceil: return !negative && rest != 0;
        default: return false;
    }
}

inline uint16_t half_bits(float f, Round r = Round::Rint)
{
    uint32_t u = bits_of(f);
    uint16_t sign = (u >> 16) & 0x8000u;
    bool negative = sign != 0;
    uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return sign | 0x7e00u;
    if (mag == 0x7f800000u) return sign | 0x7c00u;
    int exponent = static_cast<int>(mag >> 23) - 127;
    if (exponent > 15) {
        bool inf = r == Round::Rint || r == Round::Away || (r == Round::Floor && negative) ||
                   (r == Round::Ceil && !negative);
        return sign | (inf ? 0x7c00u : 0x7bffu);
    }
    uint32_t mantissa = (mag & 0x7fffffu) | (mag >> 23 ? 0x800000u : 0u);
    int drop = exponent < -14 ? 13 + (-14 - exponent) : 13;
    if (drop > 25) drop = 25;  // below half the smallest subnormal: only the sticky bits matter
    uint32_t kept = drop >= 25 ? 0 : mantissa >> drop;
    uint32_t rest = drop >= 25 ? (mantissa != 0 ? 1u : 0u) : mantissa & ((1u << drop) - 1);
    uint32_t half_ulp = 1u << (drop >= 25 ? 24 : drop - 1);
    uint32_t base = exponent < -14 ? kept : ((static_cast<uint32_t>(exponent + 15) << 10) + (kept & 0x3ffu));
    if (r == Round::Odd) return static_cast<uint16_t>(sign | (rest ? base | 1u : base));
    return static_cast<uint16_t>(sign | (base + (round_up(rest, half_ulp, base & 1, negative, r) ? 1u : 0u)));
}

inline float half_value(uint16_t h)
{
    uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
    float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    return sign ? -magnitude : magnitude;
}

inline uint16_t bf16_bits(float f, Round r = Round::Rint)
{
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    uint32_t base = u >> 16, rest = u & 0xffffu;
    if ((u & 0x7fffffffu) == 0x7f800000u) return static_cast<uint16_t>(base);
    if (r == Round::Odd) return static_cast<uint16_t>(rest ? base | 1u : base);
    return static_cast<uint16_t>(base + (round_up(rest, 0x8000u, base & 1, u >> 31, r) ? 1u : 0u));
}

inline float bf16_value(uint16_t b) { return float_of(static_cast<uint32_t>(b) << 16); }

}  // namespace moec_cpu

struct half {
    uint16_t bits;
    half() = default;
    template <typename A, std::enable_if_t<std::is_arithmetic<A>::value, int> = 0>
    half(A value) : bits(moec_cpu::half_bits(static_cast<float>(value))) {}
    operator float() const { return moec_cpu::half_value(bits); }
    half& operator+=(float o) { return *this = half(float(*this) + o); }
    half& operator-=(float o) { return *this = half(float(*this) - o); }
    half& operator*=(float o) { return *this = half(float(*this) * o); }
    half& operator/=(float o) { return *this = half(float(*this) / o); }
};

struct bfloat16_t {
    uint16_t bits;
    bfloat16_t() = default;
    template <typename A, std::enable_if_t<std::is_arithmetic<A>::value, int> = 0>
    explicit bfloat16_t(A value) : bits(moec_cpu::bf16_bits(static_cast<float>(value))) {}
    explicit operator float() const { return moec_cpu::bf16_value(bits); }
    bool operator==(bfloat16_t o) const { return moec_cpu::bf16_value(bits) == moec_cpu::bf16_value(o.bits); }
    bool operator!=(bfloat16_t o) const { return !(*this == o); }
};

namespace AscendC {
/// Two's complement numbers of four bits, two a byte, the first in the low half: a name for tensors, no value of its own.
struct int4b_t {
    uint8_t pair;
};
}  // namespace AscendC

namespace moec_cpu {

/// Bytes of `n` elements.
template <typename T>
constexpr uint64_t bytes_of(uint64_t n)
{
    return std::is_same<T, AscendC::int4b_t>::value ? (n + 1) / 2 : n * sizeof(T);
}
/// Elements in `n` bytes.
template <typename T>
constexpr uint64_t elements_in(uint64_t n)
{
    return std::is_same<T, AscendC::int4b_t>::value ? n * 2 : n / sizeof(T);
}

}  // namespace moec_cpu
