// One block of device memory for all temporaries: offsets such that no two that live at once overlap.
// Best fit in decreasing size; then the one that reaches highest is placed first, as long as that helps.
#ifndef MOEC_ARENA_H
#define MOEC_ARENA_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace arena {

struct Life {
    size_t bytes;
    int64_t first;
    int64_t last;
    size_t offset;
};

constexpr size_t ALIGN = 512;
constexpr int ROUNDS = 16;

inline size_t Rounded(size_t bytes) { return (std::max<size_t>(bytes, 1) + ALIGN - 1) / ALIGN * ALIGN; }

inline size_t Placed(std::vector<Life> &lives, const std::vector<size_t> &order)
{
    std::vector<size_t> done;
    size_t peak = 0;
    for (const size_t i : order) {
        const size_t size = Rounded(lives[i].bytes);
        size_t end = 0;
        size_t best = 0;
        size_t waste = 0;
        bool found = false;
        for (const size_t j : done) {
            if (lives[j].first > lives[i].last || lives[j].last < lives[i].first) {
                continue;
            }
            if (lives[j].offset >= end + size) {
                const size_t left = lives[j].offset - end - size;
                if (!found || left < waste) {
                    found = true;
                    best = end;
                    waste = left;
                }
            }
            end = std::max(end, lives[j].offset + Rounded(lives[j].bytes));
        }
        lives[i].offset = found ? best : end;
        auto at = done.begin();
        while (at != done.end() && lives[*at].offset <= lives[i].offset) {
            ++at;
        }
        done.insert(at, i);
        peak = std::max(peak, lives[i].offset + size);
    }
    return peak;
}

// Sets the offsets; the bytes that they reach.
inline size_t Place(std::vector<Life> &lives)
{
    std::vector<size_t> order(lives.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return Rounded(lives[a].bytes) > Rounded(lives[b].bytes); });
    size_t peak = Placed(lives, order);
    std::vector<Life> best = lives;
    for (int round = 0; round < ROUNDS && !lives.empty(); ++round) {
        size_t top = 0;
        for (size_t i = 1; i < lives.size(); ++i) {
            if (lives[i].offset + Rounded(lives[i].bytes) > lives[top].offset + Rounded(lives[top].bytes)) {
                top = i;
            }
        }
        order.erase(std::remove(order.begin(), order.end(), top), order.end());
        order.insert(order.begin(), top);
        const size_t reached = Placed(lives, order);
        if (reached < peak) {
            peak = reached;
            best = lives;
        }
    }
    lives = best;
    return peak;
}

}  // namespace arena

#endif  // MOEC_ARENA_H
