// The acl run-time calls that host code of a kernel needs. Streams are lazy: work runs when it is waited for.
#pragma once
#include "acl/acl_base.h"
#include "moec_cpu/acl_memory.h"
#include "moec_cpu/acl_stream.h"
