// Rows sorted by expert, stable: permuteTokensOut[sortedIndicesOut[i]] = tokens[i / topK].
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnMoeTokenPermuteGetWorkspaceSize(const aclTensor* tokens, const aclTensor* indices, int64_t numOutTokens, bool paddedMode,
                                                   const aclTensor* permuteTokensOut, const aclTensor* sortedIndicesOut, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!tokens || !indices || !permuteTokensOut || !sortedIndicesOut) return ACLNN_ERR_PARAM_NULLPTR;
    if (!alike({tokens, permuteTokensOut}) || (indices->type != ACL_INT32 && indices->type != ACL_INT64) || sortedIndicesOut->type != ACL_INT32) return ACLNN_ERR_PARAM_INVALID;
    if (paddedMode || numOutTokens != 0 || tokens->dims.size() != 2 || indices->dims.size() != 2 || indices->dims[0] != tokens->dims[0]) return ACLNN_ERR_PARAM_INVALID;
    Held x = hold(tokens), chosen = hold(indices), rows = hold(permuteTokensOut), places = hold(sortedIndicesOut);
    return prepare("aclnnMoeTokenPermute", {x, chosen, rows, places}, [=] {
        const char* me = "aclnnMoeTokenPermute";
        const Array t = load(x.get(), me), e = load(chosen.get(), me);
        const size_t n = e.values.size(), k = static_cast<size_t>(chosen->dims[1]), width = static_cast<size_t>(x->dims[1]);
        std::vector<size_t> order(n);
        for (size_t i = 0; i < n; ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return e[i] < e[j]; });
        Array moved(rows->dims), back(places->dims);
        for (size_t row = 0; row < n; ++row) {
            back[order[row]] = static_cast<double>(row);
            std::copy_n(&t.values[order[row] / k * width], width, &moved.values[row * width]);
        }
        store(rows.get(), moved, me);
        store(places.get(), back, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnMoeTokenPermute)
