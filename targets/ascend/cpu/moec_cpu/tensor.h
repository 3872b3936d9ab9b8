// GlobalTensor and LocalTensor: typed views with bounds; scalar access to them runs on the scalar pipe.
#pragma once
#include "moec_cpu/launch.h"

namespace moec_cpu {

MOEC_CPU_FN Space space_of(AscendC::TPosition p, Site site)
{
    using P = AscendC::TPosition;
    switch (p) {
        case P::VECIN: case P::VECOUT: case P::VECCALC: return UB;
        case P::A1: case P::B1: case P::C1: case P::TSCM: return L1;
        case P::A2: return L0A;
        case P::B2: return L0B;
        case P::CO1: return L0C;
        case P::C2: return BT;
        case P::C2PIPE2GM: return FB;
        default: refuse(site, "unsupported position", "this TPosition is no local memory of NPU arch 2201");
    }
}

MOEC_CPU_FN uint32_t round_up32(uint64_t bytes) { return static_cast<uint32_t>((bytes + 31) / 32 * 32); }

/// What a mask of kind `bound` takes off the end of a local buffer.
MOEC_CPU_FN uint32_t bound_cut(Site site) { return masked("bound", site) ? 32u : 0u; }

template <typename T>
inline T load(const uint8_t* p)
{
    T v;
    std::memcpy(&v, p, sizeof(T));
    return v;
}

template <typename T>
inline void store(uint8_t* p, T v)
{
    std::memcpy(p, &v, sizeof(T));
}

/// What operator() of a tensor gives: reads and writes go through GetValue and SetValue.
template <typename Tensor, typename T>
struct ElementRef {
    Tensor tensor;
    uint64_t index;
    Site site;
    ElementRef(const Tensor& t, uint64_t i, Site s) : tensor(t), index(i), site(s) {}
    ElementRef(const ElementRef&) = default;
    ElementRef& operator=(const ElementRef& other)
    {
        tensor.SetValue(index, static_cast<T>(other), site);
        return *this;
    }
    operator T() const { return tensor.GetValue(index, site); }
    ElementRef& operator=(T v)
    {
        tensor.SetValue(index, v, site);
        return *this;
    }
};

}  // namespace moec_cpu

namespace AscendC {

using moec_cpu::Site;
template <typename T>
class LocalTensor;

}  // namespace AscendC

namespace moec_cpu {

/// `a op b` of whole tensors, computed where it is assigned (vec_operators.h). A comparison is named by its first letter
/// of LT GT EQ, those that hold of equals too in lower case, and NE is N.
template <typename T, char op>
struct Infix {
    AscendC::LocalTensor<T> a, b;
    Site site;
};
/// The right-hand side, which notes where the expression stands.
template <typename T>
struct Located {
    AscendC::LocalTensor<T> tensor;
    Site site;
    Located(const AscendC::LocalTensor<T>& t, Site at = Site::here()) : tensor(t), site(at) {}
};

}  // namespace moec_cpu

namespace AscendC {

template <typename T>
class LocalTensor {
public:
    using PrimType = T;

    LocalTensor() {}
    LocalTensor(TPosition position, uint32_t addr, uint32_t elements, Site site = Site::here())
    {
        using namespace moec_cpu;
        ref_.space = space_of(position, site);
        position_ = position;
        place(addr, moec_cpu::bytes_of<T>(elements), elements, site);
    }

    /// Model only: a view of [addr, addr+bytes) of a memory.
    static LocalTensor view(moec_cpu::Space space, TPosition position, uint32_t addr, uint64_t bytes,
                            uint32_t elements, Site site)
    {
        LocalTensor t;
        t.ref_.space = space;
        t.position_ = position;
        t.place(addr, bytes, elements, site);
        return t;
    }

    LocalTensor operator[](uint32_t offset) const
    {
        LocalTensor t = *this;
        t.ref_.addr += static_cast<uint32_t>(moec_cpu::bytes_of<T>(offset));
        t.size_ = offset <= size_ ? size_ - offset : 0;
        return t;
    }

    template <typename U>
    LocalTensor<U> ReinterpretCast() const
    {
        LocalTensor<U> t;
        t.ref_ = ref_;
        t.position_ = position_;
        t.buffer_ = buffer_;
        t.tag_ = tag_;
        t.size_ = static_cast<uint32_t>(moec_cpu::elements_in<U>(moec_cpu::bytes_of<T>(size_)));
        return t;
    }

    T GetValue(uint32_t index, Site site = Site::here()) const
    {
        moec_cpu::Instr in(moec_cpu::S, "GetValue", site);
        uint64_t at = ref_.addr + static_cast<uint64_t>(index) * sizeof(T);
        in.read(ref_, at, at + sizeof(T));
        in.count(sizeof(T));
        return moec_cpu::load<T>(in.c.data(ref_.space) + at);
    }

    template <typename U>
    void SetValue(uint32_t index, U value, Site site = Site::here()) const
    {
        moec_cpu::Instr in(moec_cpu::S, "SetValue", site);
        uint64_t at = ref_.addr + static_cast<uint64_t>(index) * sizeof(T);
        in.write(ref_, at, at + sizeof(T));
        in.count(sizeof(T));
        moec_cpu::store<T>(in.c.data(ref_.space) + at, static_cast<T>(value));
    }

    moec_cpu::ElementRef<LocalTensor, T> operator()(uint32_t index, Site site = Site::here()) const
    {
        return {*this, index, site};
    }

    template <typename U, char op>
    void operator=(const moec_cpu::Infix<U, op>& expression);

#define MOEC_INFIX(SIGN, OP) \
    friend moec_cpu::Infix<T, OP> operator SIGN(const LocalTensor& a, const moec_cpu::Located<T>& b) { return {a, b.tensor, b.site}; }
    MOEC_INFIX(+, '+') MOEC_INFIX(-, '-') MOEC_INFIX(*, '*') MOEC_INFIX(/, '/') MOEC_INFIX(&, '&') MOEC_INFIX(|, '|')
    MOEC_INFIX(<, 'L') MOEC_INFIX(>, 'G') MOEC_INFIX(<=, 'l') MOEC_INFIX(>=, 'g') MOEC_INFIX(==, 'E') MOEC_INFIX(!=, 'N')
#undef MOEC_INFIX

    uint64_t GetPhyAddr() const { return ref_.addr; }
    uint64_t GetPhyAddr(uint32_t offset) const { return ref_.addr + offset * sizeof(T); }
    int32_t GetPosition() const { return static_cast<int32_t>(position_); }
    void SetSize(uint32_t size) { size_ = size; }
    uint32_t GetSize() const { return size_; }
    uint32_t GetLength() const { return static_cast<uint32_t>(moec_cpu::bytes_of<T>(size_)); }
    void SetUserTag(TTagType tag) { tag_ = tag; }
    TTagType GetUserTag() const { return tag_; }

    const moec_cpu::LocalRef& ref() const { return ref_; }
    int buffer() const { return buffer_; }
    void set_buffer(int index) { buffer_ = index; }

private:
    template <typename U>
    friend class LocalTensor;

    void place(uint32_t addr, uint64_t bytes, uint32_t elements, Site site)
    {
        using namespace moec_cpu;
        const SpaceInfo& info = space_info(ref_.space);
        uint64_t end = addr + (bytes + 31) / 32 * 32;
        if (end > info.bytes) {
            refuse(site, "buffer outside its memory",
                   fmt("bytes [%u, %llu) of %s, which has %u KiB", addr, static_cast<unsigned long long>(end), info.name,
                       info.bytes / 1024));
        }
        uint32_t cut = bound_cut(site);
        ref_.addr = ref_.lo = addr;
        ref_.hi = static_cast<uint32_t>(end) - (end - addr >= cut ? cut : 0);
        size_ = elements;
    }

    moec_cpu::LocalRef ref_;
    uint32_t size_ = 0;
    TPosition position_ = TPosition::VECCALC;
    int buffer_ = -1;  // index in its queue
    TTagType tag_ = 0;
};

template <typename T>
class GlobalTensor {
public:
    using PrimType = T;

    void SetGlobalBuffer(T* buffer, uint64_t elements, Site site = Site::here())
    {
        if (moec_cpu::masked("bound", site) && elements > 0) --elements;
        ref_.addr = ref_.lo = reinterpret_cast<uint64_t>(buffer);
        ref_.hi = ref_.lo + moec_cpu::bytes_of<T>(elements);
        size_ = elements;
    }
    void SetGlobalBuffer(T* buffer)
    {
        ref_.addr = ref_.lo = reinterpret_cast<uint64_t>(buffer);
        ref_.hi = ~0ULL;
        size_ = 0;
    }

    GlobalTensor operator[](uint64_t offset) const
    {
        GlobalTensor t = *this;
        t.ref_.addr += moec_cpu::bytes_of<T>(offset);
        return t;
    }

    T GetValue(uint64_t offset, Site site = Site::here()) const
    {
        moec_cpu::Instr in(moec_cpu::S, "GetValue", site);
        uint64_t at = ref_.addr + offset * sizeof(T);
        moec_cpu::Allocation& a = in.global(ref_, at, sizeof(T), moec_cpu::Kind::Read);
        in.require(a.all_written(at - a.begin, at - a.begin + sizeof(T)), "read of memory never written",
                   "the scalar in global memory was set neither by the host nor by a kernel");
        in.count(sizeof(T));
        return moec_cpu::load<T>(reinterpret_cast<const uint8_t*>(at));
    }

    void SetValue(uint64_t offset, T value, Site site = Site::here()) const
    {
        moec_cpu::Instr in(moec_cpu::S, "SetValue", site);
        uint64_t at = ref_.addr + offset * sizeof(T);
        in.global(ref_, at, sizeof(T), moec_cpu::Kind::Write);
        in.count(sizeof(T));
        moec_cpu::store<T>(reinterpret_cast<uint8_t*>(at), value);
    }

    moec_cpu::ElementRef<GlobalTensor, T> operator()(uint64_t index, Site site = Site::here()) const
    {
        return {*this, index, site};
    }

    T* GetPhyAddr() const { return reinterpret_cast<T*>(ref_.addr); }
    T* GetPhyAddr(uint64_t offset) const { return reinterpret_cast<T*>(ref_.addr) + offset; }
    uint64_t GetSize() const { return size_; }
    template <CacheRwMode rwMode = CacheRwMode::RW>
    void SetL2CacheHint(CacheMode)
    {
        moec_cpu::stat_slot(moec_cpu::S, "SetL2CacheHint").count += 1;
    }

    const moec_cpu::GlobalRef& ref() const { return ref_; }

private:
    moec_cpu::GlobalRef ref_;
    uint64_t size_ = 0;
};

}  // namespace AscendC
