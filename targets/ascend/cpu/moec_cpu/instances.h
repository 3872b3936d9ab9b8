// The instances of templates that kernels use most. Kernels that link the model declare them (MOEC_CPU_INSTANCE is
// `extern template`), and runtime/instances.cpp compiles them, once (`template`); others are compiled where they are used.

namespace AscendC {

using moec_cpu::Field;
using moec_cpu::Site;

#define MOEC_UNARY(NAME, T) MOEC_CPU_INSTANCE void NAME<T>(const LocalTensor<T>&, const LocalTensor<T>&, const int32_t&, Site);
#define MOEC_SCALAR(NAME, T) \
    MOEC_CPU_INSTANCE void NAME<T, true>(const LocalTensor<T>&, const LocalTensor<T>&, const T&, const int32_t&, Site);
#define MOEC_BINARY(NAME, T) \
    MOEC_CPU_INSTANCE void NAME<T>(const LocalTensor<T>&, const LocalTensor<T>&, const LocalTensor<T>&, const int32_t&, Site);
#define MOEC_REPEATED(NAME, T)                                                                                          \
    MOEC_CPU_INSTANCE void NAME<T, true>(const LocalTensor<T>&, const LocalTensor<T>&, const LocalTensor<T>&, uint64_t, \
                                         Field<uint8_t>, const BinaryRepeatParams&, Site);
#define MOEC_CAST(TO, FROM) \
    MOEC_CPU_INSTANCE void Cast<TO, FROM>(const LocalTensor<TO>&, const LocalTensor<FROM>&, const RoundMode&, uint32_t, Site);
#define MOEC_FOLD(NAME) \
    MOEC_CPU_INSTANCE void NAME<float, true>(const LocalTensor<float>&, const LocalTensor<float>&, int32_t, int32_t, int32_t, int32_t, int32_t, ReduceOrder, Site);
#define MOEC_BUFFER(POSITION, T) \
    MOEC_CPU_INSTANCE LocalTensor<T> TBuf<TPosition::POSITION>::GetWithOffset<T>(uint32_t, uint32_t, Site);
#define MOEC_FLAG(EVENT)                                                    \
    MOEC_CPU_INSTANCE void SetFlag<HardEvent::EVENT>(int32_t, Site);       \
    MOEC_CPU_INSTANCE void WaitFlag<HardEvent::EVENT>(int32_t, Site);

#define MOEC_MOVED(T)                                                                                                      \
    MOEC_CPU_INSTANCE void DataCopyPad<T>(const GlobalTensor<T>&, const LocalTensor<T>&, const DataCopyExtParams&, Site);  \
    MOEC_CPU_INSTANCE void DataCopyPad<T>(const LocalTensor<T>&, const GlobalTensor<T>&, const DataCopyExtParams&,         \
                                          const DataCopyPadExtParams<T>&, Site);                                           \
    MOEC_BUFFER(VECCALC, T)
MOEC_MOVED(float)
MOEC_MOVED(half)
MOEC_MOVED(bfloat16_t)
MOEC_MOVED(int32_t)
MOEC_MOVED(int64_t)
MOEC_MOVED(uint8_t)

#define MOEC_MULTIPLIED(T)                                                                                                 \
    MOEC_CPU_INSTANCE void DataCopy<T>(const LocalTensor<T>&, const GlobalTensor<T>&, const Nd2NzParams&, Site);           \
    MOEC_CPU_INSTANCE void LoadData<T>(const LocalTensor<T>&, const LocalTensor<T>&, const LoadData2DParams&, Site);       \
    MOEC_CPU_INSTANCE void Mmad<float, T, T>(const LocalTensor<float>&, const LocalTensor<T>&, const LocalTensor<T>&,      \
                                             const MmadParams&, Site);                                                     \
    MOEC_CPU_INSTANCE void Fixpipe<T, float, CFG_ROW_MAJOR>(const GlobalTensor<T>&, const LocalTensor<float>&,             \
                                                            const FixpipeParamsV220&, Site);                               \
    MOEC_BUFFER(A1, T)                                                                                                     \
    MOEC_BUFFER(A2, T)                                                                                                     \
    MOEC_BUFFER(B2, T)
MOEC_MULTIPLIED(float)
MOEC_MULTIPLIED(half)
MOEC_MULTIPLIED(bfloat16_t)
MOEC_BUFFER(CO1, float)
MOEC_CPU_INSTANCE void LoadDataWithTranspose<float>(const LocalTensor<float>&, const LocalTensor<float>&,
                                                    const LoadData2dTransposeParams&, Site);

MOEC_BINARY(Add, float)
MOEC_BINARY(Sub, float)
MOEC_BINARY(Mul, float)
MOEC_BINARY(Div, float)
MOEC_BINARY(Max, float)
MOEC_BINARY(Add, int32_t)
MOEC_BINARY(Sub, int32_t)
MOEC_BINARY(And, uint16_t)
MOEC_BINARY(Or, uint16_t)
MOEC_REPEATED(Add, float)
MOEC_REPEATED(Sub, float)
MOEC_REPEATED(Mul, float)
MOEC_REPEATED(Div, float)
MOEC_REPEATED(Min, float)
MOEC_REPEATED(Max, float)
MOEC_REPEATED(Add, int32_t)
MOEC_UNARY(Exp, float)
MOEC_UNARY(Abs, float)
MOEC_UNARY(Sqrt, float)
MOEC_SCALAR(Adds, float)
MOEC_SCALAR(Muls, float)
MOEC_SCALAR(Mins, float)
MOEC_SCALAR(Maxs, float)
MOEC_SCALAR(Adds, int32_t)
MOEC_SCALAR(Muls, int32_t)
MOEC_SCALAR(Mins, int32_t)
MOEC_SCALAR(ShiftLeft, int32_t)
MOEC_SCALAR(ShiftRight, int32_t)
MOEC_CAST(float, int32_t)
MOEC_CAST(int32_t, float)
MOEC_CAST(float, half)
MOEC_CAST(half, float)
MOEC_CAST(float, bfloat16_t)
MOEC_CAST(bfloat16_t, float)
MOEC_CAST(int64_t, int32_t)
MOEC_CAST(half, uint8_t)
MOEC_FOLD(WholeReduceMax)

MOEC_CPU_INSTANCE void WholeReduceSum<float, true>(const LocalTensor<float>&, const LocalTensor<float>&, int32_t, int32_t, int32_t, int32_t, int32_t, Site);
MOEC_CPU_INSTANCE void Axpy<float, float>(const LocalTensor<float>&, const LocalTensor<float>&, const float&, const int32_t&, Site);
MOEC_CPU_INSTANCE void Copy<float, true>(const LocalTensor<float>&, const LocalTensor<float>&, uint64_t, Field<uint8_t>, const CopyRepeatParams&, Site);
MOEC_CPU_INSTANCE void Brcb<float>(const LocalTensor<float>&, const LocalTensor<float>&, Field<uint8_t>, const BrcbRepeatParams&, Site);
MOEC_CPU_INSTANCE void Duplicate<float>(const LocalTensor<float>&, const float&, const int32_t&, Site);
MOEC_CPU_INSTANCE void Duplicate<int32_t>(const LocalTensor<int32_t>&, const int32_t&, const int32_t&, Site);
MOEC_CPU_INSTANCE void Duplicate<bfloat16_t>(const LocalTensor<bfloat16_t>&, const bfloat16_t&, const int32_t&, Site);
MOEC_CPU_INSTANCE void ArithProgression<float>(const LocalTensor<float>&, float, float, int32_t, Site);
MOEC_CPU_INSTANCE void ArithProgression<int32_t>(const LocalTensor<int32_t>&, int32_t, int32_t, int32_t, Site);
MOEC_CPU_INSTANCE void Compare<float, uint8_t>(const LocalTensor<uint8_t>&, const LocalTensor<float>&, const LocalTensor<float>&, CMPMODE, uint32_t, Site);
MOEC_CPU_INSTANCE void CompareScalar<float, uint8_t>(const LocalTensor<uint8_t>&, const LocalTensor<float>&, float, CMPMODE, uint32_t, Site);
MOEC_CPU_INSTANCE void Select<float, uint8_t>(const LocalTensor<float>&, const LocalTensor<uint8_t>&, const LocalTensor<float>&, float, SELMODE, uint32_t, Site);
MOEC_CPU_INSTANCE void Select<float, uint8_t>(const LocalTensor<float>&, const LocalTensor<uint8_t>&, const LocalTensor<float>&, const LocalTensor<float>&, SELMODE, uint32_t, Site);
MOEC_CPU_INSTANCE void Gather<float>(const LocalTensor<float>&, const LocalTensor<float>&, const LocalTensor<uint32_t>&, uint32_t, uint32_t, Site);
MOEC_CPU_INSTANCE void Gather<uint32_t>(const LocalTensor<uint32_t>&, const LocalTensor<uint32_t>&, const LocalTensor<uint32_t>&, uint32_t, uint32_t, Site);
MOEC_CPU_INSTANCE void GatherMask<float>(const LocalTensor<float>&, const LocalTensor<float>&, uint8_t, bool, uint32_t, const GatherMaskParams&, uint64_t&, Site);
MOEC_CPU_INSTANCE void GatherMask<int32_t>(const LocalTensor<int32_t>&, const LocalTensor<int32_t>&, uint8_t, bool, uint32_t, const GatherMaskParams&, uint64_t&, Site);
MOEC_CPU_INSTANCE void Sort32<float>(const LocalTensor<float>&, const LocalTensor<float>&, const LocalTensor<uint32_t>&, int32_t, Site);

MOEC_FLAG(MTE2_V)
MOEC_FLAG(V_MTE2)
MOEC_FLAG(MTE3_V)
MOEC_FLAG(V_MTE3)
MOEC_FLAG(MTE2_MTE1)
MOEC_FLAG(MTE1_MTE2)
MOEC_FLAG(MTE1_M)
MOEC_FLAG(M_MTE1)
MOEC_FLAG(M_FIX)
MOEC_FLAG(FIX_M)
MOEC_FLAG(MTE3_MTE2)
MOEC_FLAG(MTE2_MTE3)
MOEC_FLAG(S_MTE2)
MOEC_FLAG(MTE2_S)
MOEC_FLAG(S_MTE3)
MOEC_FLAG(MTE3_S)

}  // namespace AscendC
