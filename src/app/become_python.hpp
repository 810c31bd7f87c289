#pragma once
/// The workload deepspeed runs in the user's Python: the process replaces its program by that, and
/// the interpreter loads this program as a library. It is the same process, so that launcher and
/// MPI notice nothing. Before MPI starts and before there are threads.

#include <string>

namespace dstune {

/// Does not return where the space file asks for it and everything is there. Else why not; empty
/// where nobody asks.
std::string become_python_where_asked(int argc, char** argv);

}  // namespace dstune
