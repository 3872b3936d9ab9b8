#pragma once
#include "acl/acl_rt.h"
