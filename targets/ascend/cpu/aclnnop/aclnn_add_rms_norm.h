// xOut = x1 + x2, and its RMS norm: yOut = xOut * rstdOut * gamma with rstdOut = 1 / sqrt(mean(xOut^2) + epsilon), f32.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnAddRmsNormGetWorkspaceSize(const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, double epsilon, const aclTensor* yOut,
                                                   const aclTensor* rstdOut, const aclTensor* xOut, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!x1 || !x2 || !gamma || !yOut || !rstdOut || !xOut) return ACLNN_ERR_PARAM_NULLPTR;
    if (!alike({x1, x2, gamma, yOut, xOut}) || rstdOut->type != ACL_FLOAT || gamma->dims.size() != 1 || gamma->dims[0] != x1->dims.back()) return ACLNN_ERR_PARAM_INVALID;
    if (x1->dims != x2->dims || x1->dims != yOut->dims || x1->dims != xOut->dims) return ACLNN_ERR_PARAM_INVALID;
    Held a = hold(x1), b = hold(x2), g = hold(gamma), y = hold(yOut), r = hold(rstdOut), x = hold(xOut);
    return prepare("aclnnAddRmsNorm", {a, b, g, y, r, x}, [=] {
        const char* me = "aclnnAddRmsNorm";
        Array sum = load(a.get(), me);
        const Array other = load(b.get(), me);
        for (size_t i = 0; i < sum.values.size(); ++i) sum[i] += other[i];
        store(x.get(), sum, me);
        rms_norm(sum, load(g.get(), me), epsilon, y.get(), r.get(), me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnAddRmsNorm)
