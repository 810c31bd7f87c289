#pragma once
/// Files that belong to the program, found from where it lies.

#include <optional>
#include <string>

namespace dstune {

/// Tells whether this code is in the executable, and not in a library that Python has loaded.
/// Local.
bool is_own_program();

/// A file beside the executable or the library that this code is in; else in the folder for
/// libraries of an installation, wherever that was moved to. Nothing where there is none. Local.
std::optional<std::string> find_own_file(const std::string& name);

}  // namespace dstune
