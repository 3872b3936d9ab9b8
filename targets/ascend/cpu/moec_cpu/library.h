// What every operator of the library shares: dense copies of its tensors, checks of the memory behind them, and the two
// calls. Operators compute in double and round once, so they are a reference, not a copy of the device's order of sums.
#pragma once
#include <algorithm>
#include <limits>
#include "aclnn/acl_meta.h"

namespace moec_cpu {
namespace library {

/// A tensor's elements in row-major order.
struct Array {
    std::vector<int64_t> dims;
    std::vector<double> values;

    explicit Array(std::vector<int64_t> shape) : dims(std::move(shape)), values(count(dims), 0.0) {}
    static size_t count(const std::vector<int64_t>& dims)
    {
        size_t n = 1;
        for (int64_t d : dims) n *= static_cast<size_t>(d);
        return n;
    }
    int64_t size(int axis) const { return dims[axis < 0 ? dims.size() + axis : axis]; }
    double& operator[](size_t i) { return values[i]; }
    double operator[](size_t i) const { return values[i]; }
};

inline size_t width(aclDataType type)
{
    switch (type) {
        case ACL_FLOAT: case ACL_INT32: return 4;
        case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: return 2;
        case ACL_INT64: case ACL_DOUBLE: return 8;
        case ACL_INT8: case ACL_UINT8: case ACL_BOOL: return 1;
        default: refuse({"?", 0}, "data type of a library call", fmt("aclDataType %d is not modelled", static_cast<int>(type)));
    }
}

template <typename T>
T raw(const char* at)
{
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

inline double read(const char* at, aclDataType type)
{
    switch (type) {
        case ACL_FLOAT: return raw<float>(at);
        case ACL_FLOAT16: return half_value(raw<uint16_t>(at));
        case ACL_BF16: return bf16_value(raw<uint16_t>(at));
        case ACL_DOUBLE: return raw<double>(at);
        case ACL_INT32: return raw<int32_t>(at);
        case ACL_INT64: return static_cast<double>(raw<int64_t>(at));
        case ACL_INT16: return raw<int16_t>(at);
        case ACL_INT8: return raw<int8_t>(at);
        default: return raw<uint8_t>(at);
    }
}

inline void write(char* at, aclDataType type, double value)
{
    auto put = [at](auto v) { std::memcpy(at, &v, sizeof(v)); };
    switch (type) {
        case ACL_FLOAT: return put(static_cast<float>(value));
        case ACL_FLOAT16: return put(half_bits(static_cast<float>(value)));
        case ACL_BF16: return put(bf16_bits(static_cast<float>(value)));
        case ACL_DOUBLE: return put(value);
        case ACL_INT32: return put(static_cast<int32_t>(value));
        case ACL_INT64: return put(static_cast<int64_t>(value));
        case ACL_INT16: return put(static_cast<int16_t>(value));
        case ACL_INT8: return put(static_cast<int8_t>(value));
        default: return put(static_cast<uint8_t>(value));
    }
}

/// The allocation that holds every element of `t`, and the view's first byte in it.
inline std::pair<Allocation*, uint64_t> memory(const aclTensor* t, const char* name, const char* verb)
{
    Allocation* a = find_allocation(reinterpret_cast<uint64_t>(t->data));
    if (!a || a->host || a->freed) refuse({"?", 0}, fmt("%s outside device memory", name), fmt("it %s a tensor that aclrtMalloc did not give", verb));
    int64_t last = t->offset;
    for (size_t i = 0; i < t->dims.size(); ++i) last += (t->dims[i] - 1) * t->strides[i];
    uint64_t begin = reinterpret_cast<uint64_t>(t->data) - a->begin;
    if (Array::count(t->dims) > 0 && begin + static_cast<uint64_t>(last + 1) * width(t->type) > a->size) {
        refuse({"?", 0}, fmt("%s out of range", name), fmt("it %s element %lld of a buffer of %llu bytes", verb, static_cast<long long>(last),
                                                            static_cast<unsigned long long>(a->size)));
    }
    return {a, begin};
}

/// Calls `visit(i, byte)` for each element in row-major order, `byte` counted from the tensor's first.
template <typename F>
void each(const aclTensor* t, F visit)
{
    const size_t n = Array::count(t->dims), bytes = width(t->type);
    std::vector<int64_t> at(t->dims.size(), 0);
    int64_t place = t->offset;
    for (size_t i = 0; i < n; ++i) {
        visit(i, static_cast<uint64_t>(place) * bytes);
        for (size_t axis = at.size(); axis-- > 0;) {
            place += t->strides[axis];
            if (++at[axis] < t->dims[axis]) break;
            place -= t->strides[axis] * t->dims[axis];
            at[axis] = 0;
        }
    }
}

inline Array load(const aclTensor* t, const char* name)
{
    Array out(t->dims);
    if (out.values.empty()) return out;
    auto [a, begin] = memory(t, name, "reads");
    each(t, [&, a = a, begin = begin](size_t i, uint64_t byte) {
        if (!a->all_written(begin + byte, begin + byte + width(t->type))) refuse({"?", 0}, fmt("%s reads memory that nothing wrote", name), fmt("element %zu of a tensor", i));
        out[i] = read(t->data + byte, t->type);
    });
    return out;
}

inline void store(const aclTensor* t, const Array& values, const char* name)
{
    if (values.values.size() != Array::count(t->dims)) refuse({"?", 0}, fmt("%s: shapes do not fit", name), "the result has another size than its tensor");
    if (values.values.empty()) return;
    auto [a, begin] = memory(t, name, "writes");
    each(t, [&, a = a, begin = begin](size_t i, uint64_t byte) {
        write(t->data + byte, t->type, values[i]);
        a->mark(begin + byte, begin + byte + width(t->type), true);
    });
}

/// A tensor as it is now: its handle may be destroyed before the stream runs.
using Held = std::shared_ptr<const aclTensor>;
inline Held hold(const aclTensor* t) { return t ? std::make_shared<const aclTensor>(*t) : nullptr; }

/// First call: keeps the work, asks for a workspace so that a program that forgets it is refused.
constexpr uint64_t kWorkspace = 512;
inline aclnnStatus prepare(const char* name, const std::vector<Held>& tensors, std::function<void()> run, uint64_t* size, aclOpExecutor** executor)
{
    if (!size || !executor) return ACLNN_ERR_PARAM_NULLPTR;
    *size = kWorkspace;
    *executor = new aclOpExecutor{name, {}, std::move(run)};
    for (const Held& t : tensors) {
        if (t) (*executor)->pointers.push_back(reinterpret_cast<uint64_t>(t->data));
    }
    return ACL_SUCCESS;
}

/// Second call: queues the work.
inline aclnnStatus submit(void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream)
{
    if (!executor) return ACLNN_ERR_PARAM_NULLPTR;
    if (!known_stream(stream)) return ACL_ERROR_INVALID_RESOURCE_HANDLE;
    if (size < kWorkspace || !find_allocation(reinterpret_cast<uint64_t>(workspace))) return ACLNN_ERR_PARAM_INVALID;
    Task t;
    t.pointers = std::move(executor->pointers);
    t.pointers.push_back(reinterpret_cast<uint64_t>(workspace));
    t.site = {executor->name, 0};
    t.what = executor->name;
    t.run = std::move(executor->run);
    delete executor;
    enqueue(stream_of(stream), std::move(t));
    return ACL_SUCCESS;
}

/// Whether the tensors that are there have one floating type.
inline bool alike(std::initializer_list<const aclTensor*> tensors)
{
    aclDataType type = ACL_DT_UNDEFINED;
    for (const aclTensor* t : tensors) {
        if (!t) continue;
        if (type == ACL_DT_UNDEFINED) type = t->type;
        if (t->type != type || (type != ACL_FLOAT && type != ACL_FLOAT16 && type != ACL_BF16)) return false;
    }
    return true;
}

/// c += a b for row-major a [m, k] and b [k, n].
inline void multiply(const double* a, const double* b, double* c, int64_t m, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t p = 0; p < k; ++p) {
            for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + p] * b[p * n + j];
        }
    }
}

/// result[e] += the columns of group e of a [m, k] times the rows of group e of b [k, n].
inline void over_depth(const Array& a, const Array& b, const std::vector<int64_t>& counts, Array& result)
{
    const int64_t m = a.dims[0], k = a.dims[1], n = b.dims[1];
    int64_t first = 0;
    for (size_t e = 0; e < counts.size(); first += counts[e], ++e) {
        for (int64_t i = 0; i < m; ++i) multiply(&a.values[i * k + first], &b.values[first * n], &result.values[(e * m + i) * n], 1, counts[e], n);
    }
}

/// Elements of each group, from sizes or (`cumulative`) ends; refused where they do not fill `total`.
inline std::vector<int64_t> group_sizes(const Array& list, bool cumulative, int64_t total, const char* name)
{
    std::vector<int64_t> out;
    int64_t end = 0;
    for (double value : list.values) {
        const int64_t size = static_cast<int64_t>(value) - (cumulative ? end : 0);
        if (size < 0) refuse({"?", 0}, fmt("%s: a negative group", name), fmt("group %zu has %lld", out.size(), static_cast<long long>(size)));
        out.push_back(size);
        end += size;
    }
    if (end != total) refuse({"?", 0}, fmt("%s: groups do not fill the operand", name), fmt("they sum to %lld of %lld", static_cast<long long>(end), static_cast<long long>(total)));
    return out;
}

/// In place over `length` numbers, `stride` apart.
inline void softmax(double* x, size_t length, size_t stride)
{
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t i = 0; i < length; ++i) most = std::max(most, x[i * stride]);
    for (size_t i = 0; i < length; ++i) sum += x[i * stride] = std::exp(x[i * stride] - most);
    for (size_t i = 0; i < length; ++i) x[i * stride] /= sum;
}

/// The rows of `x` over the root of their mean square, times `gamma`; and one over that root, a number a row.
inline void rms_norm(Array x, const Array& gamma, double epsilon, const aclTensor* y, const aclTensor* rstd, const char* name)
{
    const size_t n = gamma.values.size();
    Array scales(rstd->dims);
    for (size_t row = 0; row * n < x.values.size(); ++row) {
        double squares = 0;
        for (size_t i = 0; i < n; ++i) squares += x[row * n + i] * x[row * n + i];
        scales[row] = 1 / std::sqrt(squares / static_cast<double>(n) + epsilon);
        for (size_t i = 0; i < n; ++i) x[row * n + i] *= scales[row] * gamma[i];
    }
    store(y, x, name);
    store(rstd, scales, name);
}

inline size_t row_of(double place, const Array& rows, const char* name)
{
    if (place < 0 || place >= static_cast<double>(rows.dims[0])) {
        refuse({"?", 0}, fmt("%s: index out of range", name), fmt("row %.0f of %lld", place, static_cast<long long>(rows.dims[0])));
    }
    return static_cast<size_t>(place);
}

/// sums[t] += the rows at places[t * k + j], times weights[t * k + j] where there are such.
inline void gather_sum(const Array& rows, const Array& places, size_t k, const Array* weights, Array& sums, const char* name)
{
    const size_t width = static_cast<size_t>(rows.dims[1]);
    for (size_t i = 0; i < places.values.size(); ++i) {
        const size_t row = row_of(places[i], rows, name);
        const double w = weights ? (*weights)[i] : 1.0;
        for (size_t c = 0; c < width; ++c) sums[i / k * width + c] += w * rows[row * width + c];
    }
}

}  // namespace library
}  // namespace moec_cpu

/// The second call of an operator.
#define MOEC_CPU_OPERATOR(name)                                                                                          \
    inline aclnnStatus name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream)        \
    {                                                                                                                    \
        return moec_cpu::library::submit(workspace, workspaceSize, executor, stream);                                    \
    }
