// moec's CPU model of the AscendC API (NPU arch 2201): the header that a kernel includes.
#pragma once
#include "moec_cpu/copy_nz.h"
#include "moec_cpu/copy_pad.h"
#include "moec_cpu/cube_fixpipe.h"
#include "moec_cpu/cube_load3d.h"
#include "moec_cpu/debug_print.h"
#include "moec_cpu/high_activation.h"
#include "moec_cpu/high_dequant.h"
#include "moec_cpu/high_quant.h"
#include "moec_cpu/high_rows.h"
#include "moec_cpu/high_softmax.h"
#include "moec_cpu/high_transpose.h"
#include "moec_cpu/scalar.h"
#include "moec_cpu/stream.h"
#include "moec_cpu/system.h"
#include "moec_cpu/vec_compare.h"
#include "moec_cpu/vec_gather.h"
#include "moec_cpu/vec_layout.h"
#include "moec_cpu/vec_operators.h"
#include "moec_cpu/vec_reduce_all.h"
#include "moec_cpu/vec_scalar.h"
#include "moec_cpu/vec_sort.h"

#ifdef MOEC_CPU_LINKED
#define MOEC_CPU_INSTANCE extern template
#include "moec_cpu/instances.h"
#endif
