#pragma once
/// SIGTERM, SIGINT, SIGUSR1, SIGUSR2 and SIGXCPU as requests to stop: counted, nothing else. Local.

namespace dstune {

/// From now on these signals are counted instead of ending the process.
void count_stop_signals();
/// How many came so far.
int stop_signals();
/// The last one's name, "" where none came.
const char* last_stop_signal();

}  // namespace dstune
