// Attention as the operator library defines it, for layout BNSD: what a query sees, probabilities and their gradients.
#pragma once
#include <cstring>
#include "moec_cpu/library.h"

namespace moec_cpu {
namespace library {

/// Operands that forward and backward share. Sparse modes: 0 without a mask sees all; 2 and 3 are causal from the upper
/// left and the lower right corner and take the [2048, 2048] mask that is 1 above the diagonal.
struct Heads {
    Held q, k, v, mask;
    double scale;
    int64_t mode;

    int64_t batch() const { return q->dims[0]; }
    int64_t heads() const { return q->dims[1]; }
    int64_t kv_heads() const { return k->dims[1]; }
    int64_t queries() const { return q->dims[2]; }
    int64_t keys() const { return k->dims[2]; }
    int64_t width() const { return q->dims[3]; }
    int64_t values() const { return v->dims[3]; }

    bool fits() const
    {
        for (const Held& t : {q, k, v}) {
            if (!t || t->dims.size() != 4 || t->dims[0] != q->dims[0]) return false;
        }
        if (!alike({q.get(), k.get(), v.get()}) || k->dims[1] != v->dims[1] || k->dims[2] != v->dims[2] || k->dims[3] != q->dims[3]) return false;
        if (heads() < 1 || heads() > 256 || kv_heads() < 1 || heads() % kv_heads() || width() > 768 || values() > width()) return false;
        if (mode == 0) return !mask;
        const bool square = mask && mask->dims == std::vector<int64_t>{2048, 2048} && (mask->type == ACL_BOOL || mask->type == ACL_UINT8);
        return (mode == 2 || mode == 3) && square && (mode == 2 || keys() >= queries());
    }

    /// Keys that query s sees.
    int64_t seen(int64_t s) const
    {
        if (mode == 0) return keys();
        return std::min(keys(), s + 1 + (mode == 3 ? keys() - queries() : 0));
    }

    void check_mask(const char* name) const
    {
        if (!mask) return;
        const Array m = load(mask.get(), name);
        for (size_t i = 0; i < m.values.size(); ++i) {
            if ((m[i] != 0) != (i % 2048 > i / 2048)) refuse({"?", 0}, fmt("%s: not the compressed causal mask", name), "it is 1 above the diagonal and 0 elsewhere");
        }
    }
};

/// One row's scores; the first `seen` of them are valid.
inline void scores(const Heads& h, const double* q, const double* k, int64_t seen, std::vector<double>& out)
{
    out.assign(static_cast<size_t>(seen), 0.0);
    for (int64_t t = 0; t < seen; ++t) {
        double sum = 0;
        for (int64_t d = 0; d < h.width(); ++d) sum += q[d] * k[t * h.width() + d];
        out[t] = sum * h.scale;
    }
}

}  // namespace library
}  // namespace moec_cpu
