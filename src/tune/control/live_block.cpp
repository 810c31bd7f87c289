#include "control/live_block.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "control/columns.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"

namespace dstune {
namespace {

constexpr const char* erase_below = "\r\033[J";
constexpr const char* erase_rest = "\033[K";

/// Without a terminal the user's word counts, as with a launcher that passes everything on.
std::size_t number_in(const char* variable, std::size_t otherwise) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const std::string_view word(text);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && number > 1 ? number : otherwise;
}

}  // namespace

void StderrSink::say(const std::string& text) {
  log::info(text);
}

void StderrSink::write(const std::string& codes) {
  std::fputs(codes.c_str(), stderr);
  std::fflush(stderr);
}

TerminalSize StderrSink::size() const {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
    return {size.ws_col,
            size.ws_row > 0 ? std::max<std::size_t>(2, size.ws_row) : number_in("LINES", 24)};
  return {number_in("COLUMNS", 80), number_in("LINES", 24)};
}

/// No terminal tells it when asked. These are known to do so, by what they set for programs inside.
bool StderrSink::breaks_rows() const {
  constexpr std::array<const char*, 8> variables{
      "TMUX",       "VTE_VERSION",  "KONSOLE_VERSION",  "KITTY_WINDOW_ID",
      "WT_SESSION", "WEZTERM_PANE", "ITERM_SESSION_ID", "ALACRITTY_WINDOW_ID"};
  return std::ranges::any_of(variables,
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

void LiveBlock::draw(const std::vector<std::string>& rows) {
  const std::lock_guard lock(mutex_);
  const TerminalSize size = sink_.size();
  std::string codes = to_first_row(size);
  drawn_.clear();
  // The cursor's own row is below the block, and a full row would move it on.
  for (const std::string& row : rows) {
    if (drawn_.size() + 1 >= size.rows) break;
    const std::string shown = cut_to_columns(printable(row), size.columns - 1);
    codes += shown + erase_rest + "\r\n";
    drawn_.push_back(num_columns(shown));
  }
  sink_.write(codes + erase_below);
}

void LiveBlock::clear() {
  const std::lock_guard lock(mutex_);
  clear_locked();
}

bool LiveBlock::is_drawn() {
  const std::lock_guard lock(mutex_);
  return !drawn_.empty();
}

void LiveBlock::around(const std::function<void()>& write) {
  const std::lock_guard lock(mutex_);
  clear_locked();
  write();
}

void LiveBlock::clear_locked() {
  if (drawn_.empty()) return;
  sink_.write(to_first_row(sink_.size()) + erase_below);
  drawn_.clear();
}

/// Codes that bring the cursor to the beginning of the block. Where rows are cut, one too many
/// would erase somebody's message.
std::string LiveBlock::to_first_row(TerminalSize size) const {
  std::size_t rows = 0;
  for (const std::size_t columns : drawn_)
    rows += sink_.breaks_rows()
                ? std::max<std::size_t>(1, (columns + size.columns - 1) / size.columns)
                : 1;
  return rows == 0 ? "\r" : fmt::format("\r\033[{}A", rows);
}

}  // namespace dstune
