// Hazards between pipes and cores, cross-core synchronisation, masks of sites, counts.
#include "harness.h"

// a pipelined tile loop, every site on a line of its own
VECTOR_CASE(tiles, 1024)
{
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(ub, 1024);  // init
    auto x = ub.GetWithOffset<float>(64, 0);  // view
    auto z = ub.GetWithOffset<float>(64, 512);
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in, 256);  // gm
    o.SetGlobalBuffer((__gm__ float*)out, 256);
    SetFlag<HardEvent::V_MTE2>(0);  // set free
    SetFlag<HardEvent::MTE3_V>(0);
    for (int i = 0; i < 4; ++i) {
        WaitFlag<HardEvent::V_MTE2>(0);  // wait free
        DataCopy(x, g[64 * i], 64);
        SetFlag<HardEvent::MTE2_V>(0);  // set data
        WaitFlag<HardEvent::MTE2_V>(0);  // wait data
        Adds(x, x, 1.0f, 64);
        PipeBarrier<PIPE_V>();  // barrier
        WaitFlag<HardEvent::MTE3_V>(0);  // wait out
        Muls(z, x, 2.0f, 64);
        SetFlag<HardEvent::V_MTE2>(0);
        SetFlag<HardEvent::V_MTE3>(0);
        WaitFlag<HardEvent::V_MTE3>(0);  // wait result
        DataCopy(o[64 * i], z, 64);
        SetFlag<HardEvent::MTE3_V>(0);
    }
    WaitFlag<HardEvent::V_MTE2>(0);
    WaitFlag<HardEvent::MTE3_V>(0);
}

// two loads by one event: the second set may come before V has passed the first wait
VECTOR_CASE(one_event, 32)
{
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(ub, 1024);
    auto x = ub.GetWithOffset<float>(8, 0), y = ub.GetWithOffset<float>(8, 32);
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in);
    o.SetGlobalBuffer((__gm__ float*)out);
    DataCopy(x, g, 8);
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);  // first wait
    DataCopy(y, g[8], 8);
    SetFlag<HardEvent::MTE2_V>(0);  // second set
    WaitFlag<HardEvent::MTE2_V>(0);
    Add(x, x, y, 8);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(o, x, 8);
}

// padding that the arithmetic relies on
VECTOR_CASE(padded, 32)
{
    Bench b(in, out);
    GlobalTensor<float> g;
    g.SetGlobalBuffer((__gm__ float*)in);
    auto x = b.at<float>(0, 8);
    DataCopyPad(x, g, DataCopyExtParams(1, 20, 0, 0, 0), DataCopyPadExtParams<float>(true, 0, 3, 0.0f));  // pad
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    Adds(x, x, 1.0f, 8);
    b.store(x, 8);
}

// two cores: each doubles its half; then, after SyncAll, reads the other's half through UB and adds
CASE(two_phases, KERNEL_TYPE_MIX_AIV_1_0, 512, 2)
{
    TPipe pipe;
    TBuf<TPosition::VECCALC> ub;
    pipe.InitBuffer(ub, 1024);
    auto x = ub.GetWithOffset<float>(32, 0), y = ub.GetWithOffset<float>(32, 256);
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in);
    o.SetGlobalBuffer((__gm__ float*)out);
    int me = GetBlockIdx(), other = 1 - me;
    DataCopy(x, g[32 * me], 32);
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    Muls(x, x, 2.0f, 32);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(o[32 * me], x, 32);
    SyncAll();  // syncall
    DataCopy(y, o[32 * other], 32);
    SetFlag<HardEvent::MTE2_V>(0);
    WaitFlag<HardEvent::MTE2_V>(0);
    Add(y, x, y, 32);
    SetFlag<HardEvent::V_MTE3>(0);
    WaitFlag<HardEvent::V_MTE3>(0);
    DataCopy(o[64 + 32 * me], y, 32);
}

// cube core multiplies by the unit matrix into a workspace, its two vector cores take the rows; flags both ways, twice
CASE(mixed, KERNEL_TYPE_MIX_AIC_1_2, 2048, 1)
{
    GlobalTensor<half> g;
    GlobalTensor<float> w, o;
    g.SetGlobalBuffer((__gm__ half*)in);
    w.SetGlobalBuffer((__gm__ float*)out);
    o.SetGlobalBuffer((__gm__ float*)(out + 1024));
    if ASCEND_IS_AIC {
        LocalTensor<half> l(TPosition::A1, 0, 768), a(TPosition::A2, 0, 256), b(TPosition::B2, 0, 256);
        LocalTensor<float> c(TPosition::CO1, 0, 256);
        for (int i = 0; i < 2; ++i) {
            DataCopy(l[256 * i], g[256 * i], 256);
            if (i == 0) DataCopy(l[512], g[512], 256);
            SetFlag<HardEvent::MTE2_MTE1>(0);
            WaitFlag<HardEvent::MTE2_MTE1>(0);
            LoadData(a, l[256 * i], LoadData2DParams(0, 1, 1, 0, 0, false, 0));
            if (i == 0) LoadData(b, l[512], LoadData2DParams(0, 1, 1, 0, 0, true, 0));
            SetFlag<HardEvent::MTE1_M>(0);
            WaitFlag<HardEvent::MTE1_M>(0);
            Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
            SetFlag<HardEvent::M_FIX>(0);
            WaitFlag<HardEvent::M_FIX>(0);
            if (i) CrossCoreWaitFlag(1);  // take back
            Fixpipe(w, c, FixpipeParamsV220(16, 16, 16, 16, false));
            CrossCoreSetFlag<2, PIPE_FIX>(0);
            SetFlag<HardEvent::FIX_M>(0);
            WaitFlag<HardEvent::FIX_M>(0);
            SetFlag<HardEvent::M_MTE1>(0);
            WaitFlag<HardEvent::M_MTE1>(0);
        }
        CrossCoreWaitFlag(1);
    }
    if ASCEND_IS_AIV {
        LocalTensor<float> x(TPosition::VECIN, 0, 128), s(TPosition::VECCALC, 512, 128);
        int half_tile = GetSubBlockIdx() * 128;
        Duplicate(s, 0.0f, 128);
        for (int i = 0; i < 2; ++i) {
            CrossCoreWaitFlag(0);  // result there
            DataCopy(x, w[half_tile], 128);
            CrossCoreSetFlag<2, PIPE_MTE2>(1);
            SetFlag<HardEvent::MTE2_V>(0);
            WaitFlag<HardEvent::MTE2_V>(0);
            Add(s, s, x, 128);
            SetFlag<HardEvent::V_MTE2>(0);
            WaitFlag<HardEvent::V_MTE2>(0);
        }
        SetFlag<HardEvent::V_MTE3>(0);
        WaitFlag<HardEvent::V_MTE3>(0);
        DataCopy(o[half_tile], s, 128);
        SetFlag<HardEvent::MTE3_S>(0);
        WaitFlag<HardEvent::MTE3_S>(0);
        if (GetBlockIdx() == 0) o.SetValue(0, (float)GetBlockNum() * 100 + GetTaskRation() * 10 + GetSubBlockNum());
    }
}

// four cores add into the same place
CASE(atomic_cores, KERNEL_TYPE_AIV_ONLY, 32, 4)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 8, 0);
    SetAtomicAdd<float>();
    b.store(x, 8);
    SetAtomicNone();
}

// four cores write the same place without order
CASE(racing_cores, KERNEL_TYPE_AIV_ONLY, 32, 4)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 8, 0);
    SetFlag<HardEvent::V_MTE3>(1);
    WaitFlag<HardEvent::V_MTE3>(1);
    GlobalTensor<float> o;
    o.SetGlobalBuffer((__gm__ float*)out);
    DataCopy(o, x, 8);  // racing
}

// adjacent bytes of one block by two cores are no conflict
CASE(neighbours, KERNEL_TYPE_AIV_ONLY, 32, 2)
{
    Bench b(in, out);
    auto x = b.load<half>(0, 8, 0);
    b.store(x, 5, 10 * GetBlockIdx());
}

// scalar writes to two halves of one block while the vector pipe works on other bytes
VECTOR_CASE(sub_block, 64)
{
    Bench b(in, out);
    auto x = b.at<half>(0, 32);
    x.SetValue(0, (half)1.0f);
    x.SetValue(1, (half)2.0f);
    Duplicate(x[16], (half)3.0f, 16);
    for (int i = 2; i < 16; ++i) x.SetValue(i, (half)0.0f);
    SetFlag<HardEvent::S_MTE3>(0);
    WaitFlag<HardEvent::S_MTE3>(0);
    b.store(x, 32);
}

// write to global memory, then read it back without the MTE3_MTE2 flag
VECTOR_CASE(through_memory, 32)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 8, 0);
    b.store(x, 8);
    GlobalTensor<float> o;
    o.SetGlobalBuffer((__gm__ float*)out);
    DataCopy(b.at<float>(1024, 8), o, 8);  // back
}

// the scalar unit needs V_S before it may read
VECTOR_CASE(scalar_read, 32)
{
    Bench b(in, out);
    auto x = b.load<float>(0, 8, 0);
    Adds(x, x, 1.0f, 8);
    GlobalTensor<float> o;
    o.SetGlobalBuffer((__gm__ float*)out);
    o.SetValue(0, x.GetValue(0));  // scalar
}

// queues: a missing DeQue order is impossible, double buffering overlaps; 8 tiles of 32 over two buffers
VECTOR_CASE(queues, 1024)
{
    TPipe pipe;
    TQue<TPosition::VECIN, 2> qi;
    TQue<TPosition::VECOUT, 2> qo;
    pipe.InitBuffer(qi, 2, 128);
    pipe.InitBuffer(qo, 2, 128);
    GlobalTensor<float> g, o;
    g.SetGlobalBuffer((__gm__ float*)in);
    o.SetGlobalBuffer((__gm__ float*)out);
    for (int i = 0; i < 8; ++i) {
        auto x = qi.AllocTensor<float>();
        DataCopy(x, g[32 * i], 32);
        qi.EnQue(x);
        x = qi.DeQue<float>();
        auto z = qo.AllocTensor<float>();
        Muls(z, x, 3.0f, 32);
        qo.EnQue(z);
        qi.FreeTensor(x);
        z = qo.DeQue<float>();
        DataCopy(o[32 * i], z, 32);
        qo.FreeTensor(z);
    }
}

// a core that sleeps: order of the cores must not matter, and shows in nothing
CASE(identity, KERNEL_TYPE_AIV_ONLY, 128, 8)
{
    GlobalTensor<int32_t> o;
    o.SetGlobalBuffer((__gm__ int32_t*)out);
    o.SetValue(GetBlockIdx() * 2, (int32_t)GetBlockIdx());
    o.SetValue(GetBlockIdx() * 2 + 1, (int32_t)(GetBlockNum() * 10 + GetSubBlockIdx()));
}
