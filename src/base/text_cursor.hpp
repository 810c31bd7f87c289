#pragma once
/// Reads a short text from its start, piece by piece.

#include <cstdint>
#include <optional>
#include <string_view>

namespace dstune {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  [[nodiscard]] std::string_view rest() const { return rest_; }

  bool skip(char expected) {
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }

  /// Exactly `count` digits, or with 0 one to fifteen of them.
  std::optional<std::int64_t> digits(std::size_t count = 0) {
    const std::string_view run = take(&is_digit);
    if (run.empty() || run.size() > 15 || (count != 0 && run.size() != count)) return std::nullopt;
    std::int64_t value = 0;
    for (char digit : run) value = value * 10 + (digit - '0');
    return value;
  }

  /// "12" or "1.5": digits on both sides of the point, no sign, no exponent.
  std::optional<std::string_view> decimal() {
    const std::string_view whole = rest_;
    const std::string_view before = take(&is_digit);
    if (before.empty()) return std::nullopt;
    if (!skip('.')) return before;
    const std::string_view after = take(&is_digit);
    if (after.empty()) return std::nullopt;
    return whole.substr(0, before.size() + 1 + after.size());
  }

  /// A run of lower-case letters, perhaps empty.
  std::string_view word() { return take(&is_letter); }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

  std::string_view take(bool (*belongs)(char)) {
    std::size_t length = 0;
    while (length < rest_.size() && belongs(rest_[length])) ++length;
    const std::string_view run = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return run;
  }

  std::string_view rest_;
};

}  // namespace dstune
