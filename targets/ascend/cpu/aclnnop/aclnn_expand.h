// out = self broadcast to `size`; both of the same rank.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnExpandGetWorkspaceSize(const aclTensor* self, const aclIntArray* size, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!self || !size || !out) return ACLNN_ERR_PARAM_NULLPTR;
    if (self->type != out->type || out->dims != size->values || self->dims.size() != out->dims.size()) return ACLNN_ERR_PARAM_INVALID;
    auto view = std::make_shared<aclTensor>(*self);
    for (size_t i = 0; i < out->dims.size(); ++i) {
        if (self->dims[i] != out->dims[i] && self->dims[i] != 1) return ACLNN_ERR_PARAM_INVALID;
        if (self->dims[i] == 1) view->strides[i] = 0;
        view->dims[i] = out->dims[i];
    }
    Held x = view, y = hold(out);
    return prepare("aclnnExpand", {x, y}, [=] { store(y.get(), load(x.get(), "aclnnExpand"), "aclnnExpand"); }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnExpand)
