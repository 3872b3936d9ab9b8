// Gradients of aclnnMoeTokenUnpermute by its rows and by its probs.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnMoeTokenUnpermuteGradGetWorkspaceSize(const aclTensor* permutedTokens, const aclTensor* unpermutedTokensGrad, const aclTensor* sortedIndices,
                                                         const aclTensor* probsOptional, bool paddedMode, const aclIntArray* restoreShapeOptional,
                                                         const aclTensor* permutedTokensGradOut, const aclTensor* probsGradOut, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!permutedTokens || !unpermutedTokensGrad || !sortedIndices || !permutedTokensGradOut) return ACLNN_ERR_PARAM_NULLPTR;
    if (!alike({permutedTokens, unpermutedTokensGrad, permutedTokensGradOut}) || sortedIndices->type != ACL_INT32 || paddedMode || restoreShapeOptional) return ACLNN_ERR_PARAM_INVALID;
    if (!probsOptional || !probsGradOut || probsOptional->dims.size() != 2 || probsOptional->dims != probsGradOut->dims || probsOptional->dims[1] > 512) return ACLNN_ERR_PARAM_INVALID;
    Held rows = hold(permutedTokens), dy = hold(unpermutedTokensGrad), places = hold(sortedIndices), probs = hold(probsOptional);
    Held drows = hold(permutedTokensGradOut), dprobs = hold(probsGradOut);
    return prepare("aclnnMoeTokenUnpermuteGrad", {rows, dy, places, probs, drows, dprobs}, [=] {
        const char* me = "aclnnMoeTokenUnpermuteGrad";
        const Array r = load(rows.get(), me), g = load(dy.get(), me), at = load(places.get(), me), p = load(probs.get(), me);
        const size_t width = static_cast<size_t>(r.dims[1]), k = static_cast<size_t>(probs->dims[1]);
        Array back(drows->dims), weights(dprobs->dims);
        for (size_t i = 0; i < at.values.size(); ++i) {
            const size_t row = row_of(at[i], r, me);
            for (size_t c = 0; c < width; ++c) {
                back[row * width + c] = p[i] * g[i / k * width + c];
                weights[i] += r[row * width + c] * g[i / k * width + c];
            }
        }
        store(drows.get(), back, me);
        store(dprobs.get(), weights, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnMoeTokenUnpermuteGrad)
