// Tensors, lists and arrays of the operator library's calls (names, parameter order and values: CANN 8.1.RC1 public
// headers). A tensor is a strided view of device memory.
#pragma once
#include <cstdint>
#include <vector>
#include "acl/acl.h"

typedef enum {
    ACL_FORMAT_UNDEFINED = -1, ACL_FORMAT_NCHW = 0, ACL_FORMAT_NHWC = 1, ACL_FORMAT_ND = 2, ACL_FORMAT_FRACTAL_NZ = 29
} aclFormat;

typedef int32_t aclnnStatus;
static const aclnnStatus ACLNN_ERR_PARAM_NULLPTR = 161001;
static const aclnnStatus ACLNN_ERR_PARAM_INVALID = 161002;

struct aclTensor {
    std::vector<int64_t> dims, strides;  // strides in elements
    int64_t offset;                      // elements
    aclDataType type;
    char* data;
};
struct aclTensorList {
    std::vector<const aclTensor*> items;
};
struct aclIntArray {
    std::vector<int64_t> values;
};

/// Work that the first of the two calls prepared and the second one submits.
struct aclOpExecutor {
    const char* name;
    std::vector<uint64_t> pointers;  // device addresses it was given
    std::function<void()> run;
};

inline aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride, int64_t offset,
                                  aclFormat format, const int64_t*, uint64_t, void* tensorData)
{
    if (format != ACL_FORMAT_ND || (viewDimsNum > 0 && !viewDims)) return nullptr;
    auto* t = new aclTensor{{viewDims, viewDims + viewDimsNum}, {}, offset, dataType, static_cast<char*>(tensorData)};
    if (stride) {
        t->strides.assign(stride, stride + viewDimsNum);
    } else {
        t->strides.assign(viewDimsNum, 1);
        for (size_t i = viewDimsNum; i-- > 1;) t->strides[i - 1] = t->strides[i] * t->dims[i];
    }
    return t;
}
inline aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) { return new aclTensorList{{value, value + size}}; }
inline aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) { return new aclIntArray{{value, value + size}}; }

inline aclnnStatus aclDestroyTensor(const aclTensor* tensor)
{
    delete tensor;
    return ACL_SUCCESS;
}
/// A list owns its tensors.
inline aclnnStatus aclDestroyTensorList(const aclTensorList* array)
{
    if (array) {
        for (const aclTensor* t : array->items) delete t;
    }
    delete array;
    return ACL_SUCCESS;
}
inline aclnnStatus aclDestroyIntArray(const aclIntArray* array)
{
    delete array;
    return ACL_SUCCESS;
}
