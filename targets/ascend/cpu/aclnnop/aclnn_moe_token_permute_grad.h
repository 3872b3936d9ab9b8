// out[t] = the sum over k of permutedOutputGrad[sortedIndices[t * numTopk + k]].
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnMoeTokenPermuteGradGetWorkspaceSize(const aclTensor* permutedOutputGrad, const aclTensor* sortedIndices, int64_t numTopk, bool paddedMode,
                                                       const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!permutedOutputGrad || !sortedIndices || !out) return ACLNN_ERR_PARAM_NULLPTR;
    if (!alike({permutedOutputGrad, out}) || sortedIndices->type != ACL_INT32 || paddedMode || numTopk < 1 || numTopk > 512) return ACLNN_ERR_PARAM_INVALID;
    Held rows = hold(permutedOutputGrad), places = hold(sortedIndices), y = hold(out);
    return prepare("aclnnMoeTokenPermuteGrad", {rows, places, y}, [=] {
        const char* me = "aclnnMoeTokenPermuteGrad";
        const Array r = load(rows.get(), me), at = load(places.get(), me);
        Array sums(y->dims);
        gather_sum(r, at, static_cast<size_t>(numTopk), nullptr, sums, me);
        store(y.get(), sums, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnMoeTokenPermuteGrad)
