#pragma once
/// The whole program, as an executable or inside Python.

#include <string>

namespace dstune {

/// `engine_refusal`: why this process is not inside the Python that its input asks for; or empty.
/// Returns the exit code. The calling thread blocks the signals to stop from then on.
int run_program(int argc, char** argv, const std::string& engine_refusal);

}  // namespace dstune
