// MOEC_CPU_FN marks the functions that are not templates. They are compiled in every file that uses them; with
// MOEC_CPU_RUNTIME (runtime/runtime.cpp) all of them are, so that linked_headers.py may leave only declarations elsewhere.
#pragma once

#ifdef MOEC_CPU_RUNTIME
#define MOEC_CPU_FN inline __attribute__((used))
#else
#define MOEC_CPU_FN inline
#endif
