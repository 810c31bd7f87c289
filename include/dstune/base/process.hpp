#pragma once
/// Processes of this machine, told apart although their numbers are used again. Local.

#include <cstdint>
#include <optional>
#include <string_view>

namespace dstune {

/// A process by its number and the moment of its start, in the kernel's clock ticks since boot.
struct ProcessId {
  int number = 0;
  std::uint64_t started_at = 0;
  bool operator==(const ProcessId&) const = default;
};

/// The one that has this number now.
[[nodiscard]] ProcessId process_of(int number);

/// It has ended: nobody has its number, a younger process has it, or it waits for its parent to ask
/// how it ended. False where the system does not tell, and of a process that is stopped.
[[nodiscard]] bool is_gone(const ProcessId& process);
/// Names the numbers that this process sees: containers may number processes anew. 0 where the
/// system does not tell.
[[nodiscard]] std::uint64_t process_numbering();

/// The kernel's facts on a process, from /proc/NUMBER/stat.
struct ProcessStatus {
  char state = 0;  ///< the kernel's letter: R, S, D, T (stopped), Z (ended, not asked for), X
  std::uint64_t started_at = 0;
};
/// Nothing where the text is none.
[[nodiscard]] std::optional<ProcessStatus> parse_process_status(std::string_view text);

}  // namespace dstune
