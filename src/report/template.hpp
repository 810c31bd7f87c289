#pragma once
/// Text files of this layer that are part of the program (embedded/NAME.hpp), filled in.

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace dstune {

/// The template with each @NAME@ replaced by its text, in which no name is looked for.
std::string filled(std::string_view pattern,
                   std::initializer_list<std::pair<std::string_view, std::string>> texts);

}  // namespace dstune
