// Unsigned parameter of a fixed width: a value that does not fit is refused where it is given, not truncated.
#pragma once
#include <limits>
#include <type_traits>
#include "moec_cpu/refuse.h"

namespace moec_cpu {

[[noreturn]] __attribute__((cold)) MOEC_CPU_FN void refuse_field(long double value, int bits, Site site)
{
    refuse(site, "parameter out of range",
           fmt("value %.0Lf does not fit the %d-bit unsigned parameter (0..%.0Lf); split the instruction", value, bits,
               static_cast<long double>(bits == 32 ? 4294967295.0L : (1 << bits) - 1.0L)));
}

template <typename T>
struct Field {
    T value;
    Field() = default;
    template <typename A, std::enable_if_t<std::is_arithmetic<A>::value || std::is_enum<A>::value, int> = 0>
    Field(A a, Site site = Site::here()) : value(static_cast<T>(a))
    {
        check(a, site);
    }
    template <typename B>
    Field(Field<B> other, Site site = Site::here()) : Field(other.value, site) {}
    operator T() const { return value; }
    Field& operator+=(long long d) { return *this = Field(static_cast<long long>(value) + d); }
    Field& operator-=(long long d) { return *this = Field(static_cast<long long>(value) - d); }
    Field& operator++() { return *this += 1; }
    Field& operator--() { return *this -= 1; }

private:
    template <typename A>
    static void check(A a, Site site)
    {
        if constexpr (std::is_enum<A>::value) {
            check(static_cast<std::underlying_type_t<A>>(a), site);
        } else if constexpr (!std::is_same<A, bool>::value) {
            bool bad = std::is_signed<A>::value && a < A(0);
            if (!bad && sizeof(A) >= sizeof(T)) {
                bad = static_cast<unsigned long long>(a) > std::numeric_limits<T>::max();
            }
            if (bad) refuse_field(static_cast<long double>(a), static_cast<int>(sizeof(T) * 8), site);
        }
    }
};

using U8 = Field<uint8_t>;
using U16 = Field<uint16_t>;
using U32 = Field<uint32_t>;

}  // namespace moec_cpu
