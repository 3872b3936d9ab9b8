// Parameter structs of the cube chain (field and constructor order: CANN 8.1.RC1 public headers).
#pragma once
#include "moec_cpu/enums.h"
#include "moec_cpu/field.h"

namespace AscendC {

using moec_cpu::U16;
using moec_cpu::U32;
using moec_cpu::U8;

struct LoadData2DParams {
    LoadData2DParams() {}
    LoadData2DParams(U16 startIndexIn, U8 repeatTimesIn, U16 srcStrideIn, U8 sidIn,
        U16 dstGapIn, bool ifTransposeIn, U8 addrModeIn)
        : startIndex(startIndexIn), dstGap(dstGapIn), srcStride(srcStrideIn), ifTranspose(ifTransposeIn),
          repeatTimes(repeatTimesIn), sid(sidIn), addrMode(addrModeIn)
    {}
    U16 startIndex = 0;
    U16 dstGap = 0;
    U16 srcStride = 0;
    bool ifTranspose = false;
    U8 repeatTimes = 0;
    U8 sid = 0;
    U8 addrMode = 0;
};

using LoadData2dParams = LoadData2DParams;

template <typename T>
struct LoadData3DParamsV2 {
    LoadData3DParamsV2() {}
    LoadData3DParamsV2(const uint8_t padListIn[PAD_SIZE], U16 l1HIn, U16 l1WIn,
        U16 channelSizeIn, U16 kExtensionIn, U16 mExtensionIn, U16 kStartPtIn,
        U16 mStartPtIn, U8 strideWIn, U8 strideHIn, U8 filterWIn, U8 filterHIn,
        U8 dilationFilterWIn, U8 dilationFilterHIn, bool enTransposeIn, bool enSmallKIn, T padValueIn)
        : l1H(l1HIn), l1W(l1WIn), channelSize(channelSizeIn), kExtension(kExtensionIn),
          mExtension(mExtensionIn), kStartPt(kStartPtIn), mStartPt(mStartPtIn), strideW(strideWIn),
          strideH(strideHIn), filterW(filterWIn), filterH(filterHIn), dilationFilterW(dilationFilterWIn),
          dilationFilterH(dilationFilterHIn), enTranspose(enTransposeIn), enSmallK(enSmallKIn),
          padValue(padValueIn)
    {
        for (int i = 0; i < PAD_SIZE; ++i) padList[i] = padListIn[i];
    }
    LoadData3DParamsV2(const uint8_t padListIn[PAD_SIZE], U16 l1HIn, U16 l1WIn,
        U16 channelSizeIn, U16 kExtensionIn, U16 mExtensionIn, U16 kStartPtIn,
        U16 mStartPtIn, U8 strideWIn, U8 strideHIn, U8 filterWIn, U8 filterHIn,
        U8 dilationFilterWIn, U8 dilationFilterHIn, bool enTransposeIn, bool enSmallKIn,
        T padValueIn, bool filterSizeWIn, bool filterSizeHIn, bool fMatrixCtrlIn)
        : l1H(l1HIn), l1W(l1WIn), channelSize(channelSizeIn), kExtension(kExtensionIn),
          mExtension(mExtensionIn), kStartPt(kStartPtIn), mStartPt(mStartPtIn), strideW(strideWIn),
          strideH(strideHIn), filterW(filterWIn), filterH(filterHIn), dilationFilterW(dilationFilterWIn),
          dilationFilterH(dilationFilterHIn), enTranspose(enTransposeIn), enSmallK(enSmallKIn),
          padValue(padValueIn), filterSizeW(filterSizeWIn), filterSizeH(filterSizeHIn),
          fMatrixCtrl(fMatrixCtrlIn)
    {
        for (int i = 0; i < PAD_SIZE; ++i) padList[i] = padListIn[i];
    }
    uint8_t padList[PAD_SIZE] = {0};
    U16 l1H = 0;
    U16 l1W = 0;
    U16 channelSize = 0;
    U16 kExtension = 0;
    U16 mExtension = 0;
    U16 kStartPt = 0;
    U16 mStartPt = 0;
    U8 strideW = 1;
    U8 strideH = 1;
    U8 filterW = 1;
    U8 filterH = 1;
    U8 dilationFilterW = 1;
    U8 dilationFilterH = 1;
    bool enTranspose = false;
    bool enSmallK = false;
    T padValue = T(0);
    bool filterSizeW = false;
    bool filterSizeH = false;
    bool fMatrixCtrl = false;
};

struct LoadData2dTransposeParams {
    LoadData2dTransposeParams() {}
    LoadData2dTransposeParams(U16 startIndexIn, U8 repeatTimesIn, U16 srcStrideIn,
        U16 dstGapIn, U16 dstFracGapIn, U8 addrModeIn)
        : startIndex(startIndexIn), repeatTimes(repeatTimesIn), srcStride(srcStrideIn), dstGap(dstGapIn),
          dstFracGap(dstFracGapIn), addrMode(addrModeIn)
    {}
    LoadData2dTransposeParams(U16 startIndexIn, U8 repeatTimesIn, U16 srcStrideIn,
        U16 dstGapIn, U16 dstFracGapIn)
        : startIndex(startIndexIn), repeatTimes(repeatTimesIn), srcStride(srcStrideIn), dstGap(dstGapIn),
          dstFracGap(dstFracGapIn)
    {}
    U16 startIndex = 0;
    U8 repeatTimes = 0;
    U16 srcStride = 0;
    U16 dstGap = 0;
    U16 dstFracGap = 0;
    U8 addrMode = 0;
};

struct LoadData2dTransposeParamsV2 {
    LoadData2dTransposeParamsV2() {}
    LoadData2dTransposeParamsV2(U16 startIndexIn, U8 repeatTimesIn, U16 srcStrideIn,
        U16 dstGapIn, U16 dstFracGapIn, U16 srcFracGapIn)
        : startIndex(startIndexIn), repeatTimes(repeatTimesIn), srcStride(srcStrideIn), dstGap(dstGapIn),
          dstFracGap(dstFracGapIn), srcFracGap(srcFracGapIn)
    {}
    LoadData2dTransposeParamsV2(U16 startIndexIn, U8 repeatTimesIn, U16 srcStrideIn,
        U16 dstGapIn, U16 dstFracGapIn, U16 srcFracGapIn, U8 addrModeIn)
        : startIndex(startIndexIn), repeatTimes(repeatTimesIn), srcStride(srcStrideIn), dstGap(dstGapIn),
          dstFracGap(dstFracGapIn), srcFracGap(srcFracGapIn), addrMode(addrModeIn)
    {}
    U16 startIndex = 0;
    U8 repeatTimes = 0;
    U16 srcStride = 0;
    U16 dstGap = 0;
    U16 dstFracGap = 0;
    U16 srcFracGap = 0;
    U8 addrMode = 0;
};

struct MmadParams {
    MmadParams() {}
    MmadParams(U16 mIn, U16 nIn, U16 kIn, bool isBiasIn, int32_t fmOffsetIn, bool enSsparseIn,
        bool enWinogradAIn, bool enWinogradBIn)
        : m(mIn), n(nIn), k(kIn), isBias(isBiasIn), fmOffset(fmOffsetIn), enSsparse(enSsparseIn),
          enWinogradA(enWinogradAIn), enWinogradB(enWinogradBIn)
    {}
    MmadParams(U16 mIn, U16 nIn, U16 kIn, U8 unitFlagIn, bool cmatrixSourceIn,
        bool cmatrixInitValIn)
        : m(mIn), n(nIn), k(kIn), unitFlag(unitFlagIn), cmatrixSource(cmatrixSourceIn),
          cmatrixInitVal(cmatrixInitValIn)
    {}
    U16 m = 0;
    U16 n = 0;
    U16 k = 0;
    bool isBias = false;
    int32_t fmOffset = 0;
    bool enSsparse = false;
    bool enWinogradA = false;
    bool enWinogradB = false;
    U8 unitFlag = 0;
    bool kDirectionAlign = false;
    bool cmatrixSource = false;
    bool cmatrixInitVal = true;
};

template <typename T>
struct InitConstValueParams {
    InitConstValueParams() {}
    InitConstValueParams(U16 repeatTimesIn, U16 blockNumIn, U16 dstGapIn, T initValueIn)
        : repeatTimes(repeatTimesIn), blockNum(blockNumIn), dstGap(dstGapIn), initValue(initValueIn)
    {}
    InitConstValueParams(U16 repeatTimesIn, T initValueIn)
        : repeatTimes(repeatTimesIn), initValue(initValueIn)
    {}
    U16 repeatTimes = 0;
    U16 blockNum = 0;
    U16 dstGap = 0;
    T initValue = T(0);
};

struct LoadDataRepeatParam {
    LoadDataRepeatParam() {}
    LoadDataRepeatParam(U16 repeatStrideIn, U8 repeatTimeIn, U8 repeatModeIn)
        : repeatStride(repeatStrideIn), repeatTime(repeatTimeIn), repeatMode(repeatModeIn)
    {}
    U16 repeatStride = 0;
    U8 repeatTime = 1;
    U8 repeatMode = 0;
    U8 reserved = 0;
};

struct FixpipeConfig {
    CO2Layout format;
};
inline constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ};
inline constexpr FixpipeConfig CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR};
inline constexpr FixpipeConfig CFG_COLUMN_MAJOR = {CO2Layout::COLUMN_MAJOR};

struct IsResetLoad3dConfig {
    bool isSetFMatrix;
    bool isSetPadding;
};
constexpr IsResetLoad3dConfig IS_RESER_LOAD3D_DEFAULT_CONFIG = {true, true};

struct FixpipeParamsV220 {
    FixpipeParamsV220() {}
    FixpipeParamsV220(U16 nSizeIn, U16 mSizeIn, U16 srcStrideIn, U32 dstStrideIn,
        bool reluEnIn)
        : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn), reluEn(reluEnIn)
    {}
    FixpipeParamsV220(U16 nSizeIn, U16 mSizeIn, U16 srcStrideIn, U32 dstStrideIn,
        bool reluEnIn, QuantMode_t quantPreIn, int64_t deqScalarIn, U16 ndNumIn, U16 srcNdStrideIn,
        U16 dstNdStrideIn, U8 unitFlagIn)
        : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn), quantPre(quantPreIn),
          deqScalar(deqScalarIn), ndNum(ndNumIn), srcNdStride(srcNdStrideIn), dstNdStride(dstNdStrideIn),
          reluEn(reluEnIn), unitFlag(unitFlagIn)
    {}
    FixpipeParamsV220(U16 nSizeIn, U16 mSizeIn, U16 srcStrideIn, U32 dstStrideIn,
        bool reluEnIn, QuantMode_t quantPreIn, int64_t deqScalarIn, U16 ndNumIn, U16 srcNdStrideIn,
        U16 dstNdStrideIn, U8 unitFlagIn, bool isChannelSplitIn)
        : nSize(nSizeIn), mSize(mSizeIn), srcStride(srcStrideIn), dstStride(dstStrideIn), quantPre(quantPreIn),
          deqScalar(deqScalarIn), ndNum(ndNumIn), srcNdStride(srcNdStrideIn), dstNdStride(dstNdStrideIn),
          reluEn(reluEnIn), unitFlag(unitFlagIn), isChannelSplit(isChannelSplitIn)
    {}
    U16 nSize = 0;
    U16 mSize = 0;
    U16 srcStride = 0;
    U32 dstStride = 0;
    QuantMode_t quantPre = QuantMode_t::NoQuant;
    uint64_t deqScalar = 0;
    U16 ndNum = 1;
    U16 srcNdStride = 0;
    U16 dstNdStride = 0;
    bool reluEn = false;
    U8 unitFlag = 0;
    bool isChannelSplit = false;
};

struct DataCopyCO12DstParams {
    DataCopyCO12DstParams() {}
    DataCopyCO12DstParams(U16 nSizeIn, U16 mSizeIn, U32 dstStrideIn, U16 srcStrideIn,
        QuantMode_t quantPreIn, U8 reluPreIn, bool channelSplitIn, bool nz2ndEnIn)
        : nSize(nSizeIn), mSize(mSizeIn), dstStride(dstStrideIn), srcStride(srcStrideIn), quantPre(quantPreIn),
          reluPre(reluPreIn), channelSplit(channelSplitIn), nz2ndEn(nz2ndEnIn)
    {}
    U8 sid = 0;
    U16 nSize = 0;
    U16 mSize = 0;
    U32 dstStride = DEFAULT_DATA_COPY_STRIDE;
    U16 srcStride = DEFAULT_DATA_COPY_STRIDE;
    U8 unitFlag = 0;
    U8 clipReluPre = 0;
    U8 eltWiseOp = 0;
    QuantMode_t quantPre = QuantMode_t::NoQuant;
    U8 reluPre = 0;
    bool channelSplit = false;
    bool nz2ndEn = false;
};

}  // namespace AscendC
