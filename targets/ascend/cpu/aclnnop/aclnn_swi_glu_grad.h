// The gradient of aclnnSwiGlu by x.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnSwiGluGradGetWorkspaceSize(const aclTensor* yGrad, const aclTensor* x, int64_t dim, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!yGrad || !x || !out) return ACLNN_ERR_PARAM_NULLPTR;
    const int64_t rank = static_cast<int64_t>(x->dims.size());
    if (!alike({yGrad, x, out}) || (dim != -1 && dim != rank - 1) || x->dims != out->dims || x->dims.back() != 2 * yGrad->dims.back()) return ACLNN_ERR_PARAM_INVALID;
    Held dy = hold(yGrad), a = hold(x), dx = hold(out);
    return prepare("aclnnSwiGluGrad", {dy, a, dx}, [=] {
        const Array g = load(dy.get(), "aclnnSwiGluGrad"), h = load(a.get(), "aclnnSwiGluGrad");
        Array result(dx->dims);
        const size_t n = static_cast<size_t>(dy->dims.back());
        for (size_t i = 0; i < g.values.size(); ++i) {
            const size_t at = i / n * 2 * n + i % n;
            const double s = 1 / (1 + std::exp(-h[at]));
            result[at] = g[i] * h[at + n] * s * (1 + h[at] * (1 - s));
            result[at + n] = g[i] * h[at] * s;
        }
        store(dx.get(), result, "aclnnSwiGluGrad");
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnSwiGluGrad)
