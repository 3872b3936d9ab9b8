// Gradients of aclnnFlashAttentionScore by query, key and value, from its output and its rows' maxima and sums.
#pragma once
#include "moec_cpu/library_attention.h"

inline aclnnStatus aclnnFlashAttentionScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy, const aclTensor* pseShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional,
    const aclTensor* softmaxSumOptional, const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    double scaleValue, double keepProb, int64_t, int64_t, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor)
{
    using namespace moec_cpu::library;
    if (!query || !keyIn || !value || !dy || !softmaxMaxOptional || !softmaxSumOptional || !attentionInOptional || !inputLayout) return ACLNN_ERR_PARAM_NULLPTR;
    if (!dqOut || !dkOut || !dvOut) return ACLNN_ERR_PARAM_NULLPTR;
    if (pseShiftOptional || dropMaskOptional || paddingMaskOptional || softmaxInOptional || prefixOptional || dpseOut) return ACLNN_ERR_PARAM_INVALID;
    if (keepProb != 1.0 || innerPrecise != 0 || std::strcmp(inputLayout, "BNSD") != 0) return ACLNN_ERR_PARAM_INVALID;
    const Heads h{hold(query), hold(keyIn), hold(value), hold(attenMaskOptional), scaleValue, sparseMode};
    const Held g = hold(dy), most = hold(softmaxMaxOptional), sum = hold(softmaxSumOptional), y = hold(attentionInOptional);
    const Held dq = hold(dqOut), dk = hold(dkOut), dv = hold(dvOut);
    if (!h.fits() || headNum != h.heads() || !alike({h.q.get(), g.get(), y.get(), dq.get(), dk.get(), dv.get()})) return ACLNN_ERR_PARAM_INVALID;
    const std::vector<int64_t> stats{h.batch(), h.heads(), h.queries(), 8};
    if (most->type != ACL_FLOAT || sum->type != ACL_FLOAT || most->dims != stats || sum->dims != stats || g->dims != y->dims) return ACLNN_ERR_PARAM_INVALID;
    if (dq->dims != h.q->dims || dk->dims != h.k->dims || dv->dims != h.v->dims) return ACLNN_ERR_PARAM_INVALID;
    return prepare("aclnnFlashAttentionScoreGrad", {h.q, h.k, h.v, h.mask, g, most, sum, y, dq, dk, dv}, [=] {
        const char* me = "aclnnFlashAttentionScoreGrad";
        h.check_mask(me);
        const Array q = load(h.q.get(), me), k = load(h.k.get(), me), v = load(h.v.get(), me), out = load(y.get(), me), up = load(g.get(), me);
        const Array maxima = load(most.get(), me), sums = load(sum.get(), me);
        Array gq(dq->dims), gk(dk->dims), gv(dv->dims);
        std::vector<double> p;
        const int64_t d = h.width(), w = h.values();
        for (int64_t head = 0; head < h.batch() * h.heads(); ++head) {
            const int64_t kv = head / h.heads() * h.kv_heads() + head % h.heads() / (h.heads() / h.kv_heads());
            for (int64_t s = 0; s < h.queries(); ++s) {
                const int64_t row = head * h.queries() + s;
                scores(h, &q.values[row * d], &k.values[kv * h.keys() * d], h.seen(s), p);
                double through = 0;
                for (int64_t c = 0; c < w; ++c) through += up[row * w + c] * out[row * w + c];
                for (int64_t t = 0; t < h.seen(s); ++t) {
                    const double weight = std::exp(p[t] - maxima[row * 8]) / sums[row * 8];
                    const int64_t other = kv * h.keys() + t;
                    double dweight = 0;
                    for (int64_t c = 0; c < w; ++c) {
                        dweight += up[row * w + c] * v[other * w + c];
                        gv[other * w + c] += weight * up[row * w + c];
                    }
                    const double dscore = weight * (dweight - through) * h.scale;
                    for (int64_t c = 0; c < d; ++c) {
                        gq[row * d + c] += dscore * k[other * d + c];
                        gk[other * d + c] += dscore * q[row * d + c];
                    }
                }
            }
        }
        store(dq.get(), gq, me);
        store(dk.get(), gk, me);
        store(dv.get(), gv, me);
    }, workspaceSize, executor);
}
MOEC_CPU_OPERATOR(aclnnFlashAttentionScoreGrad)
