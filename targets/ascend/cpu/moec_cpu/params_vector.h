// Parameter structs of vector instructions and copies (field and constructor order: CANN 8.1.RC1 public headers).
#pragma once
#include "moec_cpu/enums.h"
#include "moec_cpu/field.h"

namespace AscendC {

using moec_cpu::U16;
using moec_cpu::U32;
using moec_cpu::U8;

struct UnaryRepeatParams {
    UnaryRepeatParams() {}
    UnaryRepeatParams(U16 dstBlkStrideIn, U16 srcBlkStrideIn, U8 dstRepStrideIn,
        U8 srcRepStrideIn)
        : dstBlkStride(dstBlkStrideIn), srcBlkStride(srcBlkStrideIn), dstRepStride(dstRepStrideIn),
          srcRepStride(srcRepStrideIn)
    {}
    UnaryRepeatParams(U16 dstBlkStrideIn, U16 srcBlkStrideIn, U8 dstRepStrideIn,
        U8 srcRepStrideIn, bool halfBlockIn)
        : dstBlkStride(dstBlkStrideIn), srcBlkStride(srcBlkStrideIn), dstRepStride(dstRepStrideIn),
          srcRepStride(srcRepStrideIn), halfBlock(halfBlockIn)
    {}
    U32 blockNumber = DEFAULT_BLK_NUM;
    U16 dstBlkStride = DEFAULT_BLK_STRIDE;
    U16 srcBlkStride = DEFAULT_BLK_STRIDE;
    U8 dstRepStride = DEFAULT_REPEAT_STRIDE;
    U8 srcRepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
    bool halfBlock = false;
};

struct BinaryRepeatParams {
    BinaryRepeatParams() {}
    BinaryRepeatParams(U8 dstBlkStrideIn, U8 src0BlkStrideIn, U8 src1BlkStrideIn,
        U8 dstRepStrideIn, U8 src0RepStrideIn, U8 src1RepStrideIn)
        : dstBlkStride(dstBlkStrideIn), src0BlkStride(src0BlkStrideIn), src1BlkStride(src1BlkStrideIn),
          dstRepStride(dstRepStrideIn), src0RepStride(src0RepStrideIn), src1RepStride(src1RepStrideIn)
    {}
    U32 blockNumber = DEFAULT_BLK_NUM;
    U8 dstBlkStride = DEFAULT_BLK_STRIDE;
    U8 src0BlkStride = DEFAULT_BLK_STRIDE;
    U8 src1BlkStride = DEFAULT_BLK_STRIDE;
    U8 dstRepStride = DEFAULT_REPEAT_STRIDE;
    U8 src0RepStride = DEFAULT_REPEAT_STRIDE;
    U8 src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
};

struct BrcbRepeatParams {
    BrcbRepeatParams() {}
    BrcbRepeatParams(U16 dstBlkStrideIn, U16 dstRepStrideIn)
        : dstRepStride(dstRepStrideIn), dstBlkStride(dstBlkStrideIn)
    {}
    U32 blockNumber = DEFAULT_BLK_NUM;
    U16 dstRepStride = DEFAULT_REPEAT_STRIDE;
    U16 dstBlkStride = DEFAULT_BLK_STRIDE;
    U8 src0BlkStride = DEFAULT_BLK_STRIDE;
    U8 src1BlkStride = DEFAULT_BLK_STRIDE;
    U8 src0RepStride = DEFAULT_REPEAT_STRIDE;
    U8 src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
};

struct GatherRepeatParams {
    GatherRepeatParams() {}
    GatherRepeatParams(U8 dstBlkStrideIn, U8 dstRepStrideIn)
        : dstRepStride(dstRepStrideIn), dstBlkStride(dstBlkStrideIn)
    {}
    U32 blockNumber = DEFAULT_BLK_NUM;
    U16 dstRepStride = DEFAULT_REPEAT_STRIDE;
    U8 dstBlkStride = DEFAULT_BLK_STRIDE;
    U8 src0BlkStride = DEFAULT_BLK_STRIDE;
    U8 src1BlkStride = DEFAULT_BLK_STRIDE;
    U8 src0RepStride = DEFAULT_REPEAT_STRIDE;
    U8 src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
};

struct GatherMaskParams {
    GatherMaskParams() {}
    GatherMaskParams(U8 src0BlockStrideIn, U16 repeatTimesIn, U16 src0RepeatStrideIn,
        U8 src1RepeatStrideIn)
        : src0BlockStride(src0BlockStrideIn), repeatTimes(repeatTimesIn), src0RepeatStride(src0RepeatStrideIn),
          src1RepeatStride(src1RepeatStrideIn)
    {}
    U8 src0BlockStride = DEFAULT_BLK_STRIDE;
    U16 repeatTimes = 0;
    U16 src0RepeatStride = DEFAULT_REPEAT_STRIDE;
    U8 src1RepeatStride = DEFAULT_REPEAT_STRIDE;
};

struct CopyRepeatParams {
    CopyRepeatParams() {}
    CopyRepeatParams(U16 dstStrideIn, U16 srcStrideIn, U16 dstRepeatSizeIn,
        U16 srcRepeatSizeIn)
        : dstStride(dstStrideIn), srcStride(srcStrideIn), dstRepeatSize(dstRepeatSizeIn),
          srcRepeatSize(srcRepeatSizeIn)
    {}
    U16 dstStride = DEFAULT_DATA_COPY_STRIDE;
    U16 srcStride = DEFAULT_DATA_COPY_STRIDE;
    U16 dstRepeatSize = DEFAULT_REPEAT_STRIDE;
    U16 srcRepeatSize = DEFAULT_REPEAT_STRIDE;
};

struct DataCopyParams {
    DataCopyParams() {}
    DataCopyParams(U16 blockCountIn, U16 blockLenIn, U16 srcStrideIn, U16 dstStrideIn)
        : blockCount(blockCountIn), blockLen(blockLenIn), srcStride(srcStrideIn), dstStride(dstStrideIn)
    {}
    U16 blockCount = DEFAULT_DATA_COPY_NBURST;
    U16 blockLen = 0;
    U16 srcStride = DEFAULT_DATA_COPY_STRIDE;
    U16 dstStride = DEFAULT_DATA_COPY_STRIDE;
};

struct DataCopyEnhancedParams {
    DataCopyEnhancedParams() {}
    DataCopyEnhancedParams(BlockMode blockModeIn, DeqScale deqScaleIn, uint64_t deqValueIn,
        U8 sidStoreModeIn, bool isReluIn, pad_t padModeIn, uint64_t padValueIn)
        : blockMode(blockModeIn), deqScale(deqScaleIn), deqValue(deqValueIn), sidStoreMode(sidStoreModeIn),
          isRelu(isReluIn), padMode(padModeIn), padValue(padValueIn)
    {}
    BlockMode blockMode = BlockMode::BLOCK_MODE_NORMAL;
    DeqScale deqScale = DeqScale::DEQ_NONE;
    uint64_t deqValue = 0;
    U8 sidStoreMode = 0;
    bool isRelu = false;
    pad_t padMode = pad_t::PAD_NONE;
    uint64_t padValue = 0;
    uint64_t deqTensorAddr = 0;
};

struct DataCopyPadParams {
    DataCopyPadParams() {}
    DataCopyPadParams(bool isPadIn, U8 leftPaddingIn, U8 rightPaddingIn, uint64_t paddingValueIn)
        : isPad(isPadIn), leftPadding(leftPaddingIn), rightPadding(rightPaddingIn), paddingValue(paddingValueIn)
    {}
    bool isPad = false;
    U8 leftPadding = 0;
    U8 rightPadding = 0;
    uint64_t paddingValue = 0;
};

struct DataCopyExtParams {
    DataCopyExtParams() {}
    DataCopyExtParams(U16 blockCountIn, U32 blockLenIn, U32 srcStrideIn, U32 dstStrideIn,
        U32 rsvIn)
        : blockCount(blockCountIn), blockLen(blockLenIn), srcStride(srcStrideIn), dstStride(dstStrideIn),
          rsv(rsvIn)
    {}
    U16 blockCount = DEFAULT_DATA_COPY_NBURST;
    U32 blockLen = 0;
    U32 srcStride = DEFAULT_DATA_COPY_STRIDE;
    U32 dstStride = DEFAULT_DATA_COPY_STRIDE;
    U32 rsv = 0;
};

template <typename T>
struct DataCopyPadExtParams {
    DataCopyPadExtParams() {}
    DataCopyPadExtParams(bool isPadIn, U8 leftPaddingIn, U8 rightPaddingIn, T paddingValueIn)
        : isPad(isPadIn), leftPadding(leftPaddingIn), rightPadding(rightPaddingIn), paddingValue(paddingValueIn)
    {}
    bool isPad = false;
    U8 leftPadding = 0;
    U8 rightPadding = 0;
    T paddingValue = T(0);
};

struct Nd2NzParams {
    Nd2NzParams() {}
    Nd2NzParams(U16 ndNumIn, U16 nValueIn, U16 dValueIn, U16 srcNdMatrixStrideIn,
        U16 srcDValueIn, U16 dstNzC0StrideIn, U16 dstNzNStrideIn, U16 dstNzMatrixStrideIn)
        : ndNum(ndNumIn), nValue(nValueIn), dValue(dValueIn), srcNdMatrixStride(srcNdMatrixStrideIn),
          srcDValue(srcDValueIn), dstNzC0Stride(dstNzC0StrideIn), dstNzNStride(dstNzNStrideIn),
          dstNzMatrixStride(dstNzMatrixStrideIn)
    {}
    U16 ndNum = 0;
    U16 nValue = 0;
    U16 dValue = 0;
    U16 srcNdMatrixStride = 0;
    U16 srcDValue = 0;
    U16 dstNzC0Stride = 0;
    U16 dstNzNStride = 0;
    U16 dstNzMatrixStride = 0;
};

struct Nz2NdParamsFull {
    Nz2NdParamsFull() {}
    Nz2NdParamsFull(U16 ndNumIn, U16 nValueIn, U16 dValueIn, U16 srcNdMatrixStrideIn,
        U16 srcNStrideIn, U16 dstDStrideIn, U16 dstNdMatrixStrideIn)
        : ndNum(ndNumIn), nValue(nValueIn), dValue(dValueIn), srcNdMatrixStride(srcNdMatrixStrideIn),
          srcNStride(srcNStrideIn), dstDStride(dstDStrideIn), dstNdMatrixStride(dstNdMatrixStrideIn)
    {}
    U16 ndNum = 1;
    U16 nValue = 0;
    U16 dValue = 0;
    U16 srcNdMatrixStride = 1;
    U16 srcNStride = 0;
    U16 dstDStride = 0;
    U16 dstNdMatrixStride = 1;
};

struct SliceInfo {
    SliceInfo() {}
    SliceInfo(U32 startIndexIn, U32 endIndexIn, U32 strideIn, U32 burstLenIn,
              U32 shapeValueIn = 0)
        : startIndex(startIndexIn), endIndex(endIndexIn), stride(strideIn), burstLen(burstLenIn),
          shapeValue(shapeValueIn)
    {}
    U32 startIndex = 0;
    U32 endIndex = ONE_BLK_SIZE - 1;
    U32 stride = 0;
    U32 burstLen = ONE_BLK_SIZE;
    U32 shapeValue = 0;
};

struct TransDataTo5HDParams {
    TransDataTo5HDParams() {}
    TransDataTo5HDParams(bool dstHighHalfIn, bool srcHighHalfIn, U8 repeatTimesIn,
        U16 dstRepStrideIn, U16 srcRepStrideIn)
        : dstHighHalf(dstHighHalfIn), srcHighHalf(srcHighHalfIn), repeatTimes(repeatTimesIn),
          dstRepStride(dstRepStrideIn), srcRepStride(srcRepStrideIn)
    {}
    bool dstHighHalf = false;
    bool srcHighHalf = false;
    U8 repeatTimes = 1;
    U16 dstRepStride = 0;
    U16 srcRepStride = 0;
};

struct TransposeParamsExt {
    TransposeParamsExt() {}
    TransposeParamsExt(U16 nSizeIn, U16 cSizeIn, U16 hSizeIn, U16 wSizeIn,
        TransposeType transposeTypeIn)
        : nSize(nSizeIn), cSize(cSizeIn), hSize(hSizeIn), wSize(wSizeIn), transposeType(transposeTypeIn)
    {}
    U16 nSize = 0;
    U16 cSize = 0;
    U16 hSize = 0;
    U16 wSize = 0;
    TransposeType transposeType = TransposeType::TRANSPOSE_ND2ND_B16;
};

}  // namespace AscendC
