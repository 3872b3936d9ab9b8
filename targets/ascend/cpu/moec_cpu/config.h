// Run-time switches of the model, read once from the environment.
//   MOEC_CPU_MASK=<kind>@<file>:<line>[,...]  skip one site (kinds: set wait barrier syncall pad bound)
//   MOEC_CPU_STATS=<path>                     instruction counts as JSON
//   MOEC_CPU_ORDER=forward|reverse|random:<seed>  interleaving of the cores
//   MOEC_CPU_STRICT=1                         a missing PipeBarrier between dependent instructions is an error, a flag that may be set twice too
//   MOEC_CPU_LIMIT=<n>                        refuse a launch after n instructions of one core (off by default)
#pragma once
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include "moec_cpu/linkage.h"
#include "moec_cpu/site.h"

namespace moec_cpu {

struct MaskEntry {
    std::string kind;
    std::string file;
    int line;
    bool used;
};

struct Config {
    std::vector<MaskEntry> mask;
    std::string stats;
    bool reverse = false;
    bool random = false;
    uint64_t seed = 0;
    bool strict = false;
    uint64_t limit = 0;
};

MOEC_CPU_FN std::vector<MaskEntry> parse_mask(const std::string& text)
{
    std::vector<MaskEntry> out;
    size_t from = 0;
    while (from < text.size()) {
        size_t to = text.find(',', from);
        if (to == std::string::npos) to = text.size();
        std::string item = text.substr(from, to - from);
        size_t at = item.find('@'), colon = item.rfind(':');
        if (at != std::string::npos && colon != std::string::npos && colon > at) {
            out.push_back({item.substr(0, at), item.substr(at + 1, colon - at - 1),
                           std::atoi(item.c_str() + colon + 1), false});
        }
        from = to + 1;
    }
    return out;
}

MOEC_CPU_FN Config read_config()
{
    Config c;
    auto env = [](const char* name) { const char* v = std::getenv(name); return std::string(v ? v : ""); };
    c.mask = parse_mask(env("MOEC_CPU_MASK"));
    c.stats = env("MOEC_CPU_STATS");
    std::string order = env("MOEC_CPU_ORDER");
    c.reverse = order == "reverse";
    c.random = order.compare(0, 7, "random:") == 0;
    if (c.random) c.seed = std::strtoull(order.c_str() + 7, nullptr, 10);
    c.strict = env("MOEC_CPU_STRICT") == "1";
    c.limit = std::strtoull(env("MOEC_CPU_LIMIT").c_str(), nullptr, 10);
    return c;
}

MOEC_CPU_VAR Config g_config = read_config();

/// The site's file matches when it is equal to, or ends in "/" + the file that the mask names.
MOEC_CPU_FN bool same_file(const char* file, const std::string& wanted)
{
    size_t n = std::strlen(file), m = wanted.size();
    if (n < m || std::memcmp(file + n - m, wanted.data(), m) != 0) return false;
    return n == m || file[n - m - 1] == '/';
}

MOEC_CPU_FN bool masked_slow(const char* kind, Site site)
{
    for (MaskEntry& m : g_config.mask) {
        if (m.line == site.line && m.kind == kind && same_file(site.file, m.file)) {
            m.used = true;
            return true;
        }
    }
    return false;
}

MOEC_CPU_FN bool masked(const char* kind, Site site) { return !g_config.mask.empty() && masked_slow(kind, site); }

}  // namespace moec_cpu
