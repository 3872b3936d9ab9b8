#pragma once
#include "moec_cpu/copy_nz.h"
#include "moec_cpu/copy_pad.h"
