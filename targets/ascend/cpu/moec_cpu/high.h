// What functions of the high-level library share. On the device each is a sequence of vector instructions with barriers of
// its own between them; here each is one vector instruction that computes in float, whose scratch space holds garbage
// afterwards. A half is read as a float and the result rounded once, where the device may round in between.
#pragma once
#include "moec_cpu/vec_reduce_all.h"

namespace moec_cpu {

class High {
public:
    High(const char* name, Site site) : in(V, name, site) { reset_mask(in.c); }

    /// `n` elements from `first` on.
    template <typename T>
    std::vector<float> read(const AscendC::LocalTensor<T>& t, uint64_t n, uint64_t first = 0)
    {
        const LocalRef r = t.ref();
        unified(r);
        const uint64_t at = r.addr + first * sizeof(T);
        in.read(r, at, at + n * sizeof(T));
        std::vector<float> out(n);
        for (uint64_t i = 0; i < n; ++i) out[i] = value(load<T>(in.c.data(UB) + at + i * sizeof(T)));
        return out;
    }

    /// `n` elements as they are.
    template <typename T>
    std::vector<T> raw(const AscendC::LocalTensor<T>& t, uint64_t n)
    {
        const LocalRef r = t.ref();
        unified(r);
        in.read(r, r.addr, r.addr + n * sizeof(T));
        std::vector<T> out(n);
        for (uint64_t i = 0; i < n; ++i) out[i] = load<T>(in.c.data(UB) + r.addr + i * sizeof(T));
        return out;
    }

    template <typename T>
    void put(const AscendC::LocalTensor<T>& t, const std::vector<T>& values)
    {
        const LocalRef r = t.ref();
        unified(r);
        in.write(r, r.addr, r.addr + values.size() * sizeof(T));
        in.count(values.size() * sizeof(T), (values.size() * sizeof(T) + 255) / 256);
        for (uint64_t i = 0; i < values.size(); ++i) store<T>(in.c.data(UB) + r.addr + i * sizeof(T), values[i]);
    }

    template <typename T>
    void write(const AscendC::LocalTensor<T>& t, const std::vector<float>& values, uint64_t first = 0)
    {
        const LocalRef r = t.ref();
        unified(r);
        const uint64_t at = r.addr + first * sizeof(T);
        in.write(r, at, at + values.size() * sizeof(T));
        in.count(values.size() * sizeof(T), (values.size() * sizeof(T) + 255) / 256);
        for (uint64_t i = 0; i < values.size(); ++i) store<T>(in.c.data(UB) + at + i * sizeof(T), rounded<T>(values[i]));
    }

    /// The caller's scratch space, all of it.
    void spoil(const AscendC::LocalTensor<uint8_t>& scratch)
    {
        const LocalRef r = scratch.ref();
        unified(r);
        in.require(scratch.GetSize() >= 32, "scratch buffer too small", "sharedTmpBuffer has less than 32 bytes");
        in.write(r, r.addr, r.addr + scratch.GetSize(), false);
    }

    /// Rows are multiples of 32 bytes apart.
    template <typename T>
    void pitch(uint64_t elements, const char* name)
    {
        in.require(elements > 0 && elements * sizeof(T) % 32 == 0, "misaligned row",
                   fmt("%s is %llu elements, its bytes must be a multiple of 32", name, static_cast<unsigned long long>(elements)));
    }

    Instr in;

private:
    void unified(const LocalRef& r)
    {
        in.require(r.space == UB, "operand in the wrong memory", "it must lie in UB");
        in.align(r, "an operand");
    }
    template <typename T>
    static float value(T v)
    {
        return static_cast<float>(v);
    }
    template <typename T>
    T rounded(float v) const
    {
        if constexpr (std::is_same<T, int8_t>::value) {
            return static_cast<int8_t>(std::max(-128.0f, std::min(127.0f, std::nearbyint(v))));
        } else {
            return static_cast<T>(v);
        }
    }
};

}  // namespace moec_cpu

#define MOEC_HIGH_TYPE(NAME) \
    static_assert(std::is_same<T, half>::value || std::is_same<T, float>::value, #NAME " takes half or float")
