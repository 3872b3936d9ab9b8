// out = self in another data type; a strided self is read through its strides.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnCastGetWorkspaceSize(const aclTensor* self, const aclDataType dtype, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!self || !out) return ACLNN_ERR_PARAM_NULLPTR;
    if (out->type != dtype || self->dims != out->dims) return ACLNN_ERR_PARAM_INVALID;
    Held x = hold(self), y = hold(out);
    return prepare("aclnnCast", {x, y}, [=] { store(y.get(), load(x.get(), "aclnnCast"), "aclnnCast"); }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnCast)
