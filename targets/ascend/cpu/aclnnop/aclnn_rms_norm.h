// yOut = x * rstdOut * gamma with rstdOut = 1 / sqrt(mean(x^2) + epsilon) over the last dimension, f32.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* yOut, const aclTensor* rstdOut, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!x || !gamma || !yOut || !rstdOut) return ACLNN_ERR_PARAM_NULLPTR;
    if (!alike({x, gamma, yOut}) || rstdOut->type != ACL_FLOAT || gamma->dims.size() != 1 || gamma->dims[0] != x->dims.back() || x->dims != yOut->dims) return ACLNN_ERR_PARAM_INVALID;
    Held a = hold(x), g = hold(gamma), y = hold(yOut), r = hold(rstdOut);
    return prepare("aclnnRmsNorm", {a, g, y, r}, [=] {
        const char* me = "aclnnRmsNorm";
        rms_norm(load(a.get(), me), load(g.get(), me), epsilon, y.get(), r.get(), me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnRmsNorm)
