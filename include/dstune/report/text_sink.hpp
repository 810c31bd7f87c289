#pragma once
/// Texts that are too long to be held. Local.

#include <functional>
#include <string_view>

namespace dstune {

/// Takes a text, one piece after the other.
using TextSink = std::function<void(std::string_view piece)>;

}  // namespace dstune
