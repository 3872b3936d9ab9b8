// The cube chain: loads of fractals, transposes, multiplication with tails and bias, and every way out of L0C.
#include "harness.h"

struct Cube {
    TPipe pipe;
    TBuf<TPosition::A1> l1;
    TBuf<TPosition::A2> l0a;
    TBuf<TPosition::B2> l0b;
    TBuf<TPosition::CO1> l0c;
    TBuf<TPosition::C2> bt;
    GM_ADDR in;
    GM_ADDR out;
    Cube(GM_ADDR i, GM_ADDR o) : in(i), out(o)
    {
        pipe.InitBuffer(l1, 256 * 1024);
        pipe.InitBuffer(l0a, 64 * 1024);
        pipe.InitBuffer(l0b, 64 * 1024);
        pipe.InitBuffer(l0c, 128 * 1024);
        pipe.InitBuffer(bt, 1024);
    }
    /// rows x columns of pitch `columns` at gm_byte, as NZ with `high` rows a strip
    template <typename T>
    LocalTensor<T> matrix(uint32_t l1_byte, uint32_t gm_byte, uint16_t rows, uint16_t columns, uint16_t high)
    {
        auto t = l1.GetWithOffset<T>(16384 / sizeof(T), l1_byte);
        GlobalTensor<T> g;
        g.SetGlobalBuffer((__gm__ T*)(in + gm_byte));
        DataCopy(t, g, Nd2NzParams(1, rows, columns, 0, columns, high, 1, 0));
        SetFlag<HardEvent::MTE2_MTE1>(0);
        WaitFlag<HardEvent::MTE2_MTE1>(0);
        return t;
    }
    /// whole memories go out through L1 images of what was loaded: only for tests of loads, by Mmad with a unit matrix
    template <typename T>
    void rows_out(const LocalTensor<T>& c, uint32_t m, uint32_t n, uint32_t gm_byte = 0)
    {
        GlobalTensor<T> g;
        g.SetGlobalBuffer((__gm__ T*)(out + gm_byte));
        SetFlag<HardEvent::M_FIX>(0);
        WaitFlag<HardEvent::M_FIX>(0);
        Fixpipe(g, c, FixpipeParamsV220(n, m, (m + 15) / 16 * 16, n, false));
    }
    void ready()
    {
        SetFlag<HardEvent::MTE1_M>(0);
        WaitFlag<HardEvent::MTE1_M>(0);
    }
};

/// A[m,k] and B[k,n] row-major, 16-bit: A by bands of 16 rows, B by bands of 16 rows of k with ifTranspose.
template <typename T>
void load_16bit(Cube& u, LocalTensor<T>& a, LocalTensor<T>& b, int m, int k, int n)
{
    auto la = u.matrix<T>(0, 0, m, k, (m + 15) / 16 * 16), lb = u.matrix<T>(65536, m * k * sizeof(T), k, n, (k + 15) / 16 * 16);
    int mb = (m + 15) / 16, kb = (k + 15) / 16, nb = (n + 15) / 16;
    for (int r = 0; r < mb; ++r) LoadData(a[r * kb * 256], la, LoadData2DParams(r, kb, mb, 0, 0, false, 0));
    for (int r = 0; r < kb; ++r) LoadData(b[r * nb * 256], lb, LoadData2DParams(r, nb, kb, 0, 0, true, 0));
    u.ready();
}

// 20 x 40 x 35 half: tails in all three dims
CUBE_CASE(matmul_half, 20 * 35 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<half>(), b = u.l0b.Get<half>();
    auto c = u.l0c.Get<float>();
    load_16bit(u, a, b, 20, 40, 35);
    Mmad(c, a, b, MmadParams(20, 35, 40, 0, false, true));
    u.rows_out(c, 20, 35);
}

CUBE_CASE(matmul_bf16, 32 * 48 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<bfloat16_t>(), b = u.l0b.Get<bfloat16_t>();
    auto c = u.l0c.Get<float>();
    load_16bit(u, a, b, 32, 64, 48);
    Mmad(c, a, b, MmadParams(32, 48, 64, 0, false, true));
    u.rows_out(c, 32, 48);
}

/// float: A by bands of 16 rows (fractals 16 x 8); B[k,n] transposed by squares of 16 x 16.
void load_float(Cube& u, LocalTensor<float>& a, LocalTensor<float>& b, int m, int k, int n)
{
    int mb = (m + 15) / 16, kb8 = (k + 7) / 8, kb16 = (k + 15) / 16, nb = (n + 15) / 16;
    auto la = u.matrix<float>(0, 0, m, k, mb * 16);
    for (int r = 0; r < mb; ++r) LoadData(a[r * kb8 * 128], la, LoadData2DParams(r, kb8, mb, 0, 0, false, 0));
    // bands of 16 rows of k, each as NZ with 16 rows a strip: two strips make a square
    for (int r = 0; r < kb16; ++r) {
        int rows = k - 16 * r < 16 ? k - 16 * r : 16;
        auto lb = u.matrix<float>(65536, (m * k + 16 * r * n) * 4, rows, n, 16);
        LoadDataWithTranspose(b[r * 2 * nb * 128], lb, LoadData2dTransposeParams(0, nb, 1, 0, nb - 1));
        SetFlag<HardEvent::MTE1_MTE2>(1);
        WaitFlag<HardEvent::MTE1_MTE2>(1);
    }
    u.ready();
}

CUBE_CASE(matmul_float, 20 * 32 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<float>(), b = u.l0b.Get<float>(), c = u.l0c.Get<float>();
    load_float(u, a, b, 20, 24, 32);
    Mmad(c, a, b, MmadParams(20, 32, 24, 0, false, true));
    u.rows_out(c, 20, 32);
}

CUBE_CASE(matmul_hf32, 16 * 16 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<float>(), b = u.l0b.Get<float>(), c = u.l0c.Get<float>();
    load_float(u, a, b, 16, 16, 16);
    SetHF32Mode(true);
    Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
    SetHF32Mode(false);
    u.rows_out(c, 16, 16);
}

// int8: A[16,64] as it is, B[32,32] transposed as one square of 32, k = 32
CUBE_CASE(matmul_int8, 16 * 32 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<int8_t>(), b = u.l0b.Get<int8_t>();
    auto c = u.l0c.Get<int32_t>();
    auto la = u.matrix<int8_t>(0, 0, 16, 32, 16), lb = u.matrix<int8_t>(65536, 512, 32, 32, 32);
    LoadData(a, la, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    LoadDataWithTranspose(b, lb, LoadData2dTransposeParams(0, 1, 1, 0, 0));
    u.ready();
    Mmad(c, a, b, MmadParams(16, 32, 32, 0, false, true));
    u.rows_out(c, 16, 32);
}

// two steps over k accumulate in L0C; bias first; barrier between because the tile is small
CUBE_CASE(accumulate_bias, 16 * 16 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<half>(), b = u.l0b.Get<half>();
    auto c = u.l0c.Get<float>(), bias = u.bt.Get<float>();
    auto lbias = u.l1.GetWithOffset<float>(16, 196608);
    GlobalTensor<float> g;
    g.SetGlobalBuffer((__gm__ float*)(in + 2 * 16 * 32 * 2));
    DataCopy(lbias, g, 16);
    load_16bit(u, a, b, 16, 32, 16);
    DataCopy(bias, lbias, DataCopyParams(1, 1, 0, 0));
    SetFlag<HardEvent::MTE1_M>(1);
    WaitFlag<HardEvent::MTE1_M>(1);
    Mmad(c, a, b, bias, MmadParams(16, 16, 16, 0, true, false));
    PipeBarrier<PIPE_M>();
    Mmad(c, a[256], b[256], MmadParams(16, 16, 16, 0, false, false));
    u.rows_out(c, 16, 16);
}

// m = 1: A is a plain row in L0A
CUBE_CASE(vector_matrix, 32 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<half>(), b = u.l0b.Get<half>();
    auto c = u.l0c.Get<float>();
    auto la = u.l1.GetWithOffset<half>(256, 0);
    GlobalTensor<half> g;
    g.SetGlobalBuffer((__gm__ half*)in);
    DataCopy(la, g, 48);
    auto lb = u.matrix<half>(65536, 96, 48, 32, 48);
    LoadData(a, la, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    for (int r = 0; r < 3; ++r) LoadData(b[r * 2 * 256], lb, LoadData2DParams(r, 2, 3, 0, 0, true, 0));
    u.ready();
    Mmad(c, a, b, MmadParams(1, 32, 48, 0, false, true));
    u.rows_out(c, 1, 32);
}

// the same product with both operands by LoadData3DV2: A as it is, B turned on the way to L0B
CUBE_CASE(load3d, 32 * 48 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<half>(), b = u.l0b.Get<half>();
    auto c = u.l0c.Get<float>();
    auto la = u.matrix<half>(0, 0, 32, 64, 32), lb = u.matrix<half>(65536, 32 * 64 * 2, 64, 48, 64);
    const uint8_t pad[4] = {0, 0, 0, 0};
    LoadData(a, la, LoadData3DParamsV2<half>(pad, 1, 32, 64, 64, 32, 0, 0, 1, 1, 1, 1, 1, 1, false, false, (half)0));
    LoadData(b, lb, LoadData3DParamsV2<half>(pad, 1, 64, 48, 48, 64, 0, 0, 1, 1, 1, 1, 1, 1, true, false, (half)0));
    u.ready();
    Mmad(c, a, b, MmadParams(32, 48, 64, 0, false, true));
    u.rows_out(c, 32, 48);
}

// A given as [k,m] in L1, turned by LoadData3DV2 with enTranspose; float B through L0B
CUBE_CASE(load3d_float, 32 * 16 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<float>(), b = u.l0b.Get<float>(), c = u.l0c.Get<float>();
    auto la = u.matrix<float>(0, 0, 16, 32, 16), lb = u.matrix<float>(65536, 16 * 32 * 4, 16, 16, 16);
    const uint8_t pad[4] = {0, 0, 0, 0};
    LoadData(a, la, LoadData3DParamsV2<float>(pad, 1, 16, 32, 32, 16, 0, 0, 1, 1, 1, 1, 1, 1, true, false, 0.0f));
    LoadData(b, lb, LoadData3DParamsV2<float>(pad, 1, 16, 16, 16, 16, 0, 0, 1, 1, 1, 1, 1, 1, false, false, 0.0f));
    u.ready();
    Mmad(c, a, b, MmadParams(32, 16, 16, 0, false, true));
    u.rows_out(c, 32, 16);
}

// ways out: half rows with pitch 40 and relu; bf16 NZ; float NZ; float NZ with channel split; two matrices
CUBE_CASE(fixpipe_forms, 12288)
{
    Cube u(in, out);
    auto a = u.l0a.Get<half>(), b = u.l0b.Get<half>();
    auto c = u.l0c.Get<float>();
    load_16bit(u, a, b, 16, 32, 32);
    Mmad(c, a, b, MmadParams(16, 32, 32, 0, false, true));
    SetFlag<HardEvent::M_FIX>(0);
    WaitFlag<HardEvent::M_FIX>(0);
    GlobalTensor<half> h;
    h.SetGlobalBuffer((__gm__ half*)out);
    FixpipeParamsV220 p(30, 10, 16, 40, true);
    p.quantPre = QuantMode_t::F322F16;
    Fixpipe(h, c, p);
    GlobalTensor<bfloat16_t> w;
    w.SetGlobalBuffer((__gm__ bfloat16_t*)(out + 2048));
    FixpipeParamsV220 q(32, 16, 16, 16, false);
    q.quantPre = QuantMode_t::F322BF16;
    Fixpipe<bfloat16_t, float, CFG_NZ>(w, c, q);
    GlobalTensor<float> f;
    f.SetGlobalBuffer((__gm__ float*)(out + 4096));
    Fixpipe<float, float, CFG_NZ>(f, c, FixpipeParamsV220(32, 16, 16, 32, false));
    FixpipeParamsV220 s(32, 16, 16, 16, false);
    s.isChannelSplit = true;
    Fixpipe<float, float, CFG_NZ>(f[1024 / 2], c, s);
    FixpipeParamsV220 two(16, 16, 16, 16, false);
    two.ndNum = 2;
    two.srcNdStride = 1;
    two.dstNdStride = 256;
    Fixpipe(f[1024], c, two);
}

// L0C to L1 as half NZ, used as A of a second product
CUBE_CASE(chained, 16 * 16 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<half>(), b = u.l0b.Get<half>();
    auto c = u.l0c.Get<float>();
    load_16bit(u, a, b, 16, 16, 16);
    Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
    SetFlag<HardEvent::M_FIX>(0);
    WaitFlag<HardEvent::M_FIX>(0);
    auto mid = u.l1.GetWithOffset<half>(256, 131072);
    FixpipeParamsV220 p(16, 16, 16, 16, false);
    p.quantPre = QuantMode_t::F322F16;
    Fixpipe<half, float, CFG_NZ>(mid, c, p);
    SetFlag<HardEvent::FIX_MTE1>(0);
    WaitFlag<HardEvent::FIX_MTE1>(0);
    SetFlag<HardEvent::M_MTE1>(0);
    WaitFlag<HardEvent::M_MTE1>(0);
    LoadData(a, mid, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    u.ready();
    SetFlag<HardEvent::FIX_M>(0);
    WaitFlag<HardEvent::FIX_M>(0);
    Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true));
    u.rows_out(c, 16, 16);
}

// unit flag hands the tile over without an event
CUBE_CASE(unit_flag, 16 * 16 * 4)
{
    Cube u(in, out);
    auto a = u.l0a.Get<half>(), b = u.l0b.Get<half>();
    auto c = u.l0c.Get<float>();
    load_16bit(u, a, b, 16, 32, 16);
    Mmad(c, a, b, MmadParams(16, 16, 16, 2, false, true));
    PipeBarrier<PIPE_M>();
    Mmad(c, a[256], b[256], MmadParams(16, 16, 16, 3, false, false));
    GlobalTensor<float> g;
    g.SetGlobalBuffer((__gm__ float*)out);
    FixpipeParamsV220 p(16, 16, 16, 16, false);
    p.unitFlag = 3;
    Fixpipe(g, c, p);
}

// int32 results scaled to half: 0.5 as the scale
CUBE_CASE(dequant, 16 * 32 * 2)
{
    Cube u(in, out);
    auto a = u.l0a.Get<int8_t>(), b = u.l0b.Get<int8_t>();
    auto c = u.l0c.Get<int32_t>();
    auto la = u.matrix<int8_t>(0, 0, 16, 32, 16), lb = u.matrix<int8_t>(65536, 512, 32, 32, 32);
    LoadData(a, la, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    LoadDataWithTranspose(b, lb, LoadData2dTransposeParams(0, 1, 1, 0, 0));
    u.ready();
    Mmad(c, a, b, MmadParams(16, 32, 32, 0, false, true));
    SetFlag<HardEvent::M_FIX>(0);
    WaitFlag<HardEvent::M_FIX>(0);
    GlobalTensor<half> g;
    g.SetGlobalBuffer((__gm__ half*)out);
    FixpipeParamsV220 p(32, 16, 16, 32, false);
    p.quantPre = QuantMode_t::DEQF16;
    p.deqScalar = 0x3f000000;
    Fixpipe(g, c, p);
}

// the same with a scale a column, which lie behind the operands
CUBE_CASE(dequant_columns, 2 * 16 * 32 * 2)
{
    Cube u(in, out);
    auto a = u.l0a.Get<int8_t>(), b = u.l0b.Get<int8_t>();
    auto c = u.l0c.Get<int32_t>();
    auto la = u.matrix<int8_t>(0, 0, 16, 32, 16), lb = u.matrix<int8_t>(65536, 512, 32, 32, 32);
    LocalTensor<uint64_t> scales = u.l1.GetWithOffset<uint64_t>(32, 131072);
    GlobalTensor<uint64_t> from;
    from.SetGlobalBuffer((__gm__ uint64_t*)(in + 1536));
    DataCopy(scales, from, 32);
    SetFlag<HardEvent::MTE2_FIX>(0);
    WaitFlag<HardEvent::MTE2_FIX>(0);
    LoadData(a, la, LoadData2DParams(0, 1, 1, 0, 0, false, 0));
    LoadDataWithTranspose(b, lb, LoadData2dTransposeParams(0, 1, 1, 0, 0));
    u.ready();
    Mmad(c, a, b, MmadParams(16, 32, 32, 0, false, true));
    SetFlag<HardEvent::M_FIX>(0);
    WaitFlag<HardEvent::M_FIX>(0);
    GlobalTensor<half> g;
    g.SetGlobalBuffer((__gm__ half*)out);
    FixpipeParamsV220 p(32, 16, 16, 32, false);
    p.quantPre = QuantMode_t::VDEQF16;
    Fixpipe(g, c, scales, p);
    // and into L1, in NZ: two columns of 16
    auto kept = u.l1.GetWithOffset<half>(512, 196608);
    p.dstStride = 16;
    Fixpipe<half, int32_t, CFG_NZ>(kept, c, scales, p);
    SetFlag<HardEvent::FIX_MTE3>(0);
    WaitFlag<HardEvent::FIX_MTE3>(0);
    DataCopy(g[512], kept, 512);
}
