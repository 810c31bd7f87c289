#pragma once
/// Names of experiments as folders have them. Local.

#include <string>

namespace dstune {

/// Letters, digits and . + - _ = stay, other characters become '-'; longer than 160 characters:
/// cut, with a hash of the whole.
std::string folder_safe(const std::string& name);

}  // namespace dstune
