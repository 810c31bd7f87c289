#include "template.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune {

std::string filled(std::string_view pattern,
                   std::initializer_list<std::pair<std::string_view, std::string>> texts) {
  for (const auto& [name, text] : texts)
    require(pattern.find("@" + std::string(name) + "@") != std::string_view::npos,
            "the template has the name");
  std::string out;
  while (!pattern.empty()) {
    const std::size_t begin = pattern.find('@');
    out += pattern.substr(0, begin);
    if (begin == std::string_view::npos) break;
    pattern.remove_prefix(begin);
    const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& each) {
      const std::string_view name = each.first;
      return pattern.substr(1, name.size()) == name && pattern.substr(1 + name.size(), 1) == "@";
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
