// Running sums along `dim`, in the type `dtype`.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnCumsumGetWorkspaceSize(const aclTensor* self, int64_t dim, aclDataType dtype, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!self || !out) return ACLNN_ERR_PARAM_NULLPTR;
    const int64_t rank = static_cast<int64_t>(self->dims.size()), axis = dim < 0 ? dim + rank : dim;
    if (axis < 0 || axis >= rank || out->type != dtype || self->dims != out->dims) return ACLNN_ERR_PARAM_INVALID;
    Held x = hold(self), y = hold(out);
    return prepare("aclnnCumsum", {x, y}, [=] {
        Array a = load(x.get(), "aclnnCumsum");
        int64_t inner = 1;
        for (int64_t i = axis + 1; i < rank; ++i) inner *= x->dims[i];
        const int64_t n = x->dims[axis], all = static_cast<int64_t>(a.values.size());
        for (int64_t i = 0; i < all; ++i) {
            if (i / inner % n > 0) a.values[i] += a.values[i - inner];
        }
        store(y.get(), a, "aclnnCumsum");
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnCumsum)
