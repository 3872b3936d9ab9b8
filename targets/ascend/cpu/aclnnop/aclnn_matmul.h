// out = self @ mat2 over the last two dimensions, batches of equal shape; a transposed operand is a strided view.
// cubeMathType 0: f32 stays f32.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnMatmulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!self || !mat2 || !out) return ACLNN_ERR_PARAM_NULLPTR;
    const size_t rank = self->dims.size();
    if (!alike({self, mat2, out}) || cubeMathType != 0 || rank < 2 || mat2->dims.size() != rank || out->dims.size() != rank) return ACLNN_ERR_PARAM_INVALID;
    const int64_t m = self->dims[rank - 2], k = self->dims[rank - 1], n = mat2->dims[rank - 1];
    for (size_t i = 0; i + 2 < rank; ++i) {
        if (self->dims[i] != out->dims[i] || mat2->dims[i] != out->dims[i]) return ACLNN_ERR_PARAM_INVALID;
    }
    if (mat2->dims[rank - 2] != k || out->dims[rank - 2] != m || out->dims[rank - 1] != n) return ACLNN_ERR_PARAM_INVALID;
    Held a = hold(self), b = hold(mat2), c = hold(out);
    return prepare("aclnnMatmul", {a, b, c}, [=] {
        const Array x = load(a.get(), "aclnnMatmul"), w = load(b.get(), "aclnnMatmul");
        Array y(c->dims);
        const int64_t batch = m * n == 0 ? 0 : static_cast<int64_t>(y.values.size()) / (m * n);
        for (int64_t i = 0; i < batch; ++i) multiply(&x.values[i * m * k], &w.values[i * k * n], &y.values[i * m * n], m, k, n);
        store(c.get(), y, "aclnnMatmul");
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnMatmul)
