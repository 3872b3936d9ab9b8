// TPipe hands out local memory and event ids; TBuf is scratch memory without synchronisation.
#pragma once
#include "moec_cpu/cross_core.h"
#include "moec_cpu/field.h"

namespace moec_cpu {

constexpr int kMaxBlocks = 64;  // InitBuffer blocks of one kernel (CANN asc-devkit docs, TPipe/InitBuffer)

/// One block of a queue or scratch buffer, as InitBuffer made it.
struct Block {
    Space space = UB;
    uint32_t addr = 0, bytes = 0;  // bytes as given, rounded up to 32
    uint32_t cut = 0;              // taken off the end by a `bound` mask
    AscendC::TBufState state = AscendC::TBufState::FREE;
    int free_event = -1, enqueue_event = -1;
    AscendC::HardEvent free_kind{}, enqueue_kind{};
};

}  // namespace moec_cpu

namespace AscendC {

template <TPosition pos = TPosition::LCM>
class TBuf {
public:
    template <typename T>
    LocalTensor<T> Get(Site site = Site::here())
    {
        return make<T>(moec_cpu::elements_in<T>(block_.bytes), 0, site);
    }
    template <typename T>
    LocalTensor<T> Get(uint32_t len, Site site = Site::here())
    {
        return make<T>(len, 0, site);
    }
    template <typename T>
    LocalTensor<T> GetWithOffset(uint32_t size, uint32_t bufOffset, Site site = Site::here())
    {
        return make<T>(size, bufOffset, site);
    }
    template <typename T>
    LocalTensor<T> AllocTensor(Site site = Site::here())
    {
        return Get<T>(site);
    }
    template <typename T>
    void FreeTensor(LocalTensor<T>&)
    {
    }
    template <typename T>
    void EnQue(const LocalTensor<T>&)
    {
    }
    template <typename T>
    LocalTensor<T> DeQue(Site site = Site::here())
    {
        return Get<T>(site);
    }

private:
    friend class TPipe;

    template <typename T>
    LocalTensor<T> make(uint64_t elements, uint64_t offset, Site site)
    {
        using namespace moec_cpu;
        if (!ready_) refuse(site, "buffer not initialised", "call TPipe::InitBuffer on this TBuf first");
        uint64_t bytes = moec_cpu::bytes_of<T>(elements);
        if (offset % 32) refuse(site, "misaligned operand", fmt("byte offset %llu in a TBuf must be a multiple of 32", static_cast<unsigned long long>(offset)));
        if (offset + bytes > block_.bytes) {
            refuse(site, "view outside its buffer",
                   fmt("bytes [%llu, %llu) of a TBuf of %u bytes in %s", static_cast<unsigned long long>(offset),
                       static_cast<unsigned long long>(offset + bytes), block_.bytes, space_info(block_.space).name));
        }
        uint64_t room = std::min<uint64_t>((bytes + 31) / 32 * 32, block_.bytes - offset);
        uint64_t limit = block_.bytes - block_.cut;  // what a `bound` mask of InitBuffer leaves
        if (offset + room > limit) room = limit > offset ? limit - offset : 0;
        return LocalTensor<T>::view(block_.space, pos, static_cast<uint32_t>(block_.addr + offset), room,
                                    static_cast<uint32_t>(elements), site);
    }

    moec_cpu::Block block_;
    bool ready_ = false;
};

class TPipe {
public:
    MOEC_CPU_FN explicit TPipe(Site site = Site::here())
    {
        moec_cpu::Core& c = moec_cpu::core(site);
        if (c.pipe) moec_cpu::refuse(site, "second TPipe", "a core has one TPipe; pass a pointer to it, or Destroy() the first");
        c.pipe = this;
        owner_ = &c;
    }
    TPipe(const TPipe&) = delete;
    TPipe& operator=(const TPipe&) = delete;
    MOEC_CPU_FN ~TPipe()
    {
        if (owner_ && owner_->pipe == this) Destroy();
    }

    template <TPosition pos>
    bool InitBuffer(TBuf<pos>& buf, uint32_t len, Site site = Site::here())
    {
        buf.block_ = take(pos, len, site);
        buf.ready_ = true;
        return true;
    }

    template <typename Queue>
    bool InitBuffer(Queue& que, moec_cpu::U8 num, uint32_t len, Site site = Site::here())
    {
        que.clear_blocks(site);
        for (int i = 0; i < num; ++i) que.add_block(take(Queue::kPosition, len, site));
        return true;
    }

    void Init() {}
    MOEC_CPU_FN void Destroy(Site site = Site::here())
    {
        Reset(site);
        if (owner_ && owner_->pipe == this) owner_->pipe = nullptr;
        owner_ = nullptr;
    }
    /// Waits for every tensor that was freed, forgets all buffers.
    MOEC_CPU_FN void Reset(Site site = Site::here())
    {
        using namespace moec_cpu;
        if (!owner_) return;
        for (Block* b : freed_) {
            if (b->free_event < 0) continue;
            wait_event(b->free_kind, b->free_event, site);
            release_event(b->free_kind, b->free_event, site);
            b->free_event = -1;
        }
        freed_.clear();
        drain(*owner_);
        for (uint32_t& n : next_) n = 0;
        blocks_ = 0;
    }

    template <HardEvent evt>
    TEventID AllocEventID(Site site = Site::here())
    {
        return moec_cpu::pick_event(evt, true, site);
    }
    template <HardEvent evt>
    void ReleaseEventID(TEventID id, Site site = Site::here())
    {
        moec_cpu::release_event(evt, id, site);
    }
    template <HardEvent evt>
    TEventID FetchEventID(Site site = Site::here())
    {
        return moec_cpu::pick_event(evt, false, site);
    }
    TEventID FetchEventID(HardEvent evt, Site site = Site::here()) { return moec_cpu::pick_event(evt, false, site); }

    template <TPosition pos, typename T>
    LocalTensor<T> GetAbsAddr(int32_t offset, int32_t size, Site site = Site::here()) const
    {
        return LocalTensor<T>(pos, static_cast<uint32_t>(offset), static_cast<uint32_t>(size), site);
    }

    /// Model only: remembers a block whose FreeTensor event is to be drained at Reset.
    MOEC_CPU_FN void note_freed(moec_cpu::Block* b) { freed_.push_back(b); }
    MOEC_CPU_FN void forget_freed(moec_cpu::Block* b)
    {
        for (size_t i = 0; i < freed_.size(); ++i) {
            if (freed_[i] == b) freed_.erase(freed_.begin() + static_cast<long>(i--));
        }
    }

private:
    MOEC_CPU_FN moec_cpu::Block take(TPosition pos, uint64_t len, Site site)
    {
        using namespace moec_cpu;
        Space s = space_of(pos, site);
        const SpaceInfo& info = space_info(s);
        uint32_t room = info.bytes - (s == UB || (s == L1 && owner_ && owner_->mix) ? kReservedTail : 0);
        uint64_t bytes = (len + 31) / 32 * 32;
        if (len == 0) refuse(site, "empty buffer", "InitBuffer with length 0");
        if (next_[s] + bytes > room) {
            refuse(site, "buffer capacity exceeded",
                   fmt("%llu more bytes of %s after %u, %u are usable (%u KiB less the reserve)",
                       static_cast<unsigned long long>(bytes), info.name, next_[s], room, info.bytes / 1024));
        }
        if (++blocks_ > kMaxBlocks) refuse(site, "too many buffers", fmt("InitBuffer blocks of one kernel: at most %d", kMaxBlocks));
        Block b;
        b.space = s;
        b.addr = next_[s];
        b.bytes = static_cast<uint32_t>(bytes);
        b.cut = bound_cut(site);
        next_[s] += b.bytes;
        return b;
    }

    moec_cpu::Core* owner_ = nullptr;
    uint32_t next_[moec_cpu::kSpaces] = {};
    int blocks_ = 0;
    std::vector<moec_cpu::Block*> freed_;
};

}  // namespace AscendC

MOEC_CPU_FN AscendC::TPipe* GetTPipePtr()
{
    return moec_cpu::g_core ? moec_cpu::g_core->pipe : nullptr;
}
