#pragma once
/// The whole program, as an executable or inside Python.

#include <optional>
#include <string>

namespace dstune {

/// The exit code where the system's limits let nothing run: that has then been said, and stands in
/// exit_status.json. `argc`, `argv`: main()'s.
std::optional<int> refuse_low_limits(int argc, char** argv);

/// `engine_refusal`: why this process is not inside the Python that its input asks for; or empty.
/// Returns the exit code. The calling thread blocks the signals to stop from then on.
int run_program(int argc, char** argv, const std::string& engine_refusal);

}  // namespace dstune
