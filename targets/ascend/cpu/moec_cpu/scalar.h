// Scalar helpers: bit counts and ScalarCast.
#pragma once
#include "moec_cpu/vec_cast.h"

namespace AscendC {

template <int countValue>
int64_t ScalarGetCountOfValue(uint64_t valueIn)
{
    return countValue ? __builtin_popcountll(valueIn) : 64 - __builtin_popcountll(valueIn);
}
MOEC_CPU_FN int64_t ScalarCountLeadingZero(uint64_t valueIn) { return valueIn ? __builtin_clzll(valueIn) : 64; }
MOEC_CPU_FN int64_t CountBitsCntSameAsSignBit(int64_t valueIn) { return __builtin_clrsbll(valueIn); }
/// Position of the lowest bit equal to countValue, -1 when there is none.
template <int countValue>
int64_t ScalarGetSFFValue(uint64_t valueIn)
{
    uint64_t v = countValue ? valueIn : ~valueIn;
    return v ? __builtin_ctzll(v) : -1;
}
template <typename srcT, typename dstT, RoundMode roundMode>
dstT ScalarCast(srcT valueIn)
{
    static_assert(std::is_same<srcT, float>::value && (std::is_same<dstT, half>::value || std::is_same<dstT, int32_t>::value),
                  "ScalarCast: float to half or int32_t");
    return moec_cpu::cast_value<dstT, srcT>(valueIn, moec_cpu::round_of(roundMode));
}

}  // namespace AscendC
