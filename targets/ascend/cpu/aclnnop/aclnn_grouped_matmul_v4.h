// Products of groups: over rows (groupType 0: the rows of group e times weight[e] + bias[e]) or over K (groupType 2:
// result[e] = x's columns of group e times weight's rows of it). Without quantisation and activation, one tensor a list.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnGroupedMatmulV4GetWorkspaceSize(
    const aclTensorList* x, const aclTensorList* weight, const aclTensorList* biasOptional, const aclTensorList* scaleOptional,
    const aclTensorList* offsetOptional, const aclTensorList* antiquantScaleOptional, const aclTensorList* antiquantOffsetOptional,
    const aclTensorList* perTokenScaleOptional, const aclTensor* groupListOptional, const aclTensorList* activationInputOptional,
    const aclTensorList* activationQuantScaleOptional, const aclTensorList* activationQuantOffsetOptional, int64_t splitItem,
    int64_t groupType, int64_t groupListType, int64_t actType, aclTensorList* out, aclTensorList* activationFeatureOutOptional,
    aclTensorList* dynQuantScaleOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!x || !weight || !out || !groupListOptional) return ACLNN_ERR_PARAM_NULLPTR;
    for (const void* p : {static_cast<const void*>(scaleOptional), static_cast<const void*>(offsetOptional), static_cast<const void*>(antiquantScaleOptional),
                          static_cast<const void*>(antiquantOffsetOptional), static_cast<const void*>(perTokenScaleOptional),
                          static_cast<const void*>(activationInputOptional), static_cast<const void*>(activationQuantScaleOptional),
                          static_cast<const void*>(activationQuantOffsetOptional), static_cast<const void*>(activationFeatureOutOptional),
                          static_cast<const void*>(dynQuantScaleOutOptional)}) {
        if (p) return ACLNN_ERR_PARAM_INVALID;
    }
    if (x->items.size() != 1 || weight->items.size() != 1 || out->items.size() != 1 || (biasOptional && biasOptional->items.size() != 1)) return ACLNN_ERR_PARAM_INVALID;
    if ((splitItem != 2 && splitItem != 3) || (groupListType != 0 && groupListType != 1) || actType != 0) return ACLNN_ERR_PARAM_INVALID;
    Held a = hold(x->items[0]), w = hold(weight->items[0]), y = hold(out->items[0]), groups = hold(groupListOptional);
    Held bias = biasOptional ? hold(biasOptional->items[0]) : nullptr;
    const bool rows = groupType == 0;  // else over K: dW
    if ((!rows && (groupType != 2 || bias)) || !alike({a.get(), w.get(), y.get()}) || groups->type != ACL_INT64) return ACLNN_ERR_PARAM_INVALID;
    if (a->dims.size() != 2 || w->dims.size() != (rows ? 3u : 2u) || y->dims.size() != (rows ? 2u : 3u)) return ACLNN_ERR_PARAM_INVALID;
    if (bias && bias->type != (a->type == ACL_FLOAT16 ? ACL_FLOAT16 : ACL_FLOAT)) return ACLNN_ERR_PARAM_INVALID;
    return prepare("aclnnGroupedMatmulV4", {a, w, bias, groups, y}, [=] {
        const char* me = "aclnnGroupedMatmulV4";
        const std::vector<int64_t> counts = group_sizes(load(groups.get(), me), groupListType == 0, rows ? a->dims[0] : a->dims[1], me);
        const Array lhs = load(a.get(), me), rhs = load(w.get(), me);
        Array result(y->dims);
        if (rows) {
            const int64_t k = a->dims[1], n = w->dims[2];
            const Array added = bias ? load(bias.get(), me) : Array({0});
            int64_t first = 0;
            for (size_t e = 0; e < counts.size(); first += counts[e], ++e) {
                multiply(&lhs.values[first * k], &rhs.values[e * k * n], &result.values[first * n], counts[e], k, n);
                for (int64_t i = 0; bias && i < counts[e] * n; ++i) result[first * n + i] += added[e * n + i % n];
            }
        } else {
            over_depth(lhs, rhs, counts, result);
        }
        store(y.get(), result, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnGroupedMatmulV4)
