// The instances of instances.h, once: goes with runtime.cpp. To be compiled against linked_headers.py's output.
#include "kernel_operator.h"
#undef MOEC_CPU_INSTANCE
#define MOEC_CPU_INSTANCE template
#include "moec_cpu/instances.h"
