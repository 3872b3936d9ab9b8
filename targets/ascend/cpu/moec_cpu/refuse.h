// Refusals: one line on stderr, exit code 86. Signals of raw pointers end the same way.
#pragma once
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <unistd.h>
#include "moec_cpu/linkage.h"
#include "moec_cpu/site.h"

namespace moec_cpu {

constexpr int kRefusedExit = 86;

/// What runs now, for messages: empty kernel name = host code.
struct Running {
    const char* kernel = nullptr;
    const char* core = "";
    int index = 0;
    Site last{"?", 0};
};
MOEC_CPU_VAR Running g_running;

__attribute__((format(printf, 1, 2))) MOEC_CPU_FN std::string fmt(const char* format, ...)
{
    char buffer[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    return buffer;
}

[[noreturn]] __attribute__((cold)) MOEC_CPU_FN void refuse(Site site, const std::string& what,
                                                               const std::string& details)
{
    std::fflush(stdout);
    if (g_running.kernel) {
        std::fprintf(stderr, "moec-cpu: error: %s in kernel %s at %s:%d (core %s %d): %s\n", what.c_str(),
                     g_running.kernel, site.file, site.line, g_running.core, g_running.index, details.c_str());
    } else {
        std::fprintf(stderr, "moec-cpu: error: %s in host at %s:%d: %s\n", what.c_str(), site.file, site.line,
                     details.c_str());
    }
    std::fflush(stderr);
    _exit(kRefusedExit);
}

MOEC_CPU_FN void on_signal(int number, siginfo_t* info, void*)
{
    if (number == SIGABRT) refuse(g_running.last, "assertion failed", "an assert() of the program does not hold; the last API call was here");
    if (number == SIGFPE) refuse(g_running.last, "integer division by zero", "check the divisor; the last API call was here");
    refuse(g_running.last, "invalid memory access",
           fmt("a raw pointer touched address %p outside any live device buffer, or the stack overflowed; "
               "the last API call was here",
               info->si_addr));
}

MOEC_CPU_FN void on_terminate()
{
    refuse(g_running.last, "uncaught C++ exception", "kernels and their host code must not throw; the last API call was here");
}

MOEC_CPU_FN bool install_handlers()
{
    static char alternate[65536];
    stack_t stack{};
    stack.ss_sp = alternate;
    stack.ss_size = sizeof alternate;
    sigaltstack(&stack, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    sigaction(SIGFPE, &action, nullptr);
    sigaction(SIGABRT, &action, nullptr);
    std::set_terminate(on_terminate);
    return true;
}
MOEC_CPU_VAR const bool g_handlers = install_handlers();

}  // namespace moec_cpu
