#pragma once
/// A block of rows at the end of a terminal, which is rewritten in place. Local.

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace dstune {

struct TerminalSize {
  std::size_t columns = 80, rows = 24;
};

/// The place that progress goes to. Any thread may call it, one at a time.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  /// A line that stays.
  virtual void say(const std::string& text) = 0;
  /// Text and escape codes for the terminal, as they are.
  virtual void write(const std::string& codes) = 0;
  /// The size as it is now.
  [[nodiscard]] virtual TerminalSize size() const = 0;
  /// Tells whether a terminal that becomes narrower breaks the rows that it shows. Others cut them.
  [[nodiscard]] virtual bool breaks_rows() const = 0;
};

/// The log on stderr.
class StderrSink : public ProgressSink {
 public:
  void say(const std::string& text) override;
  void write(const std::string& codes) override;
  [[nodiscard]] TerminalSize size() const override;
  [[nodiscard]] bool breaks_rows() const override;
};

/// Messages of other threads may come between: they go through around().
class LiveBlock {
 public:
  explicit LiveBlock(ProgressSink& sink) : sink_(sink) {}

  /// Draws these rows in the place of those that are there, each cut to the terminal's width.
  void draw(const std::vector<std::string>& rows);
  void clear();
  /// Tells whether nobody has cleared it since it was drawn.
  [[nodiscard]] bool is_drawn();
  /// Clears the block and writes a message in its place; the next draw() is below that.
  void around(const std::function<void()>& write);

 private:
  [[nodiscard]] std::string to_first_row(TerminalSize size) const;
  void clear_locked();

  ProgressSink& sink_;
  std::mutex mutex_;
  std::vector<std::size_t> drawn_;  ///< columns of each row
};

}  // namespace dstune
