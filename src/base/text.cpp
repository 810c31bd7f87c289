#include "dstune/base/text.hpp"

namespace dstune {

std::string_view trimmed(std::string_view text, std::string_view letters) {
  const std::size_t first = text.find_first_not_of(letters);
  if (first == text.npos) return text.substr(text.size());
  return text.substr(first, text.find_last_not_of(letters) - first + 1);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> lines_of(std::string_view text) {
  if (text.empty()) return {};
  if (text.ends_with('\n')) text.remove_suffix(1);
  return split(text, '\n');
}

}  // namespace dstune
