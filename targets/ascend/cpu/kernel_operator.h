// moec's CPU model of the AscendC API (NPU arch 2201): the header that a kernel includes.
#pragma once
#include "moec_cpu/copy_nz.h"
#include "moec_cpu/copy_pad.h"
#include "moec_cpu/cube_fixpipe.h"
#include "moec_cpu/cube_load3d.h"
#include "moec_cpu/stream.h"
#include "moec_cpu/system.h"
#include "moec_cpu/vec_arith.h"
