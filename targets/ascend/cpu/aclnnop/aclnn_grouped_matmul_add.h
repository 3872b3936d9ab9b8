// yRef[e] += x^T weight over the rows of group e, in f32; groupList is cumulative.
#pragma once
#include "moec_cpu/library.h"

inline aclnnStatus aclnnGroupedMatmulAddGetWorkspaceSize(const aclTensor* x, const aclTensor* weight, const aclTensor* groupList, aclTensor* yRef, bool transposeX,
                                                    bool transposeWeight, int64_t groupType, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!x || !weight || !groupList || !yRef) return ACLNN_ERR_PARAM_NULLPTR;
    if (!transposeX || transposeWeight || groupType != 2) return ACLNN_ERR_PARAM_INVALID;
    if (!alike({x, weight}) || x->type == ACL_FLOAT || yRef->type != ACL_FLOAT || groupList->type != ACL_INT64) return ACLNN_ERR_PARAM_INVALID;
    if (x->dims.size() != 2 || weight->dims.size() != 2 || yRef->dims.size() != 3 || x->dims[0] != weight->dims[0]) return ACLNN_ERR_PARAM_INVALID;
    auto turned = std::make_shared<aclTensor>(*x);
    std::swap(turned->dims[0], turned->dims[1]);
    std::swap(turned->strides[0], turned->strides[1]);
    Held a = turned, w = hold(weight), y = hold(yRef), groups = hold(groupList);
    return prepare("aclnnGroupedMatmulAdd", {a, w, groups, y}, [=] {
        const char* me = "aclnnGroupedMatmulAdd";
        const std::vector<int64_t> counts = group_sizes(load(groups.get(), me), true, a->dims[1], me);
        Array result = load(y.get(), me);
        over_depth(load(a.get(), me), load(w.get(), me), counts, result);
        store(y.get(), result, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnGroupedMatmulAdd)
