#pragma once
/// The signals by which people and batch systems ask the program to stop. None of them has a
/// handler: a kernel that oneDNN makes may run with its stack pointer in the heap, and a handler
/// would then write there. Every thread blocks them, and one thread asks for them. Local.

#include <chrono>
#include <csignal>

namespace dstune {

/// SIGTERM, SIGINT, SIGUSR1, SIGUSR2 and SIGXCPU; SIGHUP where the process was not started with
/// this one ignored, as nohup does.
[[nodiscard]] sigset_t stop_signals();

/// Blocks them in the calling thread and in all that it starts from now on. The first line of
/// main() calls it, before a library has threads.
void block_stop_signals();

/// Takes one that was sent to the process; 0 where none comes within the time. Only where every
/// thread blocks them.
int take_stop_signal(std::chrono::milliseconds timeout);

}  // namespace dstune
