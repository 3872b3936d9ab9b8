// The high-level library: rows and elements whose results are worked out outside.
#include "harness.h"

// 3 rows of 40 of which 37 count: numbers, and a block of 8 sums and of 8 maxima a row; then without statistics
VECTOR_CASE(softmax, 960 + 96 + 96)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 120, 0), y = b.at<float>(1024, 120), sum = b.at<float>(2048, 24), max = b.at<float>(3072, 24), z = b.at<float>(5120, 120);
    auto tmp = b.at<uint8_t>(4096, 512);
    SoftMaxTiling tiling;
    Duplicate(y, 0.0f, 120);
    Duplicate(z, 0.0f, 120);
    SoftMax<float>(y, sum, max, x, tmp, tiling, {3, 40, 3, 37});
    SoftMax<float>(z, x, tiling, {3, 40, 3, 37});
    b.store(y, 120);
    b.store(z, 120, 480);
    b.store(sum, 24, 960);
    b.store(max, 24, 1056);
}

// half rows with float statistics
VECTOR_CASE(softmax_half, 64 + 64)
{
    Bench b(in, out);
    auto x = b.load<half>(0, 32, 0), y = b.at<half>(1024, 32);
    auto sum = b.at<float>(2048, 16), max = b.at<float>(3072, 16);
    SoftMaxTiling tiling;
    tiling.srcM = 2;
    tiling.srcK = 16;
    SoftMax<half>(y, sum, max, x, tiling);
    b.store(y, 32);
    b.store(sum, 16, 64);
}

// two parts of a row, the second goes on from the first: numerators, sums, maxima, and how much the first part fades
VECTOR_CASE(flash, 128 + 3 * 64)
{
    Bench b(in, out);
    auto first = b.load<float>(0, 32, 0), second = b.load<float>(256, 32, 128), y = b.at<float>(1024, 32), sum = b.at<float>(2048, 16);
    auto max = b.at<float>(2304, 16), total = b.at<float>(2560, 16), top = b.at<float>(2816, 16), faded = b.at<float>(3072, 16);
    SoftMaxTiling tiling;
    SoftmaxFlashV2<float>(y, sum, max, first, faded, sum, max, tiling, {2, 16, 2, 16});
    SoftmaxFlashV2<float, true>(y, total, top, second, faded, sum, max, tiling, {2, 16, 2, 16});
    b.store(y, 32);
    b.store(total, 16, 128);
    b.store(top, 16, 192);
    b.store(faded, 16, 256);
}

VECTOR_CASE(activations, 5 * 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), g = b.load<float>(256, 64, 256), y = b.at<float>(1024, 64);
    auto tmp = b.at<uint8_t>(4096, 512);
    SwiGLU<float>(y, x, g, 1.5f, tmp, 64);
    b.store(y, 64);
    auto z = b.at<float>(2048, 64);
    Silu<float>(z, x, 64);
    b.store(z, 64, 256);
    auto w = b.at<float>(2304, 64);
    Gelu<float>(w, x, tmp, 64);
    b.store(w, 64, 512);
    auto v = b.at<float>(2560, 64);
    Swish<float>(v, x, 64, 1.5f);
    b.store(v, 64, 768);
    auto u = b.at<float>(2816, 64);
    FasterGelu<float>(u, x, 64);
    b.store(u, 64, 1024);
}

// norms of 2 rows of 16 of which 13 count
VECTOR_CASE(norms, 2 * 128 + 8 + 8)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 32, 0), g = b.load<float>(256, 16, 128), beta = b.load<float>(512, 16, 192), y = b.at<float>(1024, 32);
    auto z = b.at<float>(2048, 32), mean = b.at<float>(3072, 8), variance = b.at<float>(3328, 8);
    Duplicate(y, 0.0f, 32);
    Duplicate(z, 0.0f, 32);
    RmsNormTiling rms;
    rms.bLength = 1, rms.sLength = 2, rms.hLength = 16, rms.originalHLength = 13;
    RmsNorm<float>(y, x, g, 1e-5f, rms);
    LayerNormTiling layer;
    layer.bLength = 2, layer.sLength = 1, layer.hLength = 16, layer.originalHLength = 13;
    LayerNorm<float>(z, mean, variance, x, g, beta, 1e-5f, layer);
    b.store(y, 32);
    b.store(z, 32, 128);
    b.store(mean, 2, 256);
    b.store(variance, 2, 264);
}

constexpr CumSumConfig down = {false, false, true};

// sums and means of 3 rows of 16 of which 11 count; running sums along and across; broadcasts both ways
VECTOR_CASE(rows, 12 + 12 + 192 + 192 + 64 + 128 + 128)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 48, 0), sum = b.at<float>(1024, 8), mean = b.at<float>(1280, 8), last = b.at<float>(1536, 16);
    Sum<float>(sum, x, SumParams{3, 16, 11});
    Mean<float>(mean, x, MeanParams{3, 16, 11});
    b.store(sum, 3);
    b.store(mean, 3, 12);
    auto along = b.at<float>(2048, 48), across = b.at<float>(3072, 48);
    CumSum<float>(along, last, x, CumSumInfo{3, 16});
    b.store(along, 48, 24);
    CumSum<float, down>(across, last, x, CumSumInfo{3, 16});
    b.store(across, 48, 216);
    b.store(last, 16, 408);
    auto wide = b.at<float>(4096, 32), tall = b.at<float>(5120, 32);
    const uint32_t to[2] = {2, 16}, column[2] = {2, 1}, row[2] = {1, 16};
    Broadcast<float, 2, 1>(wide, x, to, column);
    Broadcast<float, 2, 0>(tall, x, to, row);
    b.store(wide, 32, 472);
    b.store(tall, 32, 600);
}

// the 5 largest of 2 rows of 32 of which 30 count; the smallest, with indices given
VECTOR_CASE(topk, 4 * 64)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), v = b.at<float>(1024, 16), s = b.at<float>(1536, 16);
    auto own = b.load<int32_t>(512, 64, 256), p = b.at<int32_t>(2048, 16), q = b.at<int32_t>(2560, 16);
    LocalTensor<int32_t> none;
    LocalTensor<bool> finish;
    TopkTiling tiling;
    Duplicate(v, 0.0f, 16);
    Duplicate(s, 0.0f, 16);
    Duplicate(p, 0, 16);
    Duplicate(q, 0, 16);
    TopK<float>(v, p, x, none, finish, 5, tiling, TopKInfo{2, 32, 30});
    TopK<float, true>(s, q, x, own, finish, 5, tiling, TopKInfo{2, 32, 30}, false);
    b.store(v, 16);
    b.store(p, 16, 64);
    b.store(s, 16, 128);
    b.store(q, 16, 192);
}

// to int8 and back; int32 accumulators to half with a scale a column, to float with one
VECTOR_CASE(quant, 64 + 128 + 64 + 128)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0);
    auto i = b.load<int32_t>(512, 32, 256);
    auto scale = b.load<uint64_t>(1024, 8, 384);
    auto y = b.at<int8_t>(2048, 64);
    auto z = b.at<half>(2304, 64);
    auto w = b.at<half>(2560, 64);
    auto tmp = b.at<uint8_t>(4096, 512);
    AscendQuant<float>(y, x, 10.0f, 3.0f, 64);
    b.store(y, 64);
    AscendAntiQuant<int8_t, half, false>(z, y, half(-3.0f), half(0.125f), tmp, 8);
    b.store(z, 64, 64);
    Duplicate(w, half(0.0f), 64);
    AscendDequant<half, uint64_t, DeQuantMode::DEQUANT_WITH_MULTI_ROW>(w, i, scale, DequantParams{2, 16, 8});
    b.store(w, 32, 192);
    auto v = b.at<float>(3072, 32);
    AscendDequant<float, float>(v, i, 0.75f, DequantParams{1, 32, 32});
    b.store(v, 32, 256);
}

// the scratch space is garbage afterwards
VECTOR_CASE(scratch, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.at<float>(1024, 64);
    auto tmp = b.at<uint8_t>(4096, 512);
    auto kept = tmp.ReinterpretCast<float>();
    Duplicate(kept, 1.0f, 64);
    Gelu<float>(y, x, tmp, 64);
    Adds(y, kept, 0.0f, 64);
    b.store(y, 64);
}

// rows that do not start on 32 bytes
VECTOR_CASE(ragged, 64)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.at<float>(1024, 64);
    SoftMaxTiling tiling;
    SoftMax<float>(y, x, tiling, {2, 15, 2, 15});
    b.store(y, 16);
}

