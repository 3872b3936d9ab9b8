// Reductions of collectives: in the order of the communicator's ranks, 16-bit floats in fp32 and rounded once at the end.
#pragma once
#include "moec_cpu/comm_wire.h"
#include "moec_cpu/half.h"

namespace moec_cpu {

template <typename T>
T folded(T a, T b, uint32_t reduce)
{
    switch (reduce) {
        case HCCL_REDUCE_SUM: return static_cast<T>(a + b);
        case HCCL_REDUCE_PROD: return static_cast<T>(a * b);
        case HCCL_REDUCE_MAX: return a != a ? a : (b != b || b > a) ? b : a;  // NaN stays
        default: return a != a ? a : (b != b || b < a) ? b : a;
    }
}

/// `parts` are the ranks' operands, all of `n` elements; `wide` holds them while they are added.
template <typename T, typename Wide, typename In, typename Out>
std::string reduced_as(const std::vector<const std::string*>& parts, size_t n, uint32_t reduce, In widen, Out narrow)
{
    std::string out(n * sizeof(T), '\0');
    for (size_t i = 0; i < n; ++i) {
        Wide total{};
        for (size_t r = 0; r < parts.size(); ++r) {
            T x;
            std::memcpy(&x, parts[r]->data() + i * sizeof(T), sizeof(T));
            total = r == 0 ? widen(x) : folded<Wide>(total, widen(x), reduce);
        }
        T y = narrow(total);
        std::memcpy(out.data() + i * sizeof(T), &y, sizeof(T));
    }
    return out;
}

template <typename T, typename Wide = T>
std::string reduced_plain(const std::vector<const std::string*>& parts, size_t n, uint32_t reduce)
{
    return reduced_as<T, Wide>(parts, n, reduce, [](T x) { return static_cast<Wide>(x); }, [](Wide x) { return static_cast<T>(x); });
}

/// Whether HCCL reduces the type (API reference of HcclAllReduce, Atlas A2).
MOEC_CPU_FN bool reduces(uint32_t type, uint32_t reduce)
{
    bool known = type <= HCCL_DATA_TYPE_INT64 || type == HCCL_DATA_TYPE_BFP16;
    return known && !(reduce == HCCL_REDUCE_PROD && (type == HCCL_DATA_TYPE_INT16 || type == HCCL_DATA_TYPE_BFP16));
}

MOEC_CPU_FN std::string reduced(const std::vector<const std::string*>& parts, uint32_t type, uint32_t reduce)
{
    size_t n = parts[0]->size() / size_of(type);
    switch (type) {
        case HCCL_DATA_TYPE_INT8: return reduced_plain<int8_t, int64_t>(parts, n, reduce);
        case HCCL_DATA_TYPE_INT16: return reduced_plain<int16_t, int64_t>(parts, n, reduce);
        case HCCL_DATA_TYPE_INT32: return reduced_plain<int32_t, int64_t>(parts, n, reduce);
        case HCCL_DATA_TYPE_INT64: return reduced_plain<int64_t, __int128>(parts, n, reduce);
        case HCCL_DATA_TYPE_FP32: return reduced_plain<float>(parts, n, reduce);
        case HCCL_DATA_TYPE_FP16:
            return reduced_as<uint16_t, float>(parts, n, reduce, [](uint16_t x) { return half_value(x); }, [](float x) { return half_bits(x); });
        default:
            return reduced_as<uint16_t, float>(parts, n, reduce, [](uint16_t x) { return bf16_value(x); }, [](float x) { return bf16_bits(x); });
    }
}

}  // namespace moec_cpu
