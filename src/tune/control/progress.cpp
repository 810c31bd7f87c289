#include "control/progress.hpp"

#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"

namespace dstune {
namespace {

constexpr std::chrono::milliseconds rewrite_interval{100};
/// Above this rate nobody reads lines: then only now and then one.
constexpr std::chrono::milliseconds line_interval{200};

std::string value_text(const Experiment& experiment, const Measurement& measurement,
                       Metric metric) {
  const int size = experiment.shape.size();
  const auto value = metric_value(measurement, metric, global_batch(experiment.config, size), size);
  if (!value) return fmt::format("{}: {}", to_text(measurement.status), measurement.reason);
  const std::string text = fmt::format("{} {}", format_number(value->value), unit_text(metric));
  if (!std::isfinite(value->ci_high)) return text;
  return fmt::format("{} ±{:.1f} %", text, 50.0 * (value->ci_high - value->ci_low) / value->value);
}

/// A longer line would wrap, and only its last row would be rewritten.
std::size_t terminal_width() {
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col - 1U : 79;
}

}  // namespace

Progress::Progress(Style style) : style_(style) {}
Progress::~Progress() {
  end();
}

void Progress::begin(std::size_t num_planned, std::size_t num_known) {
  planned_ = num_planned;
  began_ = std::chrono::steady_clock::now();
  std::string text = fmt::format("{} experiments planned", num_planned);
  if (num_known > 0) text += fmt::format(", {} of them known from the journal", num_known);
  line(text);
}

void Progress::started(const Experiment&) {
  ++running_;
  rewrite();
}

void Progress::stepped(const std::string& experiment, int steps) {
  latest_ = fmt::format("{} step {}", experiment, steps);
  rewrite();
}

void Progress::ended(const Record& record, Metric metric, bool is_known, bool is_best) {
  ++ended_;
  if (!is_known && running_ > 0) --running_;
  const std::string value = value_text(record.experiment, record.measurement, metric);
  if (is_best) best_ = fmt::format("{} {}", record.experiment.name, value);
  const auto now = std::chrono::steady_clock::now();
  const bool is_rate_limited = now - last_line_ < line_interval && planned_ > 200;
  if (!is_rate_limited || is_best) {
    last_line_ = now;
    line(fmt::format("[{}/{}] {} on {}: {}{}{}", ended_, planned_, record.experiment.name,
                     record.experiment.shape.size(), value, is_known ? " (known)" : "",
                     is_best ? "  <- best so far" : ""));
  }
}

void Progress::repeated(const Experiment& experiment, const Repeat& repeat, Metric metric) {
  if (running_ > 0) --running_;
  const char* why = repeat.kind == RepeatKind::spread ? "again" : "again, alone";
  line(fmt::format("[{}] {} on {}: {}", why, experiment.name, experiment.shape.size(),
                   value_text(experiment, repeat.measurement, metric)));
}

void Progress::end() {
  if (is_line_open_) std::fputs("\r\033[K", stderr);
  is_line_open_ = false;
}

void Progress::line(const std::string& text) {
  if (style_ == Style::silent) return;
  end();
  log::info(text);
}

void Progress::rewrite() {
  if (style_ != Style::terminal) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_rewrite_ < rewrite_interval) return;
  last_rewrite_ = now;
  const double elapsed_s = std::chrono::duration<double>(now - began_).count();
  const std::string text =
      fmt::format("{}/{} done, {} running, {}{}{}", ended_, planned_, running_,
                  format_duration(elapsed_s), latest_.empty() ? "" : ", ", latest_);
  std::fprintf(stderr, "\r\033[K%s", text.substr(0, terminal_width()).c_str());
  std::fflush(stderr);
  is_line_open_ = true;
}

}  // namespace dstune
