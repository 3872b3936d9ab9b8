// Vector instructions: call shapes, masks, strides, tails, accumulation, casts, comparisons, fills.
#include "harness.h"

// out: z of 100 floats; z was 7 before, only 70 are computed
VECTOR_CASE(add_count, 400)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 100, 0), y = b.load<float>(1024, 100, 400), z = b.at<float>(2048, 128);
    Duplicate(z, 7.0f, 104);
    Add(z, x, y, 70);
    b.store(z, 100);
}

// mask 5 of 64, two repeats, dst repeat stride 1 block, sources dense
VECTOR_CASE(sub_mask_strides, 64)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0), y = b.load<float>(1024, 128, 512), z = b.at<float>(2048, 16);
    Duplicate(z, -1.0f, 16);
    Sub(z, x, y, (uint64_t)5, 2, BinaryRepeatParams(1, 1, 1, 1, 8, 8));
    b.store(z, 16);
}

// bits 0xAA..: odd lanes of half; block stride 2 in the source
VECTOR_CASE(mul_bits_blocks, 256)
{
    Bench b(in, out);
    auto x = b.load<half>(0, 256, 0), y = b.load<half>(1024, 128, 512), z = b.at<half>(2048, 128);
    Duplicate(z, (half)-1.0f, 128);
    uint64_t mask[2] = {0xaaaaaaaaaaaaaaaaULL, 0xaaaaaaaaaaaaaaaaULL};
    Mul(z, x, y, mask, 1, BinaryRepeatParams(1, 2, 1, 8, 16, 8));
    b.store(z, 128);
}

// dst = src1 with repeat stride 0: z += x over four repeats
VECTOR_CASE(add_accumulate, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 256, 0), z = b.at<float>(2048, 64);
    Duplicate(z, 100.0f, 64);
    Add(z, x, z, (uint64_t)64, 4, BinaryRepeatParams(1, 1, 1, 0, 8, 0));
    b.store(z, 64);
}

// counter mode: 70 elements whatever the repeat count says
VECTOR_CASE(max_counter, 512)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0), y = b.load<float>(1024, 128, 512), z = b.at<float>(2048, 128);
    Duplicate(z, -9.0f, 128);
    SetMaskCount();
    SetVectorMask<float, MaskMode::COUNTER>(70);
    Max<float, false>(z, x, y, MASK_PLACEHOLDER, 1, BinaryRepeatParams(1, 1, 1, 8, 8, 8));
    SetMaskNorm();
    ResetMask();
    b.store(z, 128);
}

// SetVectorMask takes the high word first: lanes 0..3 of the low word
VECTOR_CASE(min_register, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.load<float>(1024, 64, 256), z = b.at<float>(2048, 64);
    Duplicate(z, -9.0f, 64);
    SetVectorMask<float>(0, 0xfULL);
    Min<float, false>(z, x, y, MASK_PLACEHOLDER, 1, BinaryRepeatParams(1, 1, 1, 8, 8, 8));
    ResetMask();
    b.store(z, 64);
}

// eight results of 64 floats: exp ln sqrt rsqrt reciprocal abs relu, and x/y
VECTOR_CASE(unary_float, 2048)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.load<float>(256, 64, 256), z = b.at<float>(1024, 512);
    Exp(z, y, 64);
    Ln(z[64], x, 64);
    Sqrt(z[128], x, 64);
    Rsqrt(z[192], x, 64);
    Reciprocal(z[256], x, 64);
    Abs(z[320], y, 64);
    Relu(z[384], y, 64);
    Div(z[448], y, x, 64);
    b.store(z, 512);
}

// integers wrap; shifts; bit logic on 16 bits
VECTOR_CASE(integers, 640)
{
    Bench b(in, out);
    auto x = b.load<int32_t>(0, 32, 0), z = b.at<int32_t>(1024, 160);
    auto s = x.ReinterpretCast<int16_t>();
    auto zs = z.ReinterpretCast<int16_t>();
    Muls(z, x, 65536, 32);
    ShiftRight(z[32], x, 3, 32);
    ShiftLeft(z[64], x, 4, 32);
    And(zs[192], s, s[32], 32);
    Not(zs[224], s, 32);
    Or(zs[256], s, s[32], 32);
    Adds(zs[288], s, (int16_t)1, 32);
    b.store(z, 160);
}

// fused forms: dst = x*dst + y; dst += x*y; dst += 3*x; leaky relu 0.5; maxs 1, mins 1
VECTOR_CASE(fused, 1536)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.load<float>(256, 64, 256), z = b.at<float>(1024, 384);
    Duplicate(z, 2.0f, 192);
    FusedMulAdd(z, x, y, 64);
    MulAddDst(z[64], x, y, 64);
    Axpy(z[128], x, 3.0f, 64);
    LeakyRelu(z[192], x, 0.5f, 64);
    Maxs(z[256], x, 1.0f, 64);
    Mins(z[320], x, 1.0f, 64);
    b.store(z, 384);
}

// float -> half in the six modes, then -> bf16 in five: 64 elements each
VECTOR_CASE(cast_narrow, 1408)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0);
    auto z = b.at<half>(1024, 384);
    auto w = b.at<bfloat16_t>(4096, 320);
    const RoundMode modes[6] = {RoundMode::CAST_RINT, RoundMode::CAST_FLOOR, RoundMode::CAST_CEIL, RoundMode::CAST_ROUND, RoundMode::CAST_TRUNC, RoundMode::CAST_ODD};
    for (int i = 0; i < 6; ++i) Cast(z[64 * i], x, modes[i], 64);
    for (int i = 0; i < 5; ++i) Cast(w[64 * i], x, modes[i], 64);
    b.store(z, 384);
    b.store(w, 320, 768);
}

// float -> int32 in five modes, float -> int16 rint, half -> int8 rint, int32 -> float, int32 -> int16, int64 and back
VECTOR_CASE(cast_integers, 2400)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0);
    auto z = b.at<int32_t>(1024, 320);
    const RoundMode modes[5] = {RoundMode::CAST_RINT, RoundMode::CAST_FLOOR, RoundMode::CAST_CEIL, RoundMode::CAST_ROUND, RoundMode::CAST_TRUNC};
    for (int i = 0; i < 5; ++i) Cast(z[64 * i], x, modes[i], 64);
    b.store(z, 320);
    auto s = b.at<int16_t>(8192, 64);
    Cast(s, x, RoundMode::CAST_RINT, 64);
    b.store(s, 64, 1280);
    auto h = b.at<half>(9216, 64);
    Cast(h, x, RoundMode::CAST_RINT, 64);
    auto c = b.at<int8_t>(10240, 64);
    Cast(c, h, RoundMode::CAST_RINT, 64);
    b.store(c, 64, 1408);
    auto f = b.at<float>(11264, 64);
    Cast(f, z, RoundMode::CAST_NONE, 64);
    b.store(f, 64, 1472);
    auto t = b.at<int16_t>(8448, 64);
    Cast(t, z, RoundMode::CAST_NONE, 64);
    b.store(t, 64, 1728);
    auto q = b.at<int64_t>(12288, 64);
    Cast(q, z, RoundMode::CAST_NONE, 64);
    b.store(q, 64, 1856);
    auto w = b.at<float>(14336, 8);
    Cast(w, q, RoundMode::CAST_RINT, 8);
    b.store(w, 8, 2368);
}

// half -> four bits in two modes, and back; the second half of the packed numbers by an offset
VECTOR_CASE(cast_int4, 32 + 32 + 128 + 64)
{
    Bench b(in, out);
    auto h = b.load<half>(0, 64, 0);
    auto rint = b.at<int4b_t>(1024, 64), down = b.at<int4b_t>(2048, 64);
    Cast(rint, h, RoundMode::CAST_RINT, 64);
    Cast(down, h, RoundMode::CAST_FLOOR, 64);
    b.store(rint.ReinterpretCast<int8_t>(), 32);
    b.store(down.ReinterpretCast<int8_t>(), 32, 32);
    auto back = b.at<half>(3072, 64), part = b.at<half>(4096, 32);
    Cast(back, down, RoundMode::CAST_NONE, 64);
    b.store(back, 64, 64);
    auto copy = b.at<int4b_t>(5120, 128);
    Cast(copy[64], h, RoundMode::CAST_RINT, 64);
    Cast(part, copy[64], RoundMode::CAST_NONE, 32);
    b.store(part, 32, 192);
}

// widening with a mask: 20 lanes of the wider side, two repeats of 64
VECTOR_CASE(cast_mask, 512)
{
    Bench b(in, out);
    auto x = b.load<half>(0, 128, 0);
    auto z = b.at<float>(1024, 128);
    Duplicate(z, -1.0f, 128);
    Cast(z, x, RoundMode::CAST_NONE, (uint64_t)20, 2, UnaryRepeatParams(1, 1, 8, 4));
    b.store(z, 128);
}

// narrowing in place
VECTOR_CASE(cast_in_place, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0);
    auto z = b.at<bfloat16_t>(0, 128);
    Cast(z, x, RoundMode::CAST_RINT, 128);
    b.store(z, 128);
}

// six comparisons of 64 floats (8 bytes each), then a scalar one of 128 halves (16 bytes), int32 EQ (8 bytes)
VECTOR_CASE(compare, 96)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), y = b.load<float>(256, 64, 256);
    auto z = b.at<uint8_t>(1024, 1024);
    const CMPMODE modes[6] = {CMPMODE::LT, CMPMODE::GT, CMPMODE::EQ, CMPMODE::LE, CMPMODE::GE, CMPMODE::NE};
    for (int i = 0; i < 6; ++i) {
        Compare(z[32 * i], x, y, modes[i], 64);
        b.store(z[32 * i], 8, 8 * i);
    }
    auto h = b.load<half>(4096, 128, 512);
    CompareScalar(z[192], h, (half)0.0f, CMPMODE::GT, 128);
    b.store(z[192], 16, 48);
    auto i0 = b.load<int32_t>(8192, 64, 768), i1 = b.load<int32_t>(8448, 64, 1024);
    Compare(z[224], i0, i1, CMPMODE::EQ, (uint64_t)64, 1, BinaryRepeatParams(1, 1, 1, 8, 8, 8));
    b.store(z[224], 8, 64);
}

// select: mode 2 over two repeats goes on through the mask; mode 0 reuses the first 64 bits; mode 1 with a scalar
VECTOR_CASE(select_modes, 1536)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0), y = b.load<float>(512, 128, 512);
    auto m = b.load<uint8_t>(1024, 32, 1024);
    auto z = b.at<float>(2048, 384);
    Select(z, m, x, y, SELMODE::VSEL_TENSOR_TENSOR_MODE, 128);
    Select(z[128], m, x, y, SELMODE::VSEL_CMPMASK_SPR, (uint64_t)64, 2, BinaryRepeatParams(1, 1, 1, 8, 8, 8));
    Select(z[256], m, x, -5.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, 128);
    b.store(z, 384);
}

// fills: duplicate with mask and strides, brcb of 8 floats with a gap of a block, index from 3, progression 1 + 0.5 i
VECTOR_CASE(fills, 2048)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 16, 0);
    auto z = b.at<float>(1024, 512);
    Duplicate(z, 0.0f, 512);
    Duplicate(z, 4.0f, (uint64_t)9, 2, 2, 4);
    Brcb(z[128], x, 1, BrcbRepeatParams(2, 16));
    auto i = z[256].ReinterpretCast<int32_t>();
    CreateVecIndex(i, 3, 100);
    ArithProgression(z[384], 1.0f, 0.5f, 60);
    b.store(z, 512);
}

// copy with mask 40 of half, block stride 2 out of dst, repeat strides 16 and 8
VECTOR_CASE(copy_mask, 1024)
{
    Bench b(in, out);
    auto x = b.load<half>(0, 256, 0);
    auto z = b.at<half>(1024, 512);
    Duplicate(z, (half)-1.0f, 512);
    Copy(z, x, (uint64_t)40, 2, CopyRepeatParams(2, 1, 16, 8));
    b.store(z, 512);
}
