#pragma once
/// A terminal as far as the program's codes go: what is on its screen after them. Every character
/// takes one column. Local.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dstune::test {

class Terminal {
 public:
  /// `breaks_rows`: a narrower window breaks the rows that are there, as tmux does; else they are
  /// cut, as xterm does.
  Terminal(std::size_t columns, std::size_t rows, bool breaks_rows = false)
      : columns_(columns), rows_(rows), breaks_rows_(breaks_rows), lines_(1) {}

  void take(std::string_view text) {
    for (const char byte : text) take(byte);
  }

  void resize(std::size_t columns) {
    std::vector<Line> lines;
    std::size_t cursor = lines_.size() - 1;
    for (std::size_t row = 0; row < lines_.size(); ++row) {
      if (row == row_) cursor = lines.size();
      Line line = lines_[row];
      if (!breaks_rows_ && line.size() > columns) line.resize(columns);
      for (; line.size() > columns; line.erase(line.begin(), line.begin() + cut(columns)))
        lines.emplace_back(line.begin(), line.begin() + cut(columns));
      lines.push_back(line);
    }
    columns_ = columns;
    lines_ = std::move(lines);
    row_ = cursor;
    column_ = std::min(column_, columns_);
  }

  /// All that was ever shown and not erased, with what has scrolled away, without blanks at ends.
  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> texts;
    for (const Line& line : lines_) {
      std::string text;
      for (const std::string& character : line) text += character;
      text.erase(text.find_last_not_of(' ') + 1);
      texts.push_back(std::move(text));
    }
    while (!texts.empty() && texts.back().empty()) texts.pop_back();
    return texts;
  }
  /// Rows that were longer than the screen.
  [[nodiscard]] int num_wraps() const { return num_wraps_; }
  /// Codes that this terminal does not know.
  [[nodiscard]] const std::string& unknown() const { return unknown_; }

 private:
  using Line = std::vector<std::string>;  ///< a character each

  static std::ptrdiff_t cut(std::size_t columns) { return static_cast<std::ptrdiff_t>(columns); }

  void take(char byte) {
    if (!code_.empty()) {
      code_ += byte;
      if (code_.size() > 2 && (byte >= '@' && byte <= '~')) obey();
    } else if (byte == '\033') {
      code_ = byte;
    } else if (byte == '\r') {
      column_ = 0;
    } else if (byte == '\n') {
      go_down();
    } else if ((static_cast<unsigned char>(byte) & 0xC0U) == 0x80U) {
      if (column_ > 0) lines_[row_][column_ - 1] += byte;
    } else {
      put(byte);
    }
  }

  void put(char byte) {
    if (column_ == columns_) {
      ++num_wraps_;
      column_ = 0;
      go_down();
    }
    Line& line = lines_[row_];
    if (line.size() <= column_) line.resize(column_ + 1, " ");
    line[column_++] = byte;
  }

  void go_down() {
    if (++row_ == lines_.size()) lines_.emplace_back();
  }

  void obey() {
    const char kind = code_.back();
    const std::string number = code_.substr(2, code_.size() - 3);
    if (kind == 'A') {
      // Not beyond the first row that is on the screen.
      const std::size_t top = lines_.size() > rows_ ? lines_.size() - rows_ : 0;
      const std::size_t count = number.empty() ? 1 : std::stoul(number);
      row_ = row_ > top + count ? row_ - count : top;
    } else if (kind == 'J' && number.empty()) {
      lines_.resize(row_ + 1);
      erase_rest();
    } else if (kind == 'K' && number.empty()) {
      erase_rest();
    } else if (kind != 'm') {
      unknown_ += code_.substr(1) + " ";
    }
    code_.clear();
  }

  void erase_rest() {
    if (lines_[row_].size() > column_) lines_[row_].resize(column_);
  }

  std::size_t columns_, rows_;
  bool breaks_rows_;
  std::vector<Line> lines_;
  std::size_t row_ = 0, column_ = 0;
  std::string code_, unknown_;
  int num_wraps_ = 0;
};

}  // namespace dstune::test
