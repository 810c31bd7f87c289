#include "wrapped_text.hpp"

#include <algorithm>

namespace dstune {

std::string wrapped_text(std::string_view text, std::size_t indent, std::size_t column) {
  std::string lines;
  while (!text.empty()) {
    std::size_t end = 0;
    bool is_quoted = false;
    for (; end < text.size() && (is_quoted || text[end] != ' '); ++end)
      if (text[end] == '`') is_quoted = !is_quoted;
    if (!lines.empty() && column + 1 + end > line_columns) {
      lines += '\n';
      lines.append(indent, ' ');
      column = indent;
    } else if (!lines.empty()) {
      lines += ' ';
      ++column;
    }
    lines += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

}  // namespace dstune
