// Every form of the high-level functions, and operators on whole tensors, beside the form that other cases check.
#include "harness.h"

constexpr SoftmaxConfig KNOWN = {true, 2, 13};
constexpr uint32_t BITS = 8;  // bytes of a comparison's result for 64 floats

// 2 rows of 16 of which 13 count, by each form: with statistics, with scratch, with the sizes known, and without statistics
VECTOR_CASE(softmax_forms, 6 * 128)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 32, 0), sum = b.at<float>(1024, 16), max = b.at<float>(1280, 16);
    auto tmp = b.at<uint8_t>(8192, 512);
    SoftMaxTiling tiling;
    tiling.srcM = 2;
    tiling.srcK = 16;
    LocalTensor<float> y[6];
    for (uint32_t i = 0; i < 6; ++i) {
        y[i] = b.at<float>(2048 + 256 * i, 32);
        Duplicate(y[i], 0.0f, 32);
    }
    SoftMax<float>(y[0], sum, max, x, tiling, {2, 16, 2, 13});
    SoftMax<float>(y[1], sum, max, x, tmp, tiling, {2, 16, 2, 13});
    SoftMax<float, false, false, false, KNOWN>(y[2], sum, max, x, tiling);
    SoftMax<float, false, false, false, KNOWN>(y[3], sum, max, x, tmp, tiling);
    SoftMax<float, false, false, KNOWN>(y[4], x, tiling);
    SoftMax<float, false, false, KNOWN>(y[5], x, tmp, tiling);
    for (uint32_t i = 0; i < 6; ++i) b.store(y[i], 32, 128 * i);
}

// half rows with float statistics: whole, and as the two parts of a flash softmax, without and with scratch
VECTOR_CASE(half_forms, 4 * 64 + 2 * 64)
{
    Bench b(in, out);
    auto x = b.load<half>(0, 32, 0), faded = b.at<half>(512, 32);
    auto sum = b.at<float>(1024, 16), max = b.at<float>(1280, 16), total = b.at<float>(1536, 16), top = b.at<float>(1792, 16);
    auto tmp = b.at<uint8_t>(8192, 512);
    LocalTensor<half> y[4];
    for (uint32_t i = 0; i < 4; ++i) y[i] = b.at<half>(2048 + 256 * i, 32);
    SoftMaxTiling tiling;
    const SoftMaxShapeInfo rows = {2, 16, 2, 16};
    SoftMax<half>(y[0], sum, max, x, tiling, rows);
    SoftMax<half>(y[1], sum, max, x, tmp, tiling, rows);
    SoftmaxFlashV2<half>(y[2], sum, max, x, faded, sum, max, tmp, tiling, rows);
    SoftmaxFlashV2<half, true>(y[3], total, top, x, faded, sum, max, tmp, tiling, rows);
    for (uint32_t i = 0; i < 4; ++i) b.store(y[i], 32, 64 * i);
    b.store(sum, 16, 256);
    b.store(total, 16, 320);
}

VECTOR_CASE(activation_forms, 6 * 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), g = b.load<float>(256, 64, 256);
    auto tmp = b.at<uint8_t>(8192, 512);
    LocalTensor<float> y[6];
    for (uint32_t i = 0; i < 6; ++i) y[i] = b.at<float>(2048 + 256 * i, 64);
    SwiGLU<float>(y[0], x, g, 1.5f);
    SwiGLU<float>(y[1], x, g, 1.5f, tmp);
    FasterGelu<float>(y[2], x, 64);
    FasterGelu<float>(y[3], x, tmp, 64);
    FasterGeluV2<float>(y[4], x, 64);
    FasterGeluV2<float>(y[5], x, tmp, 64);
    for (uint32_t i = 0; i < 6; ++i) b.store(y[i], 64, 256 * i);
}

// 2 rows of 32 with a scale and an offset a column; the forms of one offset take that of the first column
VECTOR_CASE(quant_forms, 10 * 64)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), scale = b.load<float>(512, 32, 256), offset = b.load<float>(1024, 32, 384);
    auto tmp = b.at<uint8_t>(8192, 512);
    LocalTensor<int8_t> y[10];
    for (uint32_t i = 0; i < 10; ++i) y[i] = b.at<int8_t>(2048 + 64 * i, 64);
    AscendQuant<float>(y[0], x, 2.0f, 1.0f);
    AscendQuant<float>(y[1], x, tmp, 2.0f, 1.0f);
    AscendQuant<float>(y[2], x, scale, 1.0f, 32, 64);
    AscendQuant<float>(y[3], x, tmp, scale, 1.0f, 32, 64);
    AscendQuant<float>(y[4], x, scale, 1.0f);
    AscendQuant<float>(y[5], x, tmp, scale, 1.0f);
    AscendQuant<float>(y[6], x, scale, offset, 32, 32, 64);
    AscendQuant<float>(y[7], x, tmp, scale, offset, 32, 32, 64);
    AscendQuant<float>(y[8], x, scale, offset);
    AscendQuant<float>(y[9], x, tmp, scale, offset);
    for (uint32_t i = 0; i < 10; ++i) b.store(y[i], 64, 64 * i);
}

// 2 rows of 16 with a scale a column, back to float: all of them, and the first 24; then one scale for all
VECTOR_CASE(dequant_forms, 5 * 128)
{
    Bench b(in, out);
    auto x = b.load<int32_t>(0, 32, 0);
    auto scale = b.load<float>(512, 16, 128);
    auto tmp = b.at<uint8_t>(8192, 512);
    LocalTensor<float> y[5];
    for (uint32_t i = 0; i < 5; ++i) {
        y[i] = b.at<float>(2048 + 128 * i, 32);
        Duplicate(y[i], 0.0f, 32);
    }
    AscendDequant<float, float>(y[0], x, scale);
    AscendDequant<float, float>(y[1], x, scale, tmp);
    AscendDequant<float, float>(y[2], x, scale, 24u);
    AscendDequant<float, float>(y[3], x, scale, tmp, 24u);
    AscendDequant<float, float>(y[4], x, 0.5f, tmp, DequantParams{1, 32, 32});
    for (uint32_t i = 0; i < 5; ++i) b.store(y[i], 32, 128 * i);
}

// 4 rows of 32 int8 with a scale (and an offset) a column, and with one for all
VECTOR_CASE(antiquant_forms, 6 * 256)
{
    Bench b(in, out);
    auto x = b.load<int8_t>(0, 128, 0);
    auto scale = b.load<half>(512, 32, 128), offset = b.load<half>(1024, 32, 192);
    auto tmp = b.at<uint8_t>(8192, 512);
    LocalTensor<half> y[6];
    for (uint32_t i = 0; i < 6; ++i) y[i] = b.at<half>(2048 + 256 * i, 128);
    AscendAntiQuant<int8_t, half, false>(y[0], x, offset, scale, tmp, 4);
    AscendAntiQuant<int8_t, half, false>(y[1], x, offset, scale, 4);
    AscendAntiQuant<int8_t, half, false>(y[2], x, scale, tmp, 4);
    AscendAntiQuant<int8_t, half, false>(y[3], x, half(2.0f), half(0.25f), tmp, 4);
    AscendAntiQuant<int8_t, half, false>(y[4], x, half(2.0f), half(0.25f), 4);
    AscendAntiQuant<int8_t, half, false>(y[5], x, half(0.25f), tmp, 4);
    for (uint32_t i = 0; i < 6; ++i) b.store(y[i], 128, 256 * i);
}

// 16 by 32 turned, without and with scratch
VECTOR_CASE(transpose_forms, 2 * 2048)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 512, 0), y = b.at<float>(4096, 512), z = b.at<float>(8192, 512);
    auto tmp = b.at<uint8_t>(16384, 4096);
    ConfusionTransposeTiling tiling;
    tiling.param1 = 16;
    tiling.param2 = 32;
    ConfusionTranspose<float>(y, x, TransposeType::TRANSPOSE_ND2ND_ONLY, tiling);
    ConfusionTranspose<float>(z, x, tmp, TransposeType::TRANSPOSE_ND2ND_ONLY, tiling);
    b.store(y, 512);
    b.store(z, 512, 2048);
}

VECTOR_CASE(operators, 4 * 256 + 2 * 64 + 6 * 32)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.load<float>(512, 64, 256);
    auto i = b.load<int16_t>(2048, 32, 512), j = b.load<int16_t>(2304, 32, 576), k = b.at<int16_t>(2560, 32);
    LocalTensor<float> t[4];
    for (uint32_t n = 0; n < 4; ++n) t[n] = b.at<float>(4096 + 256 * n, 64);
    t[0] = x + y;
    t[1] = x - y;
    t[2] = x * y;
    t[3] = x / y;
    for (uint32_t n = 0; n < 4; ++n) b.store(t[n], 64, 256 * n);
    k = i & j;
    auto either = b.at<int16_t>(2816, 32);
    either = i | j;
    b.store(k, 32, 1024);
    b.store(either, 32, 1088);
    LocalTensor<uint8_t> bits[6];
    for (uint32_t n = 0; n < 6; ++n) bits[n] = b.at<uint8_t>(6144 + 32 * n, BITS);
    bits[0] = x < y;
    bits[1] = x > y;
    bits[2] = x <= y;
    bits[3] = x >= y;
    bits[4] = x == y;
    bits[5] = x != y;
    for (uint32_t n = 0; n < 6; ++n) b.store(bits[n], BITS, 1152 + 32 * n);
}

// signed and unsigned numbers of 16 bits: to the left by 1, 3 and 16, to the right by 1 and 16
VECTOR_CASE(shifts, 2 * 5 * 32)
{
    Bench b(in, out);
    auto x = b.load<int16_t>(0, 16, 0), y = b.at<int16_t>(1024, 80);
    auto u = x.ReinterpretCast<uint16_t>(), v = b.at<uint16_t>(2048, 80);
    ShiftLeft(y, x, (int16_t)1, 16);
    ShiftLeft(y[16], x, (int16_t)3, 16);
    ShiftLeft(y[32], x, (int16_t)16, 16);
    ShiftRight(y[48], x, (int16_t)1, 16);
    ShiftRight(y[64], x, (int16_t)16, 16);
    ShiftLeft(v, u, (uint16_t)1, 16);
    ShiftLeft(v[16], u, (uint16_t)3, 16);
    ShiftLeft(v[32], u, (uint16_t)16, 16);
    ShiftRight(v[48], u, (uint16_t)1, 16);
    ShiftRight(v[64], u, (uint16_t)16, 16);
    b.store(y, 80);
    b.store(v, 80, 160);
}

VECTOR_CASE(shift_too_far, 64)
{
    Bench b(in, out);
    auto x = b.load<int32_t>(0, 16, 0);
    ShiftLeft(x, x, 33, 16);  // shift_too_far
    b.store(x, 16);
}

// an operand that nothing wrote: the line of the expression is named
VECTOR_CASE(operators_unwritten, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.at<float>(512, 64), z = b.at<float>(1024, 64);
    z = x + y;  // operators_unwritten
    b.store(z, 64);
}

VECTOR_CASE(scenario, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.at<float>(512, 64);
    ConfusionTransposeTiling tiling;
    ConfusionTranspose<float>(y, x, TransposeType::TRANSPOSE_NZ2ND_0213, tiling);  // scenario
    b.store(y, 64);
}
