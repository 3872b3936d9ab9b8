// Call sites: every API of the model takes a trailing defaulted Site, so vendor call syntax stays valid.
#pragma once
#include <cstdint>

namespace moec_cpu {

struct Site {
    const char* file;
    int line;
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE())
    {
        return Site{file, line};
    }
};

}  // namespace moec_cpu
