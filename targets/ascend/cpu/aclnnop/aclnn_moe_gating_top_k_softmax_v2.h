// The k best experts of each row of x and their weights: softmax over all, then top-k (renorm 0), or top-k, then softmax
// over the chosen (renorm 1). Ties go to the lower expert.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize(const aclTensor* x, const aclTensor* finishedOptional, int64_t k, int64_t renorm,
                                                          bool outputSoftmaxResultFlag, const aclTensor* yOut, const aclTensor* expertIdxOut,
                                                          const aclTensor* softmaxResultOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!x || !yOut || !expertIdxOut) return ACLNN_ERR_PARAM_NULLPTR;
    if (!alike({x, yOut}) || expertIdxOut->type != ACL_INT32 || x->dims.size() != 2 || finishedOptional || outputSoftmaxResultFlag || softmaxResultOutOptional) return ACLNN_ERR_PARAM_INVALID;
    if (k < 1 || k > 1024 || k > x->dims[1] || renorm < 0 || renorm > 1) return ACLNN_ERR_PARAM_INVALID;
    Held logits = hold(x), weights = hold(yOut), chosen = hold(expertIdxOut);
    return prepare("aclnnMoeGatingTopKSoftmaxV2", {logits, weights, chosen}, [=] {
        const char* me = "aclnnMoeGatingTopKSoftmaxV2";
        Array scores = load(logits.get(), me);
        const size_t experts = static_cast<size_t>(logits->dims[1]), top = static_cast<size_t>(k);
        Array best(weights->dims), which(chosen->dims);
        std::vector<size_t> order(experts);
        for (size_t t = 0; t < static_cast<size_t>(logits->dims[0]); ++t) {
            double* row = &scores.values[t * experts];
            if (renorm == 0) softmax(row, experts, 1);
            for (size_t e = 0; e < experts; ++e) order[e] = e;
            std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return row[i] > row[j]; });
            for (size_t j = 0; j < top; ++j) {
                best[t * top + j] = row[order[j]];
                which[t * top + j] = static_cast<double>(order[j]);
            }
            if (renorm == 1) softmax(&best.values[t * top], top, 1);
        }
        store(weights.get(), best, me);
        store(chosen.get(), which, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnMoeGatingTopKSoftmaxV2)
