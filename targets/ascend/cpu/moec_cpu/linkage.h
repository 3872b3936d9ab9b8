// What linked_headers.py leaves out where the model is compiled apart (runtime/): MOEC_CPU_FN marks functions that are no
// templates, MOEC_CPU_VAR variables. Without it, all of them are compiled in every file that uses them.
// MOEC_CPU_LINKED, in the copies that it writes, says that instances.h is in force too.
#pragma once

#ifdef MOEC_CPU_RUNTIME
#define MOEC_CPU_FN inline __attribute__((used))
#define MOEC_CPU_VAR inline __attribute__((used))
#else
#define MOEC_CPU_FN inline
#define MOEC_CPU_VAR inline
#endif
