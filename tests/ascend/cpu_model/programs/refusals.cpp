// One case a refusal of vector cores; the line that must be named ends in "// <case>".
#include "harness.h"

#define TENSORS                                                       \
    Bench b(in, out);                                                 \
    [[maybe_unused]] auto x = b.at<float>(0, 1024), y = b.at<float>(4096, 1024), z = b.at<float>(8192, 1024); \
    Duplicate(x, 1.0f, 1024);                                         \
    Duplicate(y, 1.0f, 1024);                                         \
    GlobalTensor<float> g;                                            \
    g.SetGlobalBuffer((__gm__ float*)in);                             \
    [[maybe_unused]] GlobalTensor<float> o;                           \
    o.SetGlobalBuffer((__gm__ float*)out)
#define READY                        \
    SetFlag<HardEvent::V_MTE3>(7);   \
    WaitFlag<HardEvent::V_MTE3>(7);  \
    SetFlag<HardEvent::V_MTE2>(7);   \
    WaitFlag<HardEvent::V_MTE2>(7)

VECTOR_CASE(misaligned_copy, 64) { TENSORS; READY; DataCopy(x[1], g, 8); }  // misaligned_copy
VECTOR_CASE(ragged_copy, 64) { TENSORS; READY; DataCopy(x, g, 5); }  // ragged_copy
VECTOR_CASE(misaligned_vector, 64) { TENSORS; Add(z, x[2], y, 8); }  // misaligned_vector
VECTOR_CASE(repeat_too_large, 64) { TENSORS; Add(z, x, y, (uint64_t)64, 256, BinaryRepeatParams(1, 1, 1, 8, 8, 8)); }  // repeat_too_large
VECTOR_CASE(stride_too_large, 64) { TENSORS; Add(z, x, y, (uint64_t)64, 1, BinaryRepeatParams(1, 1, 1, 300, 8, 8)); }  // stride_too_large
VECTOR_CASE(mask_too_large, 64) { TENSORS; Add(z, x, y, (uint64_t)65, 1, BinaryRepeatParams(1, 1, 1, 8, 8, 8)); }  // mask_too_large
VECTOR_CASE(mask_empty, 64) { TENSORS; Add(z, x, y, (uint64_t)0, 1, BinaryRepeatParams(1, 1, 1, 8, 8, 8)); }  // mask_empty
VECTOR_CASE(overlap_inside, 64) { TENSORS; Add(x[8], x, y, 64); }  // overlap_inside
VECTOR_CASE(overlap_across, 64) { TENSORS; Adds(x[64], x, 1.0f, (uint64_t)64, 2, UnaryRepeatParams(1, 1, 8, 8)); }  // overlap_across
VECTOR_CASE(beyond_view, 64) { TENSORS; Adds(b.at<float>(16384, 64), x, 1.0f, 128); }  // beyond_view
VECTOR_CASE(never_written, 64) { TENSORS; Adds(z, z[512], 1.0f, 64); }  // never_written
VECTOR_CASE(block_count, 64) { TENSORS; READY; DataCopy(x, g, DataCopyParams(4096, 1, 0, 0)); }  // block_count
VECTOR_CASE(field_16_bits, 64) { TENSORS; READY; DataCopy(x, g, DataCopyParams(1, 65536, 0, 0)); }  // field_16_bits
VECTOR_CASE(pad_too_long, 64) { TENSORS; READY; DataCopyPad(x, g, DataCopyExtParams(1, 4, 0, 0, 0), DataCopyPadExtParams<float>(true, 0, 9, 0.0f)); }  // pad_too_long
VECTOR_CASE(gm_out_of_range, 64) { TENSORS; READY; DataCopy(x, g, 16); }  // gm_out_of_range
VECTOR_CASE(gm_no_memory, 64) { TENSORS; READY; g.SetGlobalBuffer((__gm__ float*)4096); DataCopy(x, g, 8); }  // gm_no_memory
VECTOR_CASE(gm_bound, 64) { TENSORS; READY; o.SetGlobalBuffer((__gm__ float*)out, 4); DataCopy(o, x, 8); }  // gm_bound
VECTOR_CASE(gm_never_written, 64) { TENSORS; READY; DataCopyPad(x, g, DataCopyExtParams(1, 32, 0, 0, 0), DataCopyPadExtParams<float>()); SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0); Adds(x, x, 1.0f, 8); }  // gm_never_written
VECTOR_CASE(ragged_not_padded, 64) { TENSORS; READY; DataCopyPad(z, o, DataCopyExtParams(1, 12, 0, 0, 0), DataCopyPadExtParams<float>()); SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0); Adds(z, z, 1.0f, 8); }  // ragged_not_padded
VECTOR_CASE(raw_pointer, 64) { TENSORS; READY; volatile float* p = (volatile float*)8; float v = *p; Duplicate(x, v, 8); }
VECTOR_CASE(divide_by_zero, 64) { TENSORS; b.store(x, 8 / (int)(GetBlockIdx())); }
VECTOR_CASE(set_twice, 64) { TENSORS; SetFlag<HardEvent::V_MTE3>(0); SetFlag<HardEvent::V_MTE3>(0); }  // set_twice
VECTOR_CASE(wait_unset, 64) { TENSORS; WaitFlag<HardEvent::V_MTE3>(1); }  // wait_unset
VECTOR_CASE(event_range, 64) { TENSORS; SetFlag<HardEvent::V_MTE3>(8); }  // event_range
VECTOR_CASE(flag_left, 64) { TENSORS; SetFlag<HardEvent::V_MTE3>(0); }  // flag_left
VECTOR_CASE(events_exhausted, 64) { TENSORS; for (int i = 0; i < 9; ++i) b.pipe.AllocEventID<HardEvent::V_MTE3>(); }  // events_exhausted
VECTOR_CASE(capacity, 64) { TPipe p; TBuf<TPosition::VECCALC> t; p.InitBuffer(t, 192 * 1024); }  // capacity
VECTOR_CASE(static_outside, 64) { LocalTensor<float> t(TPosition::VECIN, 190 * 1024, 1024); }  // static_outside
VECTOR_CASE(too_many_blocks, 64) { TPipe p; TBuf<TPosition::VECCALC> t; for (int i = 0; i < 65; ++i) p.InitBuffer(t, 32); }  // too_many_blocks
VECTOR_CASE(second_pipe, 64) { TENSORS; TPipe p; }  // second_pipe
VECTOR_CASE(view_outside, 64) { TENSORS; b.ub.GetWithOffset<float>(8, 190 * 1024); }  // view_outside
VECTOR_CASE(cube_on_vector, 64) { TENSORS; LocalTensor<half> h(TPosition::A2, 0, 256), l(TPosition::A1, 0, 256); LoadData(h, l, LoadData2DParams(0, 1, 1, 0, 0, false, 0)); }  // cube_on_vector
VECTOR_CASE(round_mode, 64) { TENSORS; Cast(z.ReinterpretCast<bfloat16_t>(), x, RoundMode::CAST_ODD, 64); }  // round_mode
VECTOR_CASE(compare_ragged, 64) { TENSORS; Compare(z.ReinterpretCast<uint8_t>(), x, y, CMPMODE::LT, 60); }  // compare_ragged
VECTOR_CASE(compare_int32, 64) { TENSORS; auto i = x.ReinterpretCast<int32_t>(); Compare(z.ReinterpretCast<uint8_t>(), i, i, CMPMODE::LT, 64); }  // compare_int32
VECTOR_CASE(gather_misaligned, 64) { TENSORS; auto i = y.ReinterpretCast<uint32_t>(); auto s = y.ReinterpretCast<int32_t>(); Duplicate(s, 2, 64); Gather(z, x, i, 0u, 8u); }  // gather_misaligned
VECTOR_CASE(gather_outside, 64) { TENSORS; auto i = y.ReinterpretCast<uint32_t>(); auto s = y.ReinterpretCast<int32_t>(); Duplicate(s, 1 << 20, 64); Gather(z, x, i, 0u, 8u); }  // gather_outside
VECTOR_CASE(work_too_small, 64) { TENSORS; ReduceSum(z, x, b.at<float>(16384, 8), 1024); }  // work_too_small
VECTOR_CASE(merge_valid_bit, 64) { TENSORS; MrgSort4Info i; i.validBit = 5; MrgSort(z, MrgSortSrcList<float>(x, x, x, x), i); }  // merge_valid_bit
VECTOR_CASE(sort_overlap, 64) { TENSORS; auto i = y.ReinterpretCast<uint32_t>(); Sort32(x, x, i, 1); }  // sort_overlap
VECTOR_CASE(sort_misaligned, 64) { TENSORS; auto i = y.ReinterpretCast<uint32_t>(); Sort32(z[32], x, i, 1); }  // sort_misaligned
VECTOR_CASE(atomic_type, 64) { TENSORS; READY; SetAtomicAdd<half>(); DataCopy(o, x, 8); }  // atomic_type
VECTOR_CASE(deque_empty, 64) { TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 1, 64); q.DeQue<float>(); }  // deque_empty
VECTOR_CASE(queue_no_buffer, 64) { TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 1, 64); q.AllocTensor<float>(); q.AllocTensor<float>(); }  // queue_no_buffer
VECTOR_CASE(free_twice, 64) { TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 1, 64); auto t = q.AllocTensor<float>(); q.FreeTensor(t); q.FreeTensor(t); }  // free_twice
VECTOR_CASE(queue_full, 64) { TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 2, 64); auto t = q.AllocTensor<float>(); auto u = q.AllocTensor<float>(); q.EnQue(t); q.EnQue(u); }  // queue_full
VECTOR_CASE(sync_without_mix, 64) { SyncAll(); }  // sync_without_mix
VECTOR_CASE(trap, 64) { Trap(); }  // trap
VECTOR_CASE(endless, 64) { TENSORS; while (true) Adds(x, x, 1.0f, 8); }  // endless
VECTOR_CASE(exception, 64) { throw 1; }
CASE(core_deadlock, KERNEL_TYPE_MIX_AIV_1_0, 64, 2) { if (GetBlockIdx() == 0) SyncAll(); }  // core_deadlock
CASE(cross_deadlock, KERNEL_TYPE_MIX_AIC_1_2, 64, 1) { if ASCEND_IS_AIC { CrossCoreWaitFlag(3); } else if (GetSubBlockIdx() == 0) { CrossCoreSetFlag<2, PIPE_V>(3); } }  // cross_deadlock
CASE(cross_left, KERNEL_TYPE_MIX_AIC_1_2, 64, 1) { if ASCEND_IS_AIC { CrossCoreSetFlag<2, PIPE_FIX>(3); } }  // cross_left
CASE(cross_overflow, KERNEL_TYPE_MIX_AIC_1_2, 64, 1) { if ASCEND_IS_AIC { for (int i = 0; i < 16; ++i) CrossCoreSetFlag<2, PIPE_FIX>(3); } }  // cross_overflow
CASE(sync_too_many, KERNEL_TYPE_MIX_AIV_1_0, 64, 49) { SyncAll(); }  // sync_too_many
CASE(vector_on_cube, KERNEL_TYPE_MIX_AIC_1_2, 64, 1) { LocalTensor<float> t(TPosition::VECIN, 0, 8); Duplicate(t, 0.0f, 8); }  // vector_on_cube
CASE(block_dim_zero, KERNEL_TYPE_AIV_ONLY, 64, 0) {}
