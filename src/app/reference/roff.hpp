#pragma once
/// Manual pages as man(7) has them. A text may mark what is typed with quotes like these: `1`.
/// Throws LogicError where a text has other letters than ASCII's. Local.

#include <string>
#include <string_view>
#include <vector>

namespace dstune::roff {

/// Letters that mean something to roff, written so that they are printed.
[[nodiscard]] std::string escaped(std::string_view text);
/// In bold: what is typed as it stands.
[[nodiscard]] std::string bold(std::string_view text);
/// In italics: what stands for something else.
[[nodiscard]] std::string italic(std::string_view text);
/// A text whose quotes become bold.
[[nodiscard]] std::string marked(std::string_view text);

/// A page that grows. Tags are roff already; bodies are texts.
class Page {
 public:
  /// `date`: as in 2026-11-29, or empty.
  Page(std::string_view name, int section, std::string_view date, std::string_view source,
       std::string_view manual);

  void section(std::string_view title);
  void subsection(std::string_view title);
  void paragraph(std::string_view text);
  /// A paragraph that is roff already.
  void written(std::string_view line);
  /// A line of its own, which is roff already.
  void line(std::string_view line);
  void item(std::string_view tag, std::string_view text);
  /// Lines that stay as they are.
  void example(std::string_view lines);
  /// The same of lines that are roff already.
  void unfilled(const std::vector<std::string>& lines);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void macro(std::string_view name, std::string_view argument);
  void begin_paragraph();
  void body(std::string_view roff);

  std::string text_;
};

}  // namespace dstune::roff
