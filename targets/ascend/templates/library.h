// What calls of CANN's operator library need: strided views of device memory, lists of them, a workspace.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

namespace library {

/// A view of `data`; strides in elements, dense where none are given.
inline aclTensor *Tensor(void *data, aclDataType type, const std::vector<int64_t> &shape, std::vector<int64_t> strides = {})
{
    if (strides.empty()) {
        strides.assign(shape.size(), 1);
        for (size_t i = shape.size(); i-- > 1;) {
            strides[i - 1] = strides[i] * shape[i];
        }
    }
    int64_t stored = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
        stored += std::max<int64_t>(shape[i] - 1, 0) * strides[i];
    }
    return aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0, ACL_FORMAT_ND, &stored, 1, data);
}

inline aclTensorList *List(const std::vector<const aclTensor *> &items) { return aclCreateTensorList(items.data(), items.size()); }

inline aclIntArray *Integers(const std::vector<int64_t> &values) { return aclCreateIntArray(values.data(), values.size()); }

/// Memory that the calls of one stream use one after the other; what was outgrown is kept until the end, as earlier
/// calls may still use it.
class Workspace {
public:
    explicit Workspace(void *(*allocate)(size_t)) : allocate_(allocate) {}
    void Free()
    {
        for (void *block : blocks_) {
            aclrtFree(block);
        }
        blocks_.clear();
        size_ = 0;
    }
    void *Of(uint64_t bytes)
    {
        if (bytes > size_) {
            size_ = bytes;
            blocks_.push_back(allocate_(bytes));
        }
        return bytes == 0 ? nullptr : blocks_.back();
    }

private:
    void *(*allocate_)(size_t);
    uint64_t size_ = 0;
    std::vector<void *> blocks_;
};

}  // namespace library
