// Shadow memory: a map of disjoint byte intervals. Each interval knows the accesses that a later access must be
// ordered after (the last writers, and the readers since), and whether its bytes were ever written.
#pragma once
#include <map>
#include <vector>
#include "moec_cpu/clock.h"

namespace moec_cpu {

enum class Kind : uint8_t { Read, Write, Atomic };

struct Access {
    uint32_t time;
    uint32_t site;  // index into the table of sites
    uint16_t core;
    uint8_t pipe;
    Kind kind;
};

/// A short list with room for three accesses in place.
class AccessList {
public:
    AccessList() = default;
    AccessList(const AccessList& o) { assign(o); }
    AccessList& operator=(const AccessList& o)
    {
        if (this != &o) { delete more_; more_ = nullptr; assign(o); }
        return *this;
    }
    ~AccessList() { delete more_; }
    uint32_t size() const { return n_; }
    Access& operator[](uint32_t i) { return i < kInline ? a_[i] : (*more_)[i - kInline]; }
    const Access& operator[](uint32_t i) const { return i < kInline ? a_[i] : (*more_)[i - kInline]; }
    MOEC_CPU_FN void push(const Access& x)
    {
        if (n_ < kInline) {
            a_[n_++] = x;
            return;
        }
        if (!more_) more_ = new std::vector<Access>;
        more_->push_back(x);
        ++n_;
    }
    MOEC_CPU_FN void remove(uint32_t i)
    {
        (*this)[i] = (*this)[n_ - 1];
        if (n_ > kInline) more_->pop_back();
        --n_;
    }
    void set(const Access& x)
    {
        n_ = 1;
        a_[0] = x;
        if (more_) more_->clear();
    }

private:
    static constexpr uint32_t kInline = 3;
    MOEC_CPU_FN void assign(const AccessList& o)
    {
        n_ = o.n_;
        for (uint32_t i = 0; i < kInline; ++i) a_[i] = o.a_[i];
        if (o.more_ && n_ > kInline) more_ = new std::vector<Access>(*o.more_);
    }
    Access a_[kInline];
    std::vector<Access>* more_ = nullptr;
    uint32_t n_ = 0;
};

struct Interval {
    uint64_t end;
    bool written;
    AccessList past;
};

class Shadow {
public:
    using Map = std::map<uint64_t, Interval>;

    void clear() { map_.clear(); }

    /// Cuts so that no interval crosses `at`.
    MOEC_CPU_FN Map::iterator split(uint64_t at)
    {
        auto it = map_.upper_bound(at);
        if (it == map_.begin()) return it;
        auto prev = std::prev(it);
        if (prev->first == at) return prev;
        if (prev->second.end <= at) return it;
        Interval right = prev->second;
        prev->second.end = at;
        return map_.emplace_hint(it, at, right);
    }

    /// Calls fn(interval) on everything known in [a, b), and gap(begin, end) on the rest.
    template <typename Fn, typename Gap>
    void visit(uint64_t a, uint64_t b, Fn fn, Gap gap)
    {
        auto it = map_.upper_bound(a);
        if (it != map_.begin() && std::prev(it)->second.end > a) --it;
        uint64_t at = a;
        for (; it != map_.end() && it->first < b; ++it) {
            if (it->first > at) gap(at, it->first);
            fn(it->second);
            at = it->second.end;
        }
        if (at < b) gap(at, b);
    }

    /// Calls fn(begin, interval) on everything known.
    template <typename Fn>
    void visit_all(Fn fn)
    {
        for (auto& [begin, interval] : map_) fn(begin, interval);
    }

    /// Replaces [a, b) by one interval.
    MOEC_CPU_FN void replace(uint64_t a, uint64_t b, const Access& by, bool written)
    {
        auto it = split(a);
        if (it != map_.end() && it->first == a && it->second.end == b) {
            it->second.written = written;
            it->second.past.set(by);
            return;
        }
        auto last = split(b);
        it = map_.lower_bound(a);
        it = map_.erase(it, last);
        Interval fresh;
        fresh.end = b;
        fresh.written = written;
        fresh.past.set(by);
        map_.emplace_hint(it, a, fresh);
    }

    /// Applies fn(interval) to [a, b) exactly: intervals are cut at the ends and created in the gaps.
    template <typename Fn>
    void update(uint64_t a, uint64_t b, Fn fn)
    {
        split(a);
        split(b);
        auto it = map_.lower_bound(a);
        uint64_t at = a;
        while (at < b) {
            if (it == map_.end() || it->first > at) {
                Interval fresh;
                fresh.end = it == map_.end() || it->first > b ? b : it->first;
                fresh.written = false;
                it = map_.emplace_hint(it, at, fresh);
            }
            fn(it->second);
            at = it->second.end;
            ++it;
        }
    }

private:
    Map map_;
};

}  // namespace moec_cpu
