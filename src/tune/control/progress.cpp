#include "control/progress.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "control/columns.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"

namespace dstune {
namespace {

constexpr std::chrono::milliseconds draw_interval{100};
/// The clock on the terminal goes on.
constexpr std::chrono::seconds longest_without_drawing{1};
constexpr std::chrono::seconds estimate_interval{1};
/// Between lines with all counts: often at first, seldom in a long job.
constexpr double shortest_status_s = 10, longest_status_s = 60, status_share = 0.05;
/// The log's own words before each line.
constexpr std::string_view log_prefix = "dstune: info: ";
constexpr std::size_t max_columns = progress_text::max_line_columns - log_prefix.size();
constexpr std::size_t stamp_columns = std::string_view("2026-11-29T14:31:05+01:00 ").size();

}  // namespace

bool LineRate::take(SteadyClock::time_point now) {
  lines_ = std::min(max_lines, lines_ + std::max(0.0, seconds(now - at_)));
  at_ = now;
  if (lines_ < 1) return false;
  lines_ -= 1;
  return true;
}

Progress::Style Progress::style_of(const JobOptions& options) {
  if (options.quiet) return Style::silent;
  switch (options.progress) {
    case ProgressMode::none:
      return Style::silent;
    case ProgressMode::live:
      return Style::live;
    case ProgressMode::lines:
      return Style::lines;
    case ProgressMode::automatic:
      break;
  }
  return options.has_own_terminal ? Style::live : Style::lines;
}

Progress::Progress(Options options, std::shared_ptr<ProgressSink> sink)
    : options_(std::move(options)),
      sink_(std::move(sink)),
      block_(*sink_),
      phase_began_(options_.began) {
  if (options_.style == Style::live)
    log::set_frame([this](const std::function<void()>& write) { block_.around(write); });
  take_time();
  state_.is_running = true;
  state_.began_at = now_.wall - std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                    now_.steady - options_.began);
  say(progress_text::phase_begins(state_, search_name_, std::nullopt, 0));
}

Progress::~Progress() {
  if (options_.style != Style::live) return;
  log::set_frame({});
  block_.clear();
}

void Progress::take_time() {
  now_ = options_.clock();
  state_.as_of = now_.wall;
  state_.elapsed_s = seconds(now_.steady - options_.began);
  state_.phase_elapsed_s = seconds(now_.steady - phase_began_);
}

void Progress::begin(TuningPhase phase) {
  if (state_.phase == phase) return;
  take_time();
  state_.left.reset();  // another phase has another estimate, with the next tick
  estimated_at_.reset();
  say_rest();
  const TuningPhase ended = std::exchange(state_.phase, phase);
  const double ended_s = std::exchange(state_.phase_elapsed_s, 0);
  phase_began_ = now_.steady;
  told_at_ = now_.steady;
  // Whoever estimates may end with the search.
  if (phase >= TuningPhase::writing) options_.time_left = {};
  state_.is_running = phase != TuningPhase::done;
  say(progress_text::phase_begins(state_, search_name_, ended, ended_s));
  if (phase == TuningPhase::done) block_.clear();
}

void Progress::begin_search(std::size_t num_planned, std::string name) {
  state_.planned = num_planned;
  search_name_ = std::move(name);
  begin(TuningPhase::search);
}

void Progress::take_known(std::size_t member) {
  done_.insert(member);
  state_.done = done_.size();
  ++state_.known;
}

void Progress::tell_known() {
  take_time();
  if (state_.known == 0) return;
  say(progress_text::known(state_.known, best_));
  if (best_) told_best_ = best_->name;
}

void Progress::started(std::uint64_t attempt, const Experiment& experiment, std::size_t others) {
  const std::string more = others > 0 ? fmt::format(" and {} more", others) : "";
  running_[attempt] = {experiment.name + more, experiment.shape.size()};
  state_.running = running_.size();
  is_changed_ = true;
}

void Progress::stepped(std::uint64_t attempt, int steps) {
  if (const auto found = running_.find(attempt); found != running_.end())
    found->second.steps = steps;
}

void Progress::left(std::uint64_t attempt) {
  running_.erase(attempt);
  state_.running = running_.size();
}

void Progress::ended(std::size_t member, const Record& record, Metric metric,
                     std::optional<double> expected, bool is_best) {
  done_.insert(member);
  state_.done = done_.size();
  has_news_ = is_changed_ = true;
  take_time();
  const Measurement& measurement = record.measurement;
  std::string line = fmt::format(
      "{}: {}", progress_text::place(record.experiment.name, record.experiment.shape.size()),
      progress_text::result(record.experiment, measurement, metric, expected));
  if (measurement.status != Status::ok && measurement.status != Status::raced_out) {
    if (!failures_.add(measurement.status, measurement.reason)) return;
    if (!failure_rate_.take(now_.steady))
      return failures_.leave_untold(measurement.status, measurement.reason);
  } else {
    if (options_.style != Style::lines || !rate_.take(now_.steady)) return;
    if (is_best && best_) {
      line += progress_text::now_best(*best_);
      told_best_ = best_->name;
    }
  }
  results_.push_back({state_.done, std::move(line)});
}

void Progress::repeated(const Experiment& experiment, const Repeat& repeat, Metric metric) {
  take_time();
  const bool is_final = repeat.kind == RepeatKind::final_round;
  const bool is_control = repeat.kind == RepeatKind::control;
  const int number = is_final ? ++num_finals_ : is_control ? ++num_controls_ : ++num_repeats_;
  is_changed_ = true;
  if (options_.style != Style::lines || !rate_.take(now_.steady)) return;
  const std::string place = progress_text::place(experiment.name, experiment.shape.size());
  std::string result = progress_text::result(experiment, repeat.measurement, metric, {});
  if (best_ && best_->is_expected && repeat.measurement.status == Status::ok) result += " here";
  const std::string what = is_final     ? fmt::format("finals, run {}", number)
                           : is_control ? fmt::format("control {} of the machine", number)
                                        : fmt::format("repeat {} of the best so far", number);
  say(fmt::format("[{}] {}: {}", what, place, result));
}

void Progress::tick() {
  take_time();
  if (options_.time_left && (!estimated_at_ || now_.steady - *estimated_at_ >= estimate_interval)) {
    state_.left = options_.time_left();
    estimated_at_ = now_.steady;
  }
  say_results();
  for (const std::string& line : failures_.due(now_.steady)) say(line);
  if (options_.style == Style::lines) {
    // Its run may have had no line.
    if (best_ && best_->name != told_best_ && rate_.take(now_.steady)) {
      told_best_ = best_->name;
      say("Best so far is " + progress_text::of_best(*best_) + ".");
    }
    if (is_status_due()) say_status();
  }
  draw();
}

bool Progress::is_status_due() const {
  if (state_.phase != TuningPhase::search && state_.phase != TuningPhase::finals) return false;
  const double interval_s =
      std::clamp(status_share * state_.elapsed_s, shortest_status_s, longest_status_s);
  return !told_at_ || seconds(now_.steady - *told_at_) >= interval_s;
}

void Progress::say_status() {
  for (const std::string& line : progress_text::status(state_, best_, max_columns - stamp_columns))
    say(line);
  told_at_ = now_.steady;
  has_news_ = false;
  if (best_) told_best_ = best_->name;
}

void Progress::say_results() {
  for (const Result& one : std::exchange(results_, {}))
    say(fmt::format("[{} done, {} running] {}", one.num_done, state_.running, one.text));
}

/// Before a phase ends.
void Progress::say_rest() {
  say_results();
  for (const std::string& line : failures_.rest()) say(line);
  if (options_.style == Style::lines && state_.phase == TuningPhase::search && has_news_)
    say_status();
}

void Progress::say(const std::string& text) {
  if (options_.style == Style::silent) return;
  const std::string stamp =
      options_.style == Style::lines ? progress_text::local_time(now_.wall) + " " : "";
  // Someone else's words are in it: what escapes add would make it longer behind the cut.
  const std::string line = printable(stamp + text);
  block_.clear();
  sink_->say(cut_to_columns(line, max_columns));
  drawn_at_.reset();
}

void Progress::draw() {
  if (options_.style != Style::live || state_.phase == TuningPhase::done) return;
  const auto since = drawn_at_ ? now_.steady - *drawn_at_ : longest_without_drawing;
  const bool is_due = since >= longest_without_drawing ||
                      (since >= draw_interval && (is_changed_ || !block_.is_drawn()));
  if (!is_due) return;
  std::vector<RunningExperiment> running;
  for (const auto& [attempt, one] : running_) running.push_back(one);
  block_.draw(progress_text::rows(state_, search_name_, best_, running));
  drawn_at_ = now_.steady;
  is_changed_ = false;
}

}  // namespace dstune
