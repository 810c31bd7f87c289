#include "control/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

/// Members that the tuner chooses next take as long as so many of those that ended last.
constexpr std::size_t recent_runs = 12;
/// Beside what counts of runs say, durations are off by so much, and by their own deviation.
constexpr double error_of_durations = 0.1;
/// Between two runs of the finals they are judged anew.
constexpr double pause_in_finals_s = 0.15;

/// "1 run", "2 runs": at least one.
std::string count_text(double count, std::string_view noun) {
  return format_count(static_cast<std::uint64_t>(std::max(1.0, std::round(count))), noun);
}

}  // namespace

TimeEstimate::TimeEstimate(std::vector<Member> members)
    : members_(std::move(members)), is_left_(members_.size(), true) {
  for (std::size_t member = 0; member < members_.size(); ++member) {
    if (members_[member].num_at_once == 0) {
      is_left_[member] = false;
      continue;
    }
    Likes& likes = likes_[members_[member].num_at_once];
    ++likes.num_left;
    likes.predicted_left_s += members_[member].predicted_step_s;
  }
}

void TimeEstimate::leave(std::size_t member) {
  if (!is_left_[member]) return;
  is_left_[member] = false;
  Likes& likes = likes_[members_[member].num_at_once];
  --likes.num_left;
  likes.predicted_left_s -= members_[member].predicted_step_s;
}

void TimeEstimate::started(std::uint64_t run, std::size_t member, Kind kind, double at_s,
                           std::size_t turns) {
  running_[run] = {member, kind, at_s, turns};
  if (!began_s_) began_s_ = at_s;
  if (kind == Kind::first) leave(member);
  if (kind != Kind::final || finals_began_s_) return;
  finals_began_s_ = finals_ended_s_ = at_s;
}

void TimeEstimate::ended(std::uint64_t run, double at_s, bool is_full) {
  const auto found = running_.find(run);
  if (found == running_.end()) return;
  const Running ended = found->second;
  running_.erase(found);
  if (ended.kind == Kind::final) {
    num_finals_ += static_cast<double>(ended.turns);
    finals_ended_s_ = at_s;
    return;
  }
  search_ended_s_ = at_s;
  if (ended.kind != Kind::first) return;
  const Member& member = members_[ended.member];
  ended_.push_back(
      {std::max(1, member.num_at_once), at_s - ended.began_s, member.predicted_step_s, is_full});
  Likes& likes = likes_[ended_.back().num_at_once];
  ++likes.num_ended;
  likes.sum_s += ended_.back().duration_s;
  likes.predicted_sum_s += member.predicted_step_s;
}

/// Seconds of a first run of such members.
double TimeEstimate::usual_s(int num_at_once) const {
  if (const auto found = likes_.find(num_at_once); found != likes_.end() && found->second.num_ended)
    return found->second.sum_s / found->second.num_ended;
  double sum_s = 0;
  for (const Ended& one : ended_) sum_s += one.duration_s;
  return ended_.empty() ? 0 : sum_s / static_cast<double>(ended_.size());
}

/// How much longer a run is for each second that its step is predicted to take longer, as far as
/// runs so far follow their predictions: by least squares, times the share that this explains.
double TimeEstimate::slope() const {
  double count = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  for (const Ended& one : ended_) {
    if (!one.is_full || !(one.predicted_s > 0)) continue;
    ++count;
    x += one.predicted_s;
    y += one.duration_s;
    xx += one.predicted_s * one.predicted_s;
    xy += one.predicted_s * one.duration_s;
    yy += one.duration_s * one.duration_s;
  }
  if (count < 4) return 0;
  const double sxx = xx - x * x / count, sxy = xy - x * y / count, syy = yy - y * y / count;
  if (!(sxx > 0) || !(syy > 0) || !(sxy > 0)) return 0;
  return sxy / sxx * (sxy * sxy / (sxx * syy));
}

/// The search's time over the shares of its first runs: what else it does, and ranks that wait.
double TimeEstimate::stretch(double now_s) const {
  double shares_s = 0;
  for (const Ended& one : ended_) shares_s += one.duration_s / one.num_at_once;
  double until_s = search_ended_s_.value_or(now_s);
  for (const auto& [run, one] : running_) {
    if (one.kind == Kind::final) continue;
    until_s = now_s;
    if (one.kind == Kind::first)
      shares_s += (now_s - one.began_s) / std::max(1, members_[one.member].num_at_once);
  }
  if (!(shares_s > 0)) return 1;
  constexpr double most = 5;
  return std::clamp((until_s - began_s_.value_or(until_s)) / shares_s, 1 / most, most);
}

/// The mean share of all members that were not begun.
double TimeEstimate::share_of_rest() const {
  const double longer = slope();
  double num_left = 0, sum_s = 0;
  for (const auto& [num_at_once, likes] : likes_) {
    if (!(likes.num_left > 0)) continue;
    num_left += likes.num_left;
    double duration_s = usual_s(num_at_once);
    if (likes.num_ended > 0)
      duration_s += longer * (likes.predicted_left_s / likes.num_left -
                              likes.predicted_sum_s / likes.num_ended);
    sum_s += likes.num_left * std::max(duration_s, usual_s(num_at_once) / 4) / num_at_once;
  }
  return num_left > 0 ? sum_s / num_left : 0;
}

/// The mean share of members that a tuner chooses.
double TimeEstimate::share_of_choices() const {
  const std::size_t count = std::min(recent_runs, ended_.size());
  double sum_s = 0;
  for (std::size_t back = 1; back <= count; ++back)
    sum_s += ended_[ended_.size() - back].duration_s / ended_[ended_.size() - back].num_at_once;
  return count > 0 ? sum_s / static_cast<double>(count) : 0;
}

TimeEstimate::Range TimeEstimate::of_first_runs(const ExpectedRuns& runs, double now_s) const {
  double num_left = 0;
  for (const auto& [num_at_once, likes] : likes_) num_left += likes.num_left;
  const bool are_all = runs.low >= num_left;
  const double share_s = are_all ? share_of_rest() : share_of_choices();
  double running_s = 0;
  for (const auto& [run, one] : running_) {
    if (one.kind == Kind::final) continue;
    const int num_at_once = std::max(1, members_[one.member].num_at_once);
    const double usual = usual_s(num_at_once);
    constexpr double least_share = 0.1;  // of a run that takes longer than usual
    running_s += std::max(least_share * usual, usual - (now_s - one.began_s)) / num_at_once;
  }
  double mean_s = 0, squares = 0;
  for (const Ended& one : ended_) mean_s += one.duration_s / static_cast<double>(ended_.size());
  for (const Ended& one : ended_) squares += std::pow(one.duration_s - mean_s, 2);
  const double error = std::min(
      0.5, error_of_durations +
               (mean_s > 0 ? 1.3 * std::sqrt(squares) / mean_s / static_cast<double>(ended_.size())
                           : 0));
  const double stretched = stretch(now_s);
  const auto seconds = [&](double count, double factor) {
    return stretched * (running_s + count * share_s) * factor;
  };
  return {seconds(runs.likely, 1), seconds(runs.low, 1 - error), seconds(runs.high, 1 + error)};
}

TimeEstimate::Range TimeEstimate::of_finals(const Expected& expected, double now_s) const {
  const ExpectedRuns& runs = expected.finals;
  const double each_s = num_finals_ > 0 ? (finals_ended_s_ - *finals_began_s_) / num_finals_
                                        : expected.final_s + pause_in_finals_s;
  double running_s = 0;
  for (const auto& [run, one] : running_)
    if (one.kind == Kind::final)
      running_s += std::max(0.0, static_cast<double>(one.turns) * each_s - (now_s - one.began_s));
  const double error = num_finals_ > 0 ? error_of_durations : 2 * error_of_durations;
  const auto seconds = [&](double count, double factor) {
    return (running_s + count * each_s) * factor;
  };
  return {seconds(runs.likely, 1), seconds(runs.low, 1 - error), seconds(runs.high, 1 + error)};
}

double TimeEstimate::search_s(const ExpectedRuns& first_runs, double now_s) const {
  if (ended_.empty() || !began_s_) return 0;
  const double left_s = of_first_runs(first_runs, now_s).likely;
  return (left_s > 0 ? now_s + left_s : search_ended_s_.value_or(now_s)) - *began_s_;
}

std::optional<TimeLeft> TimeEstimate::left(const Expected& expected, double now_s) const {
  if (ended_.empty() || !expected.first_runs) return std::nullopt;
  // Once finals have begun, nothing else will.
  double num_left = 0;
  for (const auto& [num_at_once, likes] : likes_) num_left += likes.num_left;
  // A tuner says it when it chooses, and others may have begun since.
  const ExpectedRuns first_runs =
      finals_began_s_ ? ExpectedRuns{} : expected.first_runs->at_most(num_left);
  const Range search = of_first_runs(first_runs, now_s);
  const Range finals = of_finals(expected, now_s);
  TimeLeft left;
  left.seconds = search.likely + finals.likely;
  // Both are hardly ever wrong in the same direction and by as much.
  left.low_s = left.seconds - std::hypot(search.likely - search.low, finals.likely - finals.low);
  left.high_s = left.seconds + std::hypot(search.high - search.likely, finals.high - finals.likely);
  left.assumes = assumes(expected);
  if (left.seconds > expected.time_left_s)
    left.assumes += ", of which the time limit allows a part";
  for (double* const each : {&left.seconds, &left.low_s, &left.high_s})
    *each = std::max(0.0, std::min(*each, expected.time_left_s));
  return left;
}

std::string TimeEstimate::assumes(const Expected& expected) const {
  const double runs = expected.first_runs->likely;
  const double finals = expected.finals.likely;
  if (finals_began_s_)
    return fmt::format("about {} of the finals, one at a time", count_text(finals, "more run"));
  std::string text;
  if (runs >= 0.5) {
    double at_once = 0;
    const std::size_t count = std::min(recent_runs, ended_.size());
    for (std::size_t back = 1; back <= count; ++back)
      at_once += ended_[ended_.size() - back].num_at_once / static_cast<double>(count);
    const double share_s = share_of_choices();
    text = fmt::format("about {} of {}", count_text(runs, "more experiment"),
                       format_duration(share_s * at_once));
    if (at_once >= 1.5) text += fmt::format(", {:.0f} at once", at_once);
  } else {
    text = "the end of what runs";
  }
  if (finals >= 0.5) text += fmt::format(", then finals of about {}", count_text(finals, "run"));
  return text;
}

}  // namespace dstune
