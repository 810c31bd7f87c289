#include "roff.hpp"

#include <cstddef>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"

namespace dstune::roff {
namespace {

/// Source lines are no longer: readers of the source, and mandoc's judge, want it so.
constexpr std::size_t source_width = 78;
/// A longer word does not fit into a narrow terminal's line.
constexpr std::size_t long_word = 50;

/// A line that begins with one of these would be a request.
std::string as_text_line(std::string line) {
  return line.starts_with('.') || line.starts_with('\'') ? "\\&" + line : line;
}

/// A long key or list without blanks may go on in another line, behind a comma or a dot.
std::string with_breaks(std::string_view word) {
  if (word.size() < long_word) return std::string(word);
  std::string written;
  for (const char letter : word) {
    written += letter;
    if (letter == ',' || letter == '.') written += "\\:";
  }
  return written;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    require(letter == '\n' || (letter >= ' ' && letter <= '~'), "a manual page is in ASCII");
    switch (letter) {
      case '\\':
        safe += "\\e";
        break;
      case '-':
        safe += "\\-";
        break;
      case '\'':
        safe += "\\(aq";
        break;
      case '"':
        safe += "\\(dq";
        break;
      case '`':
        safe += "\\(ga";
        break;
      case '^':
        safe += "\\(ha";
        break;
      case '~':
        safe += "\\(ti";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

std::string bold(std::string_view text) {
  return "\\fB" + escaped(text) + "\\fR";
}

std::string italic(std::string_view text) {
  return "\\fI" + escaped(text) + "\\fR";
}

std::string marked(std::string_view text) {
  std::string written;
  bool is_typed = false;
  for (const std::string_view part : split(text, '`')) {
    written += is_typed ? bold(part) : escaped(part);
    is_typed = !is_typed;
  }
  return written;
}

Page::Page(std::string_view name, int section, std::string_view date, std::string_view source,
           std::string_view manual)
    : text_(fmt::format(".TH {} {} \"{}\" \"{}\" \"{}\"\n", escaped(name), section, date,
                        escaped(source), escaped(manual))) {
  // Keys are not broken at hyphens, and lines with long ones can not be adjusted.
  // Newer macros return to the mode that AD names.
  text_ += ".nh\n.ds AD l\n.ad l\n";
}

void Page::macro(std::string_view name, std::string_view argument) {
  text_ += fmt::format(".{} \"{}\"\n", name, argument);
}

/// Each sentence begins a line, as roff wants it.
void Page::body(std::string_view roff) {
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) text_ += as_text_line(line) + "\n";
    line.clear();
  };
  for (const std::string_view word : split(roff, ' ')) {
    if (word.empty()) continue;
    if (!line.empty() && line.size() + 1 + word.size() > source_width) end_line();
    if (!line.empty()) line += ' ';
    line += with_breaks(word);
    if (word.ends_with('.') && !word.ends_with("...")) end_line();
  }
  end_line();
}

void Page::section(std::string_view title) {
  macro("SH", escaped(title));
}

void Page::subsection(std::string_view title) {
  macro("SS", with_breaks(escaped(title)));
}

void Page::paragraph(std::string_view text) {
  written(marked(text));
}

/// Behind a heading the macro would be idle.
void Page::begin_paragraph() {
  const std::size_t last = text_.rfind('\n', text_.size() - 2) + 1;
  if (!std::string_view(text_).substr(last).starts_with(".S")) text_ += ".PP\n";
}

void Page::written(std::string_view line) {
  begin_paragraph();
  body(line);
}

void Page::line(std::string_view line) {
  text_ += as_text_line(std::string(line)) + "\n";
}

void Page::item(std::string_view tag, std::string_view text) {
  text_ += fmt::format(".TP\n{}\n", as_text_line(with_breaks(tag)));
  body(marked(text));
}

void Page::example(std::string_view lines) {
  begin_paragraph();
  text_ += ".RS 4\n.EX\n";
  for (const std::string_view each : lines_of(lines)) text_ += as_text_line(escaped(each)) + "\n";
  text_ += ".EE\n.RE\n";
}

void Page::unfilled(const std::vector<std::string>& lines) {
  text_ += ".nf\n";
  for (const std::string& each : lines) line(each);
  text_ += ".fi\n";
}

}  // namespace dstune::roff
