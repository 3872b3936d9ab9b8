// out = softmax of self along `dim`.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!self || !out) return ACLNN_ERR_PARAM_NULLPTR;
    const int64_t rank = static_cast<int64_t>(self->dims.size());
    if (!alike({self, out}) || self->dims != out->dims || dim < -rank || dim >= rank) return ACLNN_ERR_PARAM_INVALID;
    const size_t axis = static_cast<size_t>(dim < 0 ? dim + rank : dim);
    Held x = hold(self), y = hold(out);
    return prepare("aclnnSoftmax", {x, y}, [=] {
        Array a = load(x.get(), "aclnnSoftmax");
        size_t inner = 1, length = static_cast<size_t>(a.dims[axis]);
        for (size_t i = axis + 1; i < a.dims.size(); ++i) inner *= static_cast<size_t>(a.dims[i]);
        for (size_t start = 0; start < a.values.size(); start += inner * length) {
            for (size_t j = 0; j < inner; ++j) softmax(&a.values[start + j], length, inner);
        }
        store(y.get(), a, "aclnnSoftmax");
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnSoftmax)
