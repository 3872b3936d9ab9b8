// One case a refusal of cube cores; the line that must be named ends in "// <case>".
#include "harness.h"

#define TENSORS                                                                                                        \
    TPipe pipe;                                                                                                        \
    TBuf<TPosition::A1> b1;                                                                                            \
    TBuf<TPosition::A2> ba;                                                                                            \
    TBuf<TPosition::B2> bb;                                                                                            \
    TBuf<TPosition::CO1> bc;                                                                                           \
    pipe.InitBuffer(b1, 65536);                                                                                        \
    pipe.InitBuffer(ba, 65536);                                                                                        \
    pipe.InitBuffer(bb, 65536);                                                                                        \
    pipe.InitBuffer(bc, 131072);                                                                                       \
    [[maybe_unused]] auto l = b1.Get<half>(), a = ba.Get<half>(), b = bb.Get<half>();                                  \
    [[maybe_unused]] auto c = bc.Get<float>();                                                                         \
    GlobalTensor<half> g;                                                                                              \
    g.SetGlobalBuffer((__gm__ half*)in);                                                                               \
    [[maybe_unused]] GlobalTensor<float> o;                                                                            \
    o.SetGlobalBuffer((__gm__ float*)out);                                                                             \
    DataCopy(l, g, 1024);                                                                                              \
    SetFlag<HardEvent::MTE2_MTE1>(7);                                                                                  \
    WaitFlag<HardEvent::MTE2_MTE1>(7)
#define LOADED                                                     \
    LoadData(a, l, LoadData2DParams(0, 2, 1, 0, 0, false, 0));     \
    LoadData(b, l, LoadData2DParams(0, 2, 1, 0, 0, false, 0));     \
    SetFlag<HardEvent::MTE1_M>(7);                                 \
    WaitFlag<HardEvent::MTE1_M>(7)

CUBE_CASE(misaligned_l0a, 1024) { TENSORS; LoadData(a[16], l, LoadData2DParams(0, 1, 1, 0, 0, false, 0)); }  // misaligned_l0a
CUBE_CASE(misaligned_l0c, 1024) { TENSORS; LOADED; Mmad(c[16], a, b, MmadParams(16, 16, 16, 0, false, true)); }  // misaligned_l0c
CUBE_CASE(transpose_float, 1024) { TENSORS; auto f = l.ReinterpretCast<float>(); LoadData(a.ReinterpretCast<float>(), f, LoadData2DParams(0, 1, 1, 0, 0, true, 0)); }  // transpose_float
CUBE_CASE(load_into_l1, 1024) { TENSORS; LoadData(l[2048], l, LoadData2DParams(0, 1, 1, 0, 0, false, 0)); }  // load_into_l1
CUBE_CASE(load_outside_l0, 1024) { TENSORS; LoadData(a[32768 - 256], l, LoadData2DParams(0, 2, 1, 0, 0, false, 0)); }  // load_outside_l0
CUBE_CASE(mmad_shape, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(4096, 16, 16, 0, false, true)); }  // mmad_shape
CUBE_CASE(mmad_never_loaded, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(16, 16, 48, 0, false, true)); }  // mmad_never_loaded
CUBE_CASE(mmad_no_start, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, false)); }  // mmad_no_start
CUBE_CASE(fixpipe_rows_beyond, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(10, 16, 16, 0, false, true)); SetFlag<HardEvent::M_FIX>(0); WaitFlag<HardEvent::M_FIX>(0); Fixpipe(o, c, FixpipeParamsV220(16, 16, 16, 16, false)); }  // fixpipe_rows_beyond
CUBE_CASE(fixpipe_mode, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true)); SetFlag<HardEvent::M_FIX>(0); WaitFlag<HardEvent::M_FIX>(0); FixpipeParamsV220 p(16, 16, 16, 16, false); p.quantPre = QuantMode_t::F322F16; Fixpipe(o, c, p); }  // fixpipe_mode
CUBE_CASE(fixpipe_out_of_range, 64) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true)); SetFlag<HardEvent::M_FIX>(0); WaitFlag<HardEvent::M_FIX>(0); Fixpipe(o, c, FixpipeParamsV220(16, 16, 16, 16, false)); }  // fixpipe_out_of_range
CUBE_CASE(unit_flag_alone, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true)); FixpipeParamsV220 p(16, 16, 16, 16, false); p.unitFlag = 3; Fixpipe(o, c, p); }  // unit_flag_alone
CUBE_CASE(nd2nz_field, 1024) { TENSORS; Nd2NzParams p(1, 4, 16, 0, 16, 16, 1, 0); p.srcDValue = 65536; DataCopy(l, g, p); }  // nd2nz_field
CUBE_CASE(nd2nz_range, 1024) { TENSORS; DataCopy(l[4096], g, Nd2NzParams(1, 16385, 16, 0, 16, 16, 1, 0)); }  // nd2nz_range
CUBE_CASE(nd2nz_outside, 1024) { TENSORS; DataCopy(l[4096], g, Nd2NzParams(1, 80, 16, 0, 16, 80, 1, 0)); }  // nd2nz_outside
CUBE_CASE(capacity_l0, 64) { TPipe p; TBuf<TPosition::A2> t; p.InitBuffer(t, 65568); }  // capacity_l0
CUBE_CASE(missing_m_fix, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true)); Fixpipe(o, c, FixpipeParamsV220(16, 16, 16, 16, false)); }  // missing_m_fix
CUBE_CASE(missing_mte1_m, 1024) { TENSORS; LoadData(a, l, LoadData2DParams(0, 2, 1, 0, 0, false, 0)); Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true)); }  // missing_mte1_m
CUBE_CASE(small_mmad_barrier, 1024) { TENSORS; LOADED; Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, true)); Mmad(c, a, b, MmadParams(16, 16, 16, 0, false, false)); }  // small_mmad_barrier
CUBE_CASE(ub_on_cube, 64) { TENSORS; LocalTensor<half> t(TPosition::VECIN, 0, 256); DataCopy(t, g, 256); }  // ub_on_cube
