// One executed instruction: its pipe and time, and the checks of everything it reads and writes.
#pragma once
#include "moec_cpu/core.h"
#include "moec_cpu/stats.h"

namespace moec_cpu {

MOEC_CPU_VAR uint32_t g_launch = 0;
MOEC_CPU_FN void suggest_type(int type);
MOEC_CPU_FN void settle_type();

/// A view of local memory: absolute byte address, and the bounds of the buffer it belongs to.
struct LocalRef {
    Space space = UB;
    uint32_t addr = 0, lo = 0, hi = 0;
};

/// A view of global memory: hi is the bound given to SetGlobalBuffer, or all ones.
struct GlobalRef {
    uint64_t addr = 0, lo = 0, hi = ~0ULL;
};

struct Span {
    uint64_t begin, end;
};

/// Byte ranges of one operand; neighbours and repeats are merged as they come.
class Spans {
public:
    void clear() { v.clear(); }
    void add(uint64_t begin, uint64_t bytes)
    {
        if (bytes == 0) return;
        uint64_t end = begin + bytes;
        if (!v.empty()) {
            Span& last = v.back();
            if (last.end == begin) {
                last.end = end;
                return;
            }
            if (last.begin <= begin && end <= last.end) return;
        }
        v.push_back({begin, end});
    }
    std::vector<Span> v;
};

class Instr {
public:
    MOEC_CPU_FN Instr(Pipe pipe, const char* op, Site site) : c(core(site)), pipe_(pipe), op_(op), site_(site)
    {
        g_running.last = site;
        if (pipe == V && c.aic) wrong_core("a vector", "ASCEND_IS_AIV");
        if ((pipe == M || pipe == MTE1 || pipe == FIX) && !c.aic) wrong_core("a cube", "ASCEND_IS_AIC");
        if (pipe != S) c.clock[pipe].join(c.clock[S]);  // issued after whatever the scalar unit has waited for
        acc_.time = ++c.now[pipe];
        acc_.site = intern_site(site, op);
        acc_.core = static_cast<uint16_t>(c.id);
        acc_.pipe = pipe;
        acc_.kind = Kind::Read;
        if (g_config.limit && ++c.instructions > g_config.limit) {
            refuse(site, "instruction limit", fmt("more than MOEC_CPU_LIMIT=%llu instructions on one core; an endless loop?",
                                                 static_cast<unsigned long long>(g_config.limit)));
        }
    }

    MOEC_CPU_FN void count(uint64_t bytes, uint64_t repeats = 0, uint64_t macs = 0)
    {
        Count& s = stat_slot(pipe_, op_);
        s.count += 1;
        s.bytes += bytes;
        s.repeats += repeats;
        s.macs += macs;
    }

    [[noreturn]] MOEC_CPU_FN void fail(const std::string& what, const std::string& details) const
    {
        refuse(site_, what, fmt("%s: ", op_) + details);
    }
    MOEC_CPU_FN void require(bool ok, const char* what, const std::string& details) const
    {
        if (!ok) fail(what, details);
    }
    Site site() const { return site_; }
    void relaxed_same_pipe(bool on) { relaxed_ = on; }

    /// Address alignment of an operand's start.
    MOEC_CPU_FN void align(const LocalRef& r, uint32_t bytes, const char* operand) const
    {
        if (r.addr % bytes) {
            fail("misaligned operand", fmt("%s starts at byte %u of %s, which must be a multiple of %u", operand, r.addr,
                                           space_info(r.space).name, bytes));
        }
    }
    MOEC_CPU_FN void align(const LocalRef& r, const char* operand) const { align(r, space_info(r.space).align, operand); }

    /// Reads local bytes; every byte must have been written, by something that is ordered before.
    void read(const LocalRef& r, uint64_t begin, uint64_t end) { read_as(r, begin, end, true); }
    /// Reads local bytes and lets unwritten ones pass (whole-fractal moves); true if any byte was never written.
    bool read_raw(const LocalRef& r, uint64_t begin, uint64_t end) { return read_as(r, begin, end, false); }

    MOEC_CPU_FN void write(const LocalRef& r, uint64_t begin, uint64_t end, bool written = true)
    {
        bounds(r, begin, end, "writes");
        Shadow& shadow = c.shadow[r.space];
        shadow.visit(begin, end, [&](Interval& i) { check_all(i, r.space, begin, end); }, [](uint64_t, uint64_t) {});
        Access w = acc_;
        w.kind = Kind::Write;
        shadow.replace(begin, end, w, written);
    }

    /// Marks local bytes as garbage without a hazard check of their own (call after write on a wider range).
    MOEC_CPU_FN void taint(Space space, uint64_t begin, uint64_t end)
    {
        Access w = acc_;
        w.kind = Kind::Write;
        c.shadow[space].replace(begin, end, w, false);
    }

    /// Copies "never written" from source bytes to destination bytes, after a raw read and a write.
    MOEC_CPU_FN void copy_taint(Space from, uint64_t src, Space to, uint64_t dst, uint64_t bytes)
    {
        std::vector<Span> holes;
        uint64_t at = src;
        c.shadow[from].visit(
            src, src + bytes,
            [&](Interval& i) {
                uint64_t e = std::min(i.end, src + bytes);
                if (!i.written) holes.push_back({at, e});
                at = e;
            },
            [&](uint64_t a, uint64_t b) { holes.push_back({a, b}); at = b; });
        for (const Span& h : holes) taint(to, dst + (h.begin - src), dst + (h.end - src));
    }

    /// A checked access to global memory; returns its allocation.
    MOEC_CPU_FN Allocation& global(const GlobalRef& r, uint64_t begin, uint64_t bytes, Kind kind)
    {
        Allocation& a = locate(r, begin, bytes, kind == Kind::Read ? "reads" : "writes");
        if (bytes == 0) return a;
        if (a.launch != g_launch) {
            a.shadow.clear();
            a.launch = g_launch;
        }
        if (kind == Kind::Atomic && !a.all_written(begin - a.begin, begin - a.begin + bytes)) {
            fail("atomic accumulation into global memory never written",
                 "set the destination first (aclrtMemset or an initialising kernel)");
        }
        uint64_t end = begin + bytes;
        Access x = acc_;
        x.kind = kind;
        if (kind == Kind::Write) {
            a.shadow.visit(begin, end, [&](Interval& i) { check_all(i, GM, begin, end); }, [](uint64_t, uint64_t) {});
            a.shadow.replace(begin, end, x, true);
        } else {
            a.shadow.update(begin, end, [&](Interval& i) {
                for (uint32_t k = 0; k < i.past.size(); ++k) {
                    const Access& p = i.past[k];
                    if (p.kind == kind || ordered(p)) continue;
                    conflict(p, kind == Kind::Read ? "reads" : "writes", GM, begin, end);
                }
                remember(i, x);
            });
        }
        if (kind != Kind::Read) settle_type();
        if (kind != Kind::Read) a.mark(begin - a.begin, end - a.begin, true);
        return a;
    }

    Core& c;

private:
    [[noreturn]] MOEC_CPU_FN void wrong_core(const char* what, const char* guard) const
    {
        suggest_type(c.aic ? KERNEL_TYPE_AIV_ONLY : KERNEL_TYPE_AIC_ONLY);
        fail("instruction on the wrong core", fmt("%s instruction runs on %s core; guard it with `if %s`", what,
                                                  c.aic ? "a cube" : "a vector", guard));
    }

    MOEC_CPU_FN bool read_as(const LocalRef& r, uint64_t begin, uint64_t end, bool strict)
    {
        bounds(r, begin, end, "reads");
        bool hole = false;
        c.shadow[r.space].update(begin, end, [&](Interval& i) {
            for (uint32_t k = 0; k < i.past.size(); ++k) {
                const Access& p = i.past[k];
                if (p.kind != Kind::Read && !ordered(p)) conflict(p, "reads", r.space, begin, end);
            }
            if (!i.written) {
                if (strict) never_written(i, r.space, begin, end);
                hole = true;
            }
            remember(i, acc_);
        });
        return hole;
    }

    MOEC_CPU_FN void bounds(const LocalRef& r, uint64_t begin, uint64_t end, const char* verb) const
    {
        if (r.space == UB && c.aic) wrong_core("a Unified Buffer", "ASCEND_IS_AIV");
        if (r.space != UB && !c.aic) wrong_core("a cube memory", "ASCEND_IS_AIC");
        if (begin >= r.lo && end <= r.hi) return;
        fail("access outside the buffer",
             fmt("%s bytes [%llu, %llu) of %s, the buffer is [%u, %u); check the count, the repeat strides or the buffer's size",
                 verb, static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end),
                 space_info(r.space).name, r.lo, r.hi));
    }

    MOEC_CPU_FN Allocation& locate(const GlobalRef& r, uint64_t begin, uint64_t bytes, const char* verb) const
    {
        Allocation* a = find_allocation(begin);
        if (!a) {
            fail("global memory access outside any allocation",
                 fmt("%s %llu bytes at %p, which is no device memory; allocate it with aclrtMalloc, check the pointer and the offset",
                     verb, static_cast<unsigned long long>(bytes), reinterpret_cast<void*>(begin)));
        }
        if (a->freed) {
            fail("use of freed global memory", fmt("%s a buffer allocated at %s:%d after its aclrtFree", verb,
                                                   a->site.file, a->site.line));
        }
        if (a->host) {
            fail("host memory in a kernel", fmt("%s a buffer of aclrtMallocHost (%s:%d); copy it to the device first",
                                                verb, a->site.file, a->site.line));
        }
        if (begin + bytes > a->begin + a->size) {
            fail("global memory access out of range",
                 fmt("%s bytes [%llu, %llu) of a buffer of %llu bytes allocated at %s:%d; check the tail of the last tile",
                     verb, static_cast<unsigned long long>(begin - a->begin),
                     static_cast<unsigned long long>(begin - a->begin + bytes),
                     static_cast<unsigned long long>(a->size), a->site.file, a->site.line));
        }
        if (begin < r.lo || begin + bytes > r.hi) {
            fail("global memory access out of range",
                 fmt("%s bytes [%lld, %lld) of a tensor that SetGlobalBuffer bounds to %llu bytes; check the tail of the last tile",
                     verb, static_cast<long long>(begin - r.lo), static_cast<long long>(begin - r.lo + bytes),
                     static_cast<unsigned long long>(r.hi - r.lo)));
        }
        return *a;
    }

    MOEC_CPU_FN bool ordered(const Access& p) const
    {
        const World* w = c.clock[pipe_].world;  // what came back from other cores tells of this one's pipes too
        if (w && w->time[static_cast<size_t>(p.core) * kPipes + p.pipe] >= p.time) return true;
        if (p.core == c.id) {
            if (p.pipe == pipe_) {
                return p.time == acc_.time || pipe_ == S || relaxed_ || !g_config.strict ||
                       p.time <= c.clock[pipe_].local[pipe_];
            }
            return p.time <= c.clock[pipe_].local[p.pipe];
        }
        return false;
    }

    MOEC_CPU_FN void check_all(const Interval& i, Space space, uint64_t begin, uint64_t end) const
    {
        for (uint32_t k = 0; k < i.past.size(); ++k) {
            if (!ordered(i.past[k])) conflict(i.past[k], "writes", space, begin, end);
        }
    }

    /// Adds an access that is known to be ordered after, or compatible with, all of the past. Of earlier ones of its
    /// kind and pipe the last stays while nothing orders it: this instruction may yet write what that one reads.
    MOEC_CPU_FN void remember(Interval& i, const Access& x) const
    {
        uint32_t last = 0;
        for (uint32_t k = 0; k < i.past.size(); ++k) {
            const Access& p = i.past[k];
            if (p.core == x.core && p.pipe == x.pipe && p.kind == x.kind && p.time != x.time) last = std::max(last, p.time);
        }
        for (uint32_t k = 0; k < i.past.size();) {
            const Access& p = i.past[k];
            bool same = p.core == x.core && p.pipe == x.pipe && p.kind == x.kind;
            bool drop = same ? p.time != last || ordered(p)
                             : x.kind == Kind::Read ? p.kind == Kind::Read && ordered(p) : ordered(p);
            if (drop) i.past.remove(k);
            else ++k;
        }
        i.past.push(x);
    }

    [[noreturn]] __attribute__((cold)) MOEC_CPU_FN void conflict(const Access& p, const char* verb, Space space,
                                                              uint64_t begin, uint64_t end) const
    {
        bool same_core = p.core == c.id;
        std::string advice;
        if (!same_core) {
            advice = fmt("the other access is on core %d of the launch; order the cores with SyncAll or cross-core flags, or give each its own range",
                         p.core);
        } else if (p.pipe == pipe_) {
            advice = fmt("put PipeBarrier<PIPE_%s>() between them", pipe_name(pipe_));
        } else {
            advice = fmt("put SetFlag/WaitFlag<HardEvent::%s_%s> (or a queue) between them", pipe_name(p.pipe), pipe_name(pipe_));
        }
        uint64_t base = 0;
        if (space == GM) {
            Allocation* a = find_allocation(begin);
            base = a ? a->begin : 0;
        }
        fail(same_core ? (p.pipe == pipe_ ? "missing barrier" : "unsynchronised pipes") : "unsynchronised cores",
             fmt("%s bytes [%llu, %llu) of %s on pipe %s while %s on pipe %s may still be %s them; %s", verb,
                 static_cast<unsigned long long>(begin - base), static_cast<unsigned long long>(end - base),
                 space_info(space).name, pipe_name(pipe_), describe_site(p.site).c_str(), pipe_name(p.pipe),
                 p.kind == Kind::Read ? "reading" : "writing", advice.c_str()));
    }

    [[noreturn]] __attribute__((cold)) MOEC_CPU_FN void never_written(const Interval& i, Space space, uint64_t begin,
                                                                   uint64_t end) const
    {
        std::string origin = i.past.size() ? fmt("; its bytes come from %s, which had nothing valid to put there",
                                                 describe_site(i.past[0].site).c_str())
                                           : std::string();
        fail("read of memory never written",
             fmt("[%llu, %llu) of %s holds bytes that no instruction has written%s; fill or pad the buffer, or read less",
                 static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end), space_info(space).name,
                 origin.c_str()));
    }

    Pipe pipe_;
    const char* op_;
    Site site_;
    Access acc_;
    bool relaxed_ = false;
};

}  // namespace moec_cpu
