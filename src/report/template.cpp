#include "template.hpp"

#include <algorithm>

namespace dstune {

namespace {

/// Whether the text begins with @NAME@.
bool begins_with(std::string_view text, std::string_view name) {
  return text.substr(0, 1) == "@" && text.substr(1, name.size()) == name &&
         text.substr(1 + name.size(), 1) == "@";
}

}  // namespace

std::string filled(std::string_view pattern,
                   std::initializer_list<std::pair<std::string_view, std::string>> texts) {
  std::string out;
  while (!pattern.empty()) {
    const std::size_t begin = pattern.find('@');
    out += pattern.substr(0, begin);
    if (begin == std::string_view::npos) break;
    pattern.remove_prefix(begin);
    const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& each) {
      return begins_with(pattern, each.first);
    });
    if (found == texts.end()) {
      out += '@';
      pattern.remove_prefix(1);
    } else {
      out += found->second;
      pattern.remove_prefix(found->first.size() + 2);
    }
  }
  return out;
}

}  // namespace dstune
