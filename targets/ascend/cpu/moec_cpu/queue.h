// TQue and TQueBind: buffers that pass between two pipes; the queue sets and waits the flags.
#pragma once
#include "moec_cpu/pipe.h"

namespace moec_cpu {

constexpr AscendC::TPosition queue_source(AscendC::TPosition p)
{
    using P = AscendC::TPosition;
    switch (p) {
        case P::A1: case P::B1: case P::C1: case P::VECIN: return P::GM;
        case P::A2: return P::A1;
        case P::B2: case P::C2PIPE2GM: return P::B1;
        case P::C2: return P::C1;
        default: return p;
    }
}

constexpr AscendC::TPosition queue_target(AscendC::TPosition p)
{
    using P = AscendC::TPosition;
    return p == P::VECOUT ? P::GM : (p == P::CO1 ? P::CO2 : p);
}

/// The event between the two ends of a queue: from the pipe that fills the buffer to the one that reads it.
constexpr AscendC::HardEvent queue_event(AscendC::TPosition src, AscendC::TPosition dst, bool forward)
{
    using P = AscendC::TPosition;
    using E = AscendC::HardEvent;
    auto ub = [](P p) { return p == P::VECIN || p == P::VECOUT || p == P::VECCALC; };
    auto l1 = [](P p) { return p == P::A1 || p == P::B1 || p == P::C1 || p == P::TSCM; };
    auto l0 = [](P p) { return p == P::A2 || p == P::B2 || p == P::C2; };
    auto gm = [](P p) { return p == P::GM || p == P::CO2; };
    if (gm(src) && ub(dst)) return forward ? E::MTE2_V : E::V_MTE2;
    if (gm(src) && l1(dst)) return forward ? E::MTE2_MTE1 : E::MTE1_MTE2;
    if (gm(src) && l0(dst)) return forward ? E::MTE2_M : E::M_MTE2;
    if (ub(src) && gm(dst)) return forward ? E::V_MTE3 : E::MTE3_V;
    if (ub(src) && ub(dst)) return forward ? E::MTE2_MTE3 : E::MTE3_MTE2;
    if (ub(src) && l1(dst)) return forward ? E::MTE3_MTE1 : E::MTE1_MTE3;
    if (l1(src) && l0(dst)) return forward ? E::MTE1_M : E::M_MTE1;
    if (l1(src) && dst == P::C2PIPE2GM) return forward ? E::MTE1_FIX : E::FIX_MTE1;
    if (src == P::CO1) return forward ? E::M_FIX : E::FIX_M;
    return E::MAX;
}

}  // namespace moec_cpu

namespace AscendC {

template <TPosition src, TPosition dst, int32_t depth, auto mask = 0>
class TQueBind {
public:
    /// The memory of the buffers: the local end of the pair.
    static constexpr TPosition kPosition = src == TPosition::GM || dst == TPosition::A2 || dst == TPosition::B2 ||
                                                   dst == TPosition::C2 || dst == TPosition::C2PIPE2GM
                                               ? dst
                                               : src;
    static constexpr HardEvent kForward = moec_cpu::queue_event(src, dst, true);
    static constexpr HardEvent kBackward = moec_cpu::queue_event(src, dst, false);
    static_assert(kForward != HardEvent::MAX, "these two positions have no queue between them");

    TQueBind() = default;
    TQueBind(const TQueBind&) = delete;
    TQueBind& operator=(const TQueBind&) = delete;
    ~TQueBind() { clear_blocks(moec_cpu::g_running.last); }

    template <typename T>
    LocalTensor<T> AllocTensor(Site site = Site::here())
    {
        using namespace moec_cpu;
        for (size_t tries = 0; tries < blocks_.size(); ++tries) {
            Block& b = blocks_[next_];
            int index = static_cast<int>(next_);
            next_ = (next_ + 1) % blocks_.size();
            if (b.state != TBufState::FREE) continue;
            if (b.free_event >= 0) {
                wait_event(b.free_kind, b.free_event, site);
                release_event(b.free_kind, b.free_event, site);
                b.free_event = -1;
            }
            b.state = TBufState::OCCUPIED;
            return tensor<T>(index);
        }
        refuse(site, "no free tensor in the queue",
               fmt("AllocTensor: all %zu buffers are in use; FreeTensor one first, or InitBuffer more", blocks_.size()));
    }

    template <typename T>
    bool EnQue(const LocalTensor<T>& tensor, Site site = Site::here())
    {
        return enqueue(tensor.buffer(), kForward, site);
    }
    template <TPosition srcUserPos, TPosition dstUserPos, typename T>
    bool EnQue(const LocalTensor<T>& tensor, Site site = Site::here())
    {
        return enqueue(tensor.buffer(), moec_cpu::queue_event(srcUserPos, dstUserPos, true), site);
    }

    template <typename T>
    LocalTensor<T> DeQue(Site site = Site::here())
    {
        using namespace moec_cpu;
        if (queue_.empty()) refuse(site, "empty queue", "DeQue before any EnQue, the core would hang here");
        int index = queue_.front();
        queue_.pop_front();
        Block& b = blocks_[static_cast<size_t>(index)];
        if (b.enqueue_event >= 0) {
            wait_event(b.enqueue_kind, b.enqueue_event, site);
            release_event(b.enqueue_kind, b.enqueue_event, site);
            b.enqueue_event = -1;
        }
        b.state = TBufState::DEQUE;
        return tensor<T>(index);
    }
    template <TPosition srcUserPos, TPosition dstUserPos, typename T>
    LocalTensor<T> DeQue(Site site = Site::here())
    {
        return DeQue<T>(site);
    }

    template <typename T>
    void FreeTensor(LocalTensor<T>& tensor, Site site = Site::here())
    {
        using namespace moec_cpu;
        Block& b = block(tensor.buffer(), "FreeTensor", site);
        if (b.state == TBufState::FREE) refuse(site, "tensor freed twice", "FreeTensor of a buffer that is free");
        if (b.state == TBufState::ENQUE) refuse(site, "tensor freed while queued", "FreeTensor of a buffer that is still in the queue");
        b.state = TBufState::FREE;
        if (!foreign_event(core(site), event_info(kBackward))) {
            b.free_kind = kBackward;
            b.free_event = pick_event(kBackward, true, site);
            set_event(kBackward, b.free_event, site, false);
            if (core(site).pipe) core(site).pipe->note_freed(&b);
        }
    }

    bool VacantInQue() const { return depth <= 0 || queue_.size() < static_cast<size_t>(depth); }
    bool HasTensorInQue() const { return !queue_.empty(); }
    int32_t GetTensorCountInQue() const { return static_cast<int32_t>(queue_.size()); }
    bool HasIdleBuffer() const
    {
        for (const moec_cpu::Block& b : blocks_) {
            if (b.state == TBufState::FREE) return true;
        }
        return false;
    }
    void FreeAllEvent(Site site = Site::here())
    {
        for (moec_cpu::Block& b : blocks_) {
            if (b.free_event < 0) continue;
            moec_cpu::wait_event(b.free_kind, b.free_event, site);
            moec_cpu::release_event(b.free_kind, b.free_event, site);
            b.free_event = -1;
        }
    }
    template <typename T>
    TBufState GetState(const LocalTensor<T>& tensor, Site site = Site::here()) const
    {
        return const_cast<TQueBind*>(this)->block(tensor.buffer(), "GetState", site).state;
    }

    /// Model only: used by TPipe::InitBuffer.
    void clear_blocks(Site site)
    {
        if (blocks_.empty() || !moec_cpu::g_core) return;
        FreeAllEvent(site);
        for (moec_cpu::Block& b : blocks_) {
            if (moec_cpu::g_core->pipe) moec_cpu::g_core->pipe->forget_freed(&b);
        }
        blocks_.clear();
        queue_.clear();
        next_ = 0;
    }
    void add_block(const moec_cpu::Block& b) { blocks_.push_back(b); }

private:
    moec_cpu::Block& block(int index, const char* op, Site site)
    {
        if (index < 0 || static_cast<size_t>(index) >= blocks_.size()) {
            moec_cpu::refuse(site, "tensor of another queue", moec_cpu::fmt("%s of a tensor that this queue did not allocate", op));
        }
        return blocks_[static_cast<size_t>(index)];
    }

    template <typename T>
    LocalTensor<T> tensor(int index)
    {
        moec_cpu::Block& b = blocks_[static_cast<size_t>(index)];
        LocalTensor<T> t = LocalTensor<T>::view(b.space, kPosition, b.addr, b.bytes - b.cut,
                                                static_cast<uint32_t>(moec_cpu::elements_in<T>(b.bytes)), {"", 0});
        t.set_buffer(index);
        return t;
    }

    bool enqueue(int index, HardEvent kind, Site site)
    {
        using namespace moec_cpu;
        Block& b = block(index, "EnQue", site);
        if (b.state == TBufState::ENQUE) refuse(site, "tensor queued twice", "EnQue of a buffer that is already in the queue");
        if (b.state == TBufState::FREE) refuse(site, "tensor queued after free", "EnQue of a buffer that is free");
        if (!VacantInQue()) refuse(site, "queue is full", fmt("EnQue: the queue has depth %d; DeQue first", depth));
        b.state = TBufState::ENQUE;
        queue_.push_back(index);
        b.enqueue_event = -1;
        if (kind != HardEvent::MAX && !foreign_event(core(site), event_info(kind))) {
            b.enqueue_kind = kind;
            b.enqueue_event = pick_event(kind, true, site);
            set_event(kind, b.enqueue_event, site, false);
        }
        return true;
    }

    std::deque<moec_cpu::Block> blocks_;
    std::deque<int> queue_;
    size_t next_ = 0;
};

template <TPosition pos, int32_t depth, auto mask = 0>
class TQue : public TQueBind<moec_cpu::queue_source(pos), moec_cpu::queue_target(pos), depth, mask> {};

template <TPosition pos, int32_t depth = 1, auto mask = 0>
using TSCM = TQueBind<pos, TPosition::TSCM, depth, mask>;

}  // namespace AscendC
