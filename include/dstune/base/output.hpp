#pragma once
/// The place for results: stdout, unless the program runs inside another one that prints there,
/// too. Local.

#include <ostream>

namespace dstune {

/// The stream of results; std::cout unless redirect_output() was called.
[[nodiscard]] std::ostream& output();

/// From here on results go to what stdout is now, and all else that is written to stdout goes to
/// stderr. To be called before there are other threads. Throws IoError.
void redirect_output();

/// Everything that was written is out.
void flush_output();

/// Tells whether results that were written have not arrived, as on a full disk. A reader of a pipe
/// who has left does not miss any.
[[nodiscard]] bool has_lost_output();

}  // namespace dstune
