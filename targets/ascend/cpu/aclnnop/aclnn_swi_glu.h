// out = silu(first half of x) * second half, along the last dimension.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnSwiGluGetWorkspaceSize(const aclTensor* x, int64_t dim, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!x || !out) return ACLNN_ERR_PARAM_NULLPTR;
    const int64_t rank = static_cast<int64_t>(x->dims.size());
    if (!alike({x, out}) || (dim != -1 && dim != rank - 1) || x->dims.back() != 2 * out->dims.back()) return ACLNN_ERR_PARAM_INVALID;
    Held a = hold(x), y = hold(out);
    return prepare("aclnnSwiGlu", {a, y}, [=] {
        const Array h = load(a.get(), "aclnnSwiGlu");
        Array result(y->dims);
        const size_t n = static_cast<size_t>(y->dims.back());
        for (size_t i = 0; i < result.values.size(); ++i) {
            const double gate = h[i / n * 2 * n + i % n];
            result[i] = gate / (1 + std::exp(-gate)) * h[i / n * 2 * n + n + i % n];
        }
        store(y.get(), result, "aclnnSwiGlu");
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnSwiGlu)
