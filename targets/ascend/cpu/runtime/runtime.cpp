// All functions of the model, once: the object to link with files that were compiled against linked_headers.py's output.
#define MOEC_CPU_RUNTIME
#include "kernel_operator.h"
#include "acl/acl.h"
#include "hccl/hccl.h"
