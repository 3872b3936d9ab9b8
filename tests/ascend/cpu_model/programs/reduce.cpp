// Reductions, gathers, sorting, layout.
#include "harness.h"

// one sum a repeat: mask 60, three repeats, dst stride 2 elements
VECTOR_CASE(whole_sum, 64)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 192, 0), z = b.at<float>(2048, 16);
    Duplicate(z, -1.0f, 16);
    WholeReduceSum(z, x, 60, 3, 2, 1, 8);
    b.store(z, 16);
}

// pairs (value, index) in both orders, values only, indices only; half and float
VECTOR_CASE(whole_extreme, 320)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0);
    auto h = b.load<half>(1024, 256, 512);
    auto z = b.at<float>(4096, 64);
    Duplicate(z, 0.0f, 64);
    WholeReduceMax(z, x, 64, 2, 1, 1, 8);
    WholeReduceMin(z[8], x, 64, 2, 1, 1, 8, ReduceOrder::ORDER_INDEX_VALUE);
    WholeReduceMax(z[16], x, 64, 2, 1, 1, 8, ReduceOrder::ORDER_ONLY_VALUE);
    WholeReduceMax(z[24], x, 64, 2, 1, 1, 8, ReduceOrder::ORDER_ONLY_INDEX);
    auto y = z[32].ReinterpretCast<half>();
    WholeReduceMax(y, h, 128, 2, 1, 1, 8);
    WholeReduceMin(y[16], h, 128, 2, 1, 1, 8, ReduceOrder::ORDER_ONLY_INDEX);
    b.store(z, 64);
}

// one result a block: 8 blocks of 8 floats, mask 20 leaves the last five blocks alone; dst repeat stride 1 = 8 results
VECTOR_CASE(block_reduce, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0), z = b.at<float>(2048, 64);
    Duplicate(z, -7.0f, 64);
    BlockReduceSum(z, x, 2, 64, 1, 1, 8);
    BlockReduceMax(z[16], x, 1, 20, 1, 1, 8);
    BlockReduceMin(z[32], x, 2, 64, 2, 1, 8);
    b.store(z, 64);
}

// neighbours added: 64 floats -> 32, mask bits keep pairs 0 and 2 only in the second call
VECTOR_CASE(pair_reduce, 512)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0), z = b.at<float>(2048, 128);
    Duplicate(z, -7.0f, 128);
    PairReduceSum(z, x, 2, 64, 1, 1, 8);
    uint64_t mask[2] = {0x33, 0};
    PairReduceSum(z[64], x, 1, mask, 1, 1, 8);
    b.store(z, 128);
}

// software reductions of 300 floats: sum, max with index, min without
VECTOR_CASE(reduce_all, 96)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 300, 0), z = b.at<float>(4096, 24), w = b.at<float>(8192, 64);
    Duplicate(z, 0.0f, 24);
    ReduceSum(z, x, w, 300);
    ReduceMax(z[8], x, w, 300, true);
    ReduceMin(z[16], x, w, 300);
    b.store(z, 24);
}

// 40 elements by byte offset, base 64 bytes; blocks by offset
VECTOR_CASE(gathers, 672)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0);
    auto o = b.load<uint32_t>(1024, 40, 512), p = b.load<uint32_t>(2048, 8, 672);
    auto z = b.at<float>(4096, 168);
    Duplicate(z, 0.0f, 168);
    Gather(z, x, o, 64u, 40u);
    Gatherb(z[40].ReinterpretCast<uint32_t>(), x.ReinterpretCast<uint32_t>(), p, 1, GatherRepeatParams(2, 8));
    b.store(z, 168);
}

// fixed pattern 4 over two repeats; own pattern in counter mode: 70 elements a repeat, pattern restarts each repeat
VECTOR_CASE(gather_mask, 1024)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 160, 0);
    auto m = b.load<uint32_t>(1024, 8, 640);
    auto z = b.at<float>(2048, 256);
    Duplicate(z, 0.0f, 256);
    uint64_t n0 = 0, n1 = 0;
    GatherMask(z, x, 4, false, 0, GatherMaskParams(1, 2, 8, 0), n0);
    GatherMask(z[64], x, m, true, 70, GatherMaskParams(1, 2, 10, 0), n1);
    PipeBarrier<PIPE_V>();
    SetFlag<HardEvent::V_S>(0);
    WaitFlag<HardEvent::V_S>(0);
    z.SetValue(254, (float)n0);
    z.SetValue(255, (float)n1);
    SetFlag<HardEvent::S_MTE3>(0);
    WaitFlag<HardEvent::S_MTE3>(0);
    b.store(z, 256);
}

// 64 scores with ties in two groups; merged; extracted; half records
VECTOR_CASE(sorts, 2048)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0);
    auto i = b.load<uint32_t>(512, 64, 256);
    auto h = b.load<half>(1024, 32, 512);
    auto z = b.at<float>(4096, 512);
    Duplicate(z, 0.0f, 512);
    Sort32(z, x, i, 2);
    MrgSortSrcList<float> lists(z, z[64], z, z);
    uint16_t lengths[4] = {32, 32, 0, 0};
    uint32_t taken[4];
    MrgSort<float>(z[128], lists, lengths, taken, 0b0011, 1);
    auto iv = z[320].ReinterpretCast<uint32_t>();
    Extract(z[256], iv, z[128], 2);
    auto hz = z[384].ReinterpretCast<half>();
    Sort32(hz, h, i, 1);
    b.store(z, 512);
}

// four lists of 32 merged; with suspension the merge ends when a list is used up
VECTOR_CASE(merge_four, 2048)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 128, 0);
    auto i = b.load<uint32_t>(1024, 128, 512);
    auto z = b.at<float>(4096, 256), s = b.at<float>(8192, 512), w = b.at<float>(16384, 256);
    Duplicate(s, 0.0f, 512);
    Sort32(z, x, i, 4);
    MrgSort4Info info;
    for (int k = 0; k < 4; ++k) info.elementLengths[k] = 32;
    info.validBit = 15;
    MrgSort(s, MrgSortSrcList<float>(z, z[64], z[128], z[192]), info);
    uint16_t lengths[4] = {32, 32, 32, 32};
    uint32_t taken[4] = {};
    Duplicate(w, 0.0f, 256);
    MrgSort<float, true>(w, MrgSortSrcList<float>(z, z[64], z[128], z[192]), lengths, taken, 15, 1);
    SetFlag<HardEvent::V_S>(0);
    WaitFlag<HardEvent::V_S>(0);
    for (int k = 0; k < 4; ++k) s.SetValue(256 + k, (float)taken[k]);
    SetFlag<HardEvent::S_MTE3>(0);
    WaitFlag<HardEvent::S_MTE3>(0);
    b.store(s, 512);
}

// full sort of 96 floats through Concat and Sort
VECTOR_CASE(full_sort, 768)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 96, 0);
    auto i = b.load<uint32_t>(512, 96, 384);
    auto z = b.at<float>(4096, 192), w = b.at<float>(8192, 192);
    LocalTensor<float> c;
    Concat(c, x, w, 6);
    Sort<float, true>(z, c, i, w, 3);
    b.store(z, 192);
}

// 16x16 transpose of int16; 16 blocks of 16 and of 32 bits
VECTOR_CASE(layout, 1536)
{
    Bench b(in, out);
    auto x = b.load<int16_t>(0, 256, 0);
    auto y = b.load<int32_t>(1024, 128, 512);
    auto z = b.at<int16_t>(4096, 768);
    Transpose(z, x);
    LocalTensor<int16_t> from[16], to[16];
    for (int k = 0; k < 16; ++k) {
        from[k] = x[16 * k];
        to[k] = z[256 + 16 * k];
    }
    TransDataTo5HD<int16_t>(to, from, TransDataTo5HDParams(false, false, 1, 0, 0));
    uint64_t a[16], d[16];
    auto w = z[512].ReinterpretCast<int32_t>();
    for (int k = 0; k < 16; ++k) {
        a[k] = (uint64_t)y[8 * k].GetPhyAddr();
        d[k] = (uint64_t)w[8 * k].GetPhyAddr();
    }
    TransDataTo5HD<int32_t>(d, a, TransDataTo5HDParams(false, false, 1, 0, 0));
    b.store(z, 768);
}
