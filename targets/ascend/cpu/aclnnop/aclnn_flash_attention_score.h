// attentionOut = softmax(scaleValue * query key^T, what the mask hides left out) value, and each row's maximum and sum of
// exponentials, eight times side by side. Layout BNSD, without pse, dropout and padding masks.
#pragma once
#include "moec_cpu/library_attention.h"

inline aclnnStatus aclnnFlashAttentionScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
    const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclIntArray* prefixOptional, double scaleValue, double keepProb, int64_t,
    int64_t, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut,
    const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!query || !key || !value || !softmaxMaxOut || !softmaxSumOut || !attentionOutOut || !inputLayout) return ACLNN_ERR_PARAM_NULLPTR;
    if (realShiftOptional || dropMaskOptional || paddingMaskOptional || prefixOptional || softmaxOutOut) return ACLNN_ERR_PARAM_INVALID;
    if (keepProb != 1.0 || innerPrecise != 0 || std::strcmp(inputLayout, "BNSD") != 0) return ACLNN_ERR_PARAM_INVALID;
    const Heads h{hold(query), hold(key), hold(value), hold(attenMaskOptional), scaleValue, sparseMode};
    const Held most = hold(softmaxMaxOut), sum = hold(softmaxSumOut), y = hold(attentionOutOut);
    if (!h.fits() || headNum != h.heads() || !alike({h.q.get(), y.get()})) return ACLNN_ERR_PARAM_INVALID;
    const std::vector<int64_t> stats{h.batch(), h.heads(), h.queries(), 8};
    if (most->type != ACL_FLOAT || sum->type != ACL_FLOAT || most->dims != stats || sum->dims != stats) return ACLNN_ERR_PARAM_INVALID;
    if (y->dims != std::vector<int64_t>{h.batch(), h.heads(), h.queries(), h.values()}) return ACLNN_ERR_PARAM_INVALID;
    return prepare("aclnnFlashAttentionScore", {h.q, h.k, h.v, h.mask, most, sum, y}, [=] {
        const char* me = "aclnnFlashAttentionScore";
        h.check_mask(me);
        const Array q = load(h.q.get(), me), k = load(h.k.get(), me), v = load(h.v.get(), me);
        Array out(y->dims), maxima(most->dims), sums(sum->dims);
        std::vector<double> p;
        for (int64_t head = 0; head < h.batch() * h.heads(); ++head) {
            const int64_t kv = head / h.heads() * h.kv_heads() + head % h.heads() / (h.heads() / h.kv_heads());
            for (int64_t s = 0; s < h.queries(); ++s) {
                const int64_t row = head * h.queries() + s;
                scores(h, &q.values[row * h.width()], &k.values[kv * h.keys() * h.width()], h.seen(s), p);
                const double top = p.empty() ? 0 : *std::max_element(p.begin(), p.end());
                double total = 0;
                for (double& x : p) total += x = std::exp(x - top);
                for (int64_t t = 0; t < h.seen(s); ++t) {
                    for (int64_t c = 0; c < h.values(); ++c) out[row * h.values() + c] += p[t] / total * v[(kv * h.keys() + t) * h.values() + c];
                }
                for (int64_t i = 0; i < 8; ++i) {
                    maxima[row * 8 + i] = top;
                    sums[row * 8 + i] = total;
                }
            }
        }
        store(y.get(), out, me);
        store(most.get(), maxima, me);
        store(sum.get(), sums, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnFlashAttentionScore)
