// High-level library: norms, sums and means of rows, running sums, broadcasts, top-k.
#pragma once
#include <numeric>
#include "moec_cpu/high.h"

namespace AscendC {

struct RmsNormTiling {
    uint32_t bLength = 0, sLength = 0, hLength = 0, originalHLength = 0;
    float reciprocalOfHLength = 0;
    uint32_t mainBshLength = 0, mainBsLength = 0, mainBsLengthAlign = 0, loopRound = 0, inputTailPos = 0, tailBshLength = 0, tailBsLength = 0;
};
struct LayerNormTiling {
    uint32_t bLength = 0, sLength = 0, hLength = 0, originalHLength = 0, inputXSize = 0, meanVarSize = 0, numberOfTmpBuf = 0, meanTmpTensorPos = 0;
    uint32_t meanTmpTensorSize = 0, varianceTmpTensorPos = 0, varianceTmpTensorSize = 0, tmpBufSize = 0, oneTmpSize = 0, firstTmpStartPos = 0;
    uint32_t secondTmpStartPos = 0, thirdTmpStartPos = 0, loopRound = 0, inputRoundSize = 0, inputTailSize = 0, inputTailPos = 0, meanVarRoundSize = 0;
    uint32_t meanVarTailSize = 0, meanVarTailPos = 0, bshCurLength = 0, bsCurLength = 0;
    float lastDimValueBack = 0;
};
struct SumParams {
    uint32_t outter = 1, inner, n;
};
struct MeanParams {
    uint32_t outter = 1, inner, n;
};
struct CumSumConfig {
    bool isLastAxis{true}, isReuseSource{false}, outputLastRow{false};
};
constexpr CumSumConfig defaultCumSumConfig = {true, false, false};
struct CumSumInfo {
    uint32_t outter{0}, inner{0};
};
struct TopKInfo {
    int32_t outter = 1, inner, n;
};
struct TopkTiling {};
enum class TopKMode { TOPK_NORMAL, TOPK_NSMALL };

}  // namespace AscendC

namespace moec_cpu {

template <typename T>
void rms_norm(High& h, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& gamma, float epsilon,
              const AscendC::RmsNormTiling& tiling)
{
    h.pitch<T>(tiling.hLength, "hLength");
    const uint32_t n = tiling.originalHLength ? tiling.originalHLength : tiling.hLength;
    h.in.require(n <= tiling.hLength, "shape out of range", "originalHLength is at most hLength");
    const std::vector<float> g = h.read(gamma, n);
    for (uint32_t row = 0; row < tiling.bLength * tiling.sLength; ++row) {
        std::vector<float> x = h.read(src, n, static_cast<uint64_t>(row) * tiling.hLength);
        float squares = 0;
        for (float v : x) squares += v * v;
        const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + epsilon);
        for (uint32_t i = 0; i < n; ++i) x[i] *= scale * g[i];
        h.write(dst, x, static_cast<uint64_t>(row) * tiling.hLength);
    }
}

template <typename T>
void layer_norm(High& h, const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& mean, const AscendC::LocalTensor<T>& variance,
                const AscendC::LocalTensor<T>& in, const AscendC::LocalTensor<T>& gamma, const AscendC::LocalTensor<T>& beta, float epsilon,
                const AscendC::LayerNormTiling& tiling)
{
    h.pitch<T>(tiling.hLength, "hLength");
    const uint32_t n = tiling.originalHLength ? tiling.originalHLength : tiling.hLength, rows = tiling.bLength * tiling.sLength;
    h.in.require(n <= tiling.hLength, "shape out of range", "originalHLength is at most hLength");
    const std::vector<float> g = h.read(gamma, n), b = h.read(beta, n);
    std::vector<float> means(rows), variances(rows);
    for (uint32_t row = 0; row < rows; ++row) {
        std::vector<float> x = h.read(in, n, static_cast<uint64_t>(row) * tiling.hLength);
        for (float v : x) means[row] += v / static_cast<float>(n);
        for (float v : x) variances[row] += (v - means[row]) * (v - means[row]) / static_cast<float>(n);
        const float scale = 1 / std::sqrt(variances[row] + epsilon);
        for (uint32_t i = 0; i < n; ++i) x[i] = (x[i] - means[row]) * scale * g[i] + b[i];
        h.write(out, x, static_cast<uint64_t>(row) * tiling.hLength);
    }
    h.write(mean, means);
    h.write(variance, variances);
}

/// One number a row, side by side.
template <typename T>
void fold_rows(High& h, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, uint32_t rows, uint32_t inner, uint32_t n, bool mean)
{
    h.pitch<T>(inner, "inner");
    h.in.require(n >= 1 && n <= inner && inner - n < 32 / sizeof(T), "shape out of range", fmt("inner %u is n = %u rounded up to 32 bytes", inner, n));
    std::vector<float> out(rows);
    for (uint32_t row = 0; row < rows; ++row) {
        const std::vector<float> x = h.read(src, n, static_cast<uint64_t>(row) * inner);
        for (float v : x) out[row] += v;
        if (mean) out[row] /= static_cast<float>(n);
    }
    h.write(dst, out);
}

template <typename T>
void running_sum(High& h, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>* last, const AscendC::LocalTensor<T>& src,
                 const AscendC::CumSumInfo& info, bool last_axis)
{
    h.pitch<T>(info.inner, "inner");
    std::vector<float> x = h.read(src, static_cast<uint64_t>(info.outter) * info.inner);
    for (uint32_t i = 0; i < info.outter; ++i) {
        for (uint32_t j = 0; j < info.inner; ++j) {
            if (last_axis && j > 0) x[i * info.inner + j] += x[i * info.inner + j - 1];
            if (!last_axis && i > 0) x[i * info.inner + j] += x[(i - 1) * info.inner + j];
        }
    }
    h.write(dst, x);
    if (last) h.write(*last, std::vector<float>(x.end() - info.inner, x.end()));
}

template <typename T>
void broadcast(High& h, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const uint32_t* to, const uint32_t* from, int dim, int axis)
{
    uint32_t rows = dim == 2 ? to[0] : 1, columns = to[dim - 1];
    for (int i = 0; i < dim; ++i) {
        h.in.require(from[i] == (i == axis ? 1 : to[i]), "shape out of range", fmt("dimension %d: %u does not become %u along axis %d", i, from[i], to[i], axis));
    }
    const std::vector<float> x = h.read(src, axis == dim - 1 ? rows : columns);
    std::vector<float> out(static_cast<size_t>(rows) * columns);
    for (uint32_t i = 0; i < rows; ++i) {
        for (uint32_t j = 0; j < columns; ++j) out[i * columns + j] = axis == dim - 1 ? x[i] : x[j];
    }
    h.write(dst, out);
}

/// Results of a row start on 32 bytes; equal values give the lower place.
template <typename T>
void top_k(High& h, const AscendC::LocalTensor<T>& values, const AscendC::LocalTensor<int32_t>& places, const AscendC::LocalTensor<T>& src,
           const AscendC::LocalTensor<int32_t>* given, const AscendC::LocalTensor<bool>* finished, int32_t k, const AscendC::TopKInfo& info, bool largest)
{
    h.in.require(info.inner % 32 == 0 && info.n >= 1 && info.n <= info.inner, "shape out of range", fmt("inner %d is a multiple of 32 and at least n = %d", info.inner, info.n));
    h.in.require(k >= 1 && k <= info.n, "k out of range", fmt("k %d of n = %d", k, info.n));
    const uint32_t wide = (k * sizeof(T) + 31) / 32 * 32 / sizeof(T), index_wide = (k * 4 + 31) / 32 * 32 / 4;
    for (int32_t row = 0; row < info.outter; ++row) {
        const std::vector<float> x = h.read(src, info.n, static_cast<uint64_t>(row) * info.inner);
        std::vector<int> order(info.n);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return largest ? x[a] > x[b] : x[a] < x[b]; });
        const std::vector<float> own = given ? h.read(*given, info.n, static_cast<uint64_t>(row) * info.inner) : std::vector<float>();
        const bool over = finished && h.read(*finished, 1, row)[0] != 0;
        std::vector<float> best(k), where(k);
        for (int32_t i = 0; i < k; ++i) {
            best[i] = x[order[i]];
            where[i] = over ? static_cast<float>(info.n) : given ? own[order[i]] : static_cast<float>(order[i]);
        }
        h.write(values, best, static_cast<uint64_t>(row) * wide);
        h.write(places, where, static_cast<uint64_t>(row) * index_wide);
    }
}

}  // namespace moec_cpu

namespace AscendC {

template <typename T, bool isBasicBlock = false>
void RmsNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<T>& gammaLocal, const LocalTensor<uint8_t>& sharedTmpBuffer,
             const T epsilon, const RmsNormTiling& tiling, Site site = Site::here())
{
    MOEC_HIGH_TYPE(RmsNorm);
    moec_cpu::High h("RmsNorm", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::rms_norm(h, dstLocal, srcLocal, gammaLocal, static_cast<float>(epsilon), tiling);
}
template <typename T, bool isBasicBlock = false>
void RmsNorm(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const LocalTensor<T>& gammaLocal, const T epsilon, const RmsNormTiling& tiling,
             Site site = Site::here())
{
    MOEC_HIGH_TYPE(RmsNorm);
    moec_cpu::High h("RmsNorm", site);
    moec_cpu::rms_norm(h, dstLocal, srcLocal, gammaLocal, static_cast<float>(epsilon), tiling);
}

template <typename T, bool isReuseSource = false>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance, const LocalTensor<T>& inputX,
               const LocalTensor<T>& gamma, const LocalTensor<T>& beta, const LocalTensor<uint8_t>& sharedTmpBuffer, const T epsilon, LayerNormTiling& tiling,
               Site site = Site::here())
{
    MOEC_HIGH_TYPE(LayerNorm);
    moec_cpu::High h("LayerNorm", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::layer_norm(h, output, outputMean, outputVariance, inputX, gamma, beta, static_cast<float>(epsilon), tiling);
}
template <typename T, bool isReuseSource = false>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance, const LocalTensor<T>& inputX,
               const LocalTensor<T>& gamma, const LocalTensor<T>& beta, const T epsilon, LayerNormTiling& tiling, Site site = Site::here())
{
    MOEC_HIGH_TYPE(LayerNorm);
    moec_cpu::High h("LayerNorm", site);
    moec_cpu::layer_norm(h, output, outputMean, outputVariance, inputX, gamma, beta, static_cast<float>(epsilon), tiling);
}

template <typename T, int32_t reduceDim = -1, bool isReuseSource = false, bool isBasicBlock = false>
void Sum(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const SumParams& sumParams,
         Site site = Site::here())
{
    MOEC_HIGH_TYPE(Sum);
    moec_cpu::High h("Sum", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::fold_rows(h, dstTensor, srcTensor, sumParams.outter, sumParams.inner, sumParams.n, false);
}
template <typename T, int32_t reduceDim = -1, bool isReuseSource = false, bool isBasicBlock = false>
void Sum(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const SumParams& sumParams, Site site = Site::here())
{
    MOEC_HIGH_TYPE(Sum);
    moec_cpu::High h("Sum", site);
    moec_cpu::fold_rows(h, dstTensor, srcTensor, sumParams.outter, sumParams.inner, sumParams.n, false);
}
template <typename T, typename accType = T, bool isReuseSource = false, bool isBasicBlock = false, int32_t reduceDim = -1>
void Mean(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const LocalTensor<uint8_t>& sharedTmpBuffer, const MeanParams& meanParams,
          Site site = Site::here())
{
    MOEC_HIGH_TYPE(Mean);
    moec_cpu::High h("Mean", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::fold_rows(h, dstTensor, srcTensor, meanParams.outter, meanParams.inner, meanParams.n, true);
}
template <typename T, typename accType = T, bool isReuseSource = false, bool isBasicBlock = false, int32_t reduceDim = -1>
void Mean(const LocalTensor<T>& dstTensor, const LocalTensor<T>& srcTensor, const MeanParams& meanParams, Site site = Site::here())
{
    MOEC_HIGH_TYPE(Mean);
    moec_cpu::High h("Mean", site);
    moec_cpu::fold_rows(h, dstTensor, srcTensor, meanParams.outter, meanParams.inner, meanParams.n, true);
}

template <typename T, const CumSumConfig& config = defaultCumSumConfig>
void CumSum(LocalTensor<T>& dstTensor, LocalTensor<T>& lastRowTensor, const LocalTensor<T>& srcTensor, LocalTensor<uint8_t>& sharedTmpBuffer,
            const CumSumInfo& cumSumInfo, Site site = Site::here())
{
    MOEC_HIGH_TYPE(CumSum);
    moec_cpu::High h("CumSum", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::running_sum(h, dstTensor, config.outputLastRow ? &lastRowTensor : nullptr, srcTensor, cumSumInfo, config.isLastAxis);
}
template <typename T, const CumSumConfig& config = defaultCumSumConfig>
void CumSum(LocalTensor<T>& dstTensor, LocalTensor<T>& lastRowTensor, const LocalTensor<T>& srcTensor, const CumSumInfo& cumSumInfo, Site site = Site::here())
{
    MOEC_HIGH_TYPE(CumSum);
    moec_cpu::High h("CumSum", site);
    moec_cpu::running_sum(h, dstTensor, config.outputLastRow ? &lastRowTensor : nullptr, srcTensor, cumSumInfo, config.isLastAxis);
}

template <typename T, int32_t dim, int32_t axis, bool isReuseSource = false>
void Broadcast(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dstShape[dim], const uint32_t srcShape[dim],
               LocalTensor<uint8_t>& sharedTmpBuffer, Site site = Site::here())
{
    static_assert((dim == 1 || dim == 2) && axis >= 0 && axis < dim, "Broadcast takes one or two dimensions");
    moec_cpu::High h("Broadcast", site);
    h.spoil(sharedTmpBuffer);
    moec_cpu::broadcast(h, dstLocal, srcLocal, dstShape, srcShape, dim, axis);
}
template <typename T, int32_t dim, int32_t axis, bool isReuseSource = false>
void Broadcast(const LocalTensor<T>& dstLocal, const LocalTensor<T>& srcLocal, const uint32_t dstShape[dim], const uint32_t srcShape[dim], Site site = Site::here())
{
    static_assert((dim == 1 || dim == 2) && axis >= 0 && axis < dim, "Broadcast takes one or two dimensions");
    moec_cpu::High h("Broadcast", site);
    moec_cpu::broadcast(h, dstLocal, srcLocal, dstShape, srcShape, dim, axis);
}

template <typename T, bool isInitIndex = false, bool isHasfinish = false, bool isReuseSrc = false, enum TopKMode topkMode = TopKMode::TOPK_NORMAL>
void TopK(const LocalTensor<T>& dstValueLocal, const LocalTensor<int32_t>& dstIndexLocal, const LocalTensor<T>& srcLocal,
          const LocalTensor<int32_t>& srcIndexLocal, const LocalTensor<bool>& finishLocal, const LocalTensor<uint8_t>& tmpLocal, const int32_t k,
          const TopkTiling&, const TopKInfo& topKInfo, const bool isLargest = true, Site site = Site::here())
{
    MOEC_HIGH_TYPE(TopK);
    moec_cpu::High h("TopK", site);
    h.spoil(tmpLocal);
    h.in.require(topkMode != TopKMode::TOPK_NSMALL || topKInfo.inner == 32, "shape out of range", "TOPK_NSMALL takes rows of 32");
    moec_cpu::top_k(h, dstValueLocal, dstIndexLocal, srcLocal, isInitIndex ? &srcIndexLocal : nullptr, isHasfinish ? &finishLocal : nullptr, k, topKInfo, isLargest);
}
template <typename T, bool isInitIndex = false, bool isHasfinish = false, bool isReuseSrc = false, enum TopKMode topkMode = TopKMode::TOPK_NORMAL>
void TopK(const LocalTensor<T>& dstValueLocal, const LocalTensor<int32_t>& dstIndexLocal, const LocalTensor<T>& srcLocal,
          const LocalTensor<int32_t>& srcIndexLocal, const LocalTensor<bool>& finishLocal, const int32_t k, const TopkTiling&, const TopKInfo& topKInfo,
          const bool isLargest = true, Site site = Site::here())
{
    MOEC_HIGH_TYPE(TopK);
    moec_cpu::High h("TopK", site);
    h.in.require(topkMode != TopKMode::TOPK_NSMALL || topKInfo.inner == 32, "shape out of range", "TOPK_NSMALL takes rows of 32");
    moec_cpu::top_k(h, dstValueLocal, dstIndexLocal, srcLocal, isInitIndex ? &srcIndexLocal : nullptr, isHasfinish ? &finishLocal : nullptr, k, topKInfo, isLargest);
}

}  // namespace AscendC
