// Moves between memories: DataCopy, DataCopyPad, Nd2Nz, atomics, scalar access, bias table.
#include "harness.h"

// three blocks of 2x32 bytes, source gap 1 block, destination gap 2 blocks, out again with swapped gaps
VECTOR_CASE(bursts, 512)
{
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(ub, 4096);
    auto t = ub.Get<float>();
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in);
    o.SetGlobalBuffer((__gm__ float*)out);
    Duplicate(t, -1.0f, 128);
    SetFlag<HardEvent::V_MTE2>(0);
    WaitFlag<HardEvent::V_MTE2>(0);
    DataCopy(t, g, DataCopyParams(3, 2, 1, 2));
    SetFlag<HardEvent::MTE2_MTE3>(0);
    WaitFlag<HardEvent::MTE2_MTE3>(0);
    DataCopy(o, t, DataCopyParams(3, 2, 2, 1));
    DataCopy(o[96], t, 32);
}

// UB to UB with gaps
VECTOR_CASE(inside_ub, 256)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 64, 0), z = b.at<float>(1024, 64);
    Duplicate(z, -1.0f, 64);
    DataCopy(z, x, DataCopyParams(2, 1, 1, 2));
    b.store(z, 64);
}

// rows of 5 floats out of a pitch of 7, padded to 8 with 2.5 on the right; every row on its own block
VECTOR_CASE(pad_right, 128)
{
    Bench b(in, out);
    GlobalTensor<float> g;
    g.SetGlobalBuffer((__gm__ float*)in, 28);
    auto t = b.at<float>(0, 32);
    DataCopyPad(t, g, DataCopyExtParams(4, 20, 8, 0, 0), DataCopyPadExtParams<float>(true, 0, 3, 2.5f));
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    b.store(t, 32);
}

// two halves on the left, one on the right, the rest of the block too; gap of one block in UB
VECTOR_CASE(pad_both, 128)
{
    Bench b(in, out);
    GlobalTensor<half> g;
    g.SetGlobalBuffer((__gm__ half*)in, 10);
    auto t = b.at<half>(0, 64);
    Duplicate(t, (half)-1.0f, 64);
    SetFlag<HardEvent::V_MTE2>(0);
    WaitFlag<HardEvent::V_MTE2>(0);
    DataCopyPad(t, g, DataCopyExtParams(2, 10, 0, 1, 0), DataCopyPadExtParams<half>(true, 2, 1, (half)9.0f));
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    b.store(t, 64);
}

// rows of 3 floats, one block each in UB, to a pitch of 5 floats
VECTOR_CASE(pad_out, 80)
{
    Bench b(in, out);
    auto t = b.load<float>(0, 32, 0);
    GlobalTensor<float> o;
    o.SetGlobalBuffer((__gm__ float*)out, 20);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopyPad(o, t, DataCopyExtParams(4, 12, 0, 8, 0));
}

// atomics: add twice float, add bf16, max int32
VECTOR_CASE(atomics, 96)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 8, 0);
    auto y = b.load<bfloat16_t>(64, 16, 32);
    auto i = b.load<int32_t>(128, 8, 64);
    SetFlag<HardEvent::V_MTE3>(1);
    WaitFlag<HardEvent::V_MTE3>(1);
    GlobalTensor<float> g;
    g.SetGlobalBuffer((__gm__ float*)out);
    GlobalTensor<bfloat16_t> h;
    h.SetGlobalBuffer((__gm__ bfloat16_t*)(out + 32));
    GlobalTensor<int32_t> k;
    k.SetGlobalBuffer((__gm__ int32_t*)(out + 64));
    SetAtomicAdd<float>();
    DataCopy(g, x, 8);
    DataCopy(g, x, 8);
    SetAtomicAdd<bfloat16_t>();
    DataCopy(h, y, 16);
    SetAtomicMax<int32_t>();
    DataCopy(k, i, 8);
    SetAtomicNone();
}

// scalar reads and writes of both memories
VECTOR_CASE(scalars, 64)
{
    Bench b(in, out);
    auto x = b.load<int32_t>(0, 8, 0);
    GlobalTensor<int32_t> g, o;
    g.SetGlobalBuffer((__gm__ int32_t*)in);
    o.SetGlobalBuffer((__gm__ int32_t*)out);
    SetFlag<HardEvent::MTE2_S>(0);
    WaitFlag<HardEvent::MTE2_S>(0);
    o.SetValue(0, x.GetValue(3) + g.GetValue(4));
    x.SetValue(5, 77);
    o.SetValue(1, x(5));
    o(2) = g(6);
    o.SetValue(3, (int32_t)x[2].GetSize());
    o.SetValue(4, (int32_t)x.ReinterpretCast<half>().GetSize());
}

// 3 rows x 20 columns of half, pitch 24, two matrices 80 elements apart; strips of 16 rows; then the L1 image goes out
CUBE_CASE(nd2nz, 2048)
{
    TPipe pipe;
    TBuf<TPosition::A1> l1;
    pipe.InitBuffer(l1, 4096);
    auto t = l1.Get<half>();
    GlobalTensor<half> g, o;
    g.SetGlobalBuffer((__gm__ half*)in);
    o.SetGlobalBuffer((__gm__ half*)out);
    DataCopy(t, g[200], 1024);
    DataCopy(t, g, Nd2NzParams(2, 3, 20, 80, 24, 16, 1, 512));
    SetFlag<HardEvent::MTE2_MTE3>(0);
    WaitFlag<HardEvent::MTE2_MTE3>(0);
    DataCopy(o, t, 1024);
}

// row stride 2 in L1 and a float matrix with 13 columns: c0 = 8, the second strip is zero-filled beyond column 13
CUBE_CASE(nd2nz_float, 1024)
{
    TPipe pipe;
    TBuf<TPosition::B1> l1;
    pipe.InitBuffer(l1, 4096);
    auto t = l1.Get<float>();
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in);
    o.SetGlobalBuffer((__gm__ float*)out);
    DataCopy(t, g[100], 256);
    DataCopy(t, g, Nd2NzParams(1, 4, 13, 0, 13, 16, 2, 0));
    SetFlag<HardEvent::MTE2_MTE3>(0);
    WaitFlag<HardEvent::MTE2_MTE3>(0);
    DataCopy(o, t, 256);
}

// a queue for copy-through: TQueBind<VECIN, VECOUT>
VECTOR_CASE(copy_through, 256)
{
    TPipe pipe;
    TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> q;
    pipe.InitBuffer(q, 2, 64);
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in);
    o.SetGlobalBuffer((__gm__ float*)out);
    for (int i = 0; i < 4; ++i) {
        auto t = q.AllocTensor<float>();
        DataCopy(t, g[16 * i], 16);
        q.EnQue(t);
        t = q.DeQue<float>();
        DataCopy(o[16 * i], t, 16);
        q.FreeTensor(t);
    }
}

// static tensors without TPipe
VECTOR_CASE(static_tensors, 128)
{
    LocalTensor<float> x(TPosition::VECIN, 0, 32), z(TPosition::VECOUT, 1024, 32);
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in);
    o.SetGlobalBuffer((__gm__ float*)out);
    DataCopy(x, g, 32);
    SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
    Adds(z, x, 1.0f, 32);
    SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
    DataCopy(o, z, 32);
}
