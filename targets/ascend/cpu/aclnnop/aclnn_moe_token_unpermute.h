// out[t] = the sum over k of probs[t, k] * permutedTokens[sortedIndices[t * K + k]]; K is 1 without probs.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnMoeTokenUnpermuteGetWorkspaceSize(const aclTensor* permutedTokens, const aclTensor* sortedIndices, const aclTensor* probsOptional, bool paddedMode,
                                                     const aclIntArray* restoreShapeOptional, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!permutedTokens || !sortedIndices || !out) return ACLNN_ERR_PARAM_NULLPTR;
    if (!alike({permutedTokens, out}) || sortedIndices->type != ACL_INT32 || paddedMode || restoreShapeOptional) return ACLNN_ERR_PARAM_INVALID;
    if (probsOptional && (probsOptional->dims.size() != 2 || probsOptional->dims[1] > 512 || !alike({probsOptional}))) return ACLNN_ERR_PARAM_INVALID;
    Held rows = hold(permutedTokens), places = hold(sortedIndices), probs = hold(probsOptional), y = hold(out);
    return prepare("aclnnMoeTokenUnpermute", {rows, places, probs, y}, [=] {
        const char* me = "aclnnMoeTokenUnpermute";
        const Array r = load(rows.get(), me), at = load(places.get(), me), p = probs ? load(probs.get(), me) : Array({0});
        Array sums(y->dims);
        gather_sum(r, at, probs ? static_cast<size_t>(probs->dims[1]) : 1, probs ? &p : nullptr, sums, me);
        store(y.get(), sums, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnMoeTokenUnpermute)
