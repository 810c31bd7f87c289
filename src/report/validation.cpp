#include "dstune/report/validation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "dstune/base/error.hpp"
#include "row.hpp"

namespace dstune {

namespace {

bool is_final_round(const Repeat& repeat) {
  return repeat.kind == RepeatKind::final_round && mean_step_s(repeat.measurement) > 0;
}

/// Half of an interval's width, of the logarithm.
double half_width(const MetricValue& value) {
  const bool is_bounded = value.ci_low > 0 && std::isfinite(value.ci_high);
  return is_bounded ? std::log(value.ci_high / value.ci_low) / 2
                    : std::numeric_limits<double>::infinity();
}

std::vector<std::vector<double>> means_in_search(const Report& report) {
  std::vector<std::vector<double>> means;
  for (const Row& row : report.rows) {
    std::vector<double> of_row;
    for (const Repeat& repeat : row.repeats)
      if (repeat.kind == RepeatKind::spread && mean_step_s(repeat.measurement) > 0)
        of_row.push_back(mean_step_s(repeat.measurement));
    if (of_row.empty() || !row.record) continue;
    if (const double first_s = mean_step_s(row.record->measurement); first_s > 0)
      of_row.push_back(first_s);
    means.push_back(std::move(of_row));
  }
  return means;
}

std::vector<std::vector<double>> means_of_finals(const Report& report) {
  std::vector<std::vector<double>> means;
  for (const std::size_t index : report.validation.finalists) {
    std::vector<double> of_row;
    for (const Repeat& repeat : report.rows[index].repeats)
      if (is_final_round(repeat)) of_row.push_back(mean_step_s(repeat.measurement));
    if (!of_row.empty()) means.push_back(std::move(of_row));
  }
  return means;
}

/// More than this is worth another run (design 7).
constexpr double worth_finding = 0.01;

int num_final_tries(const Row& row) {
  return static_cast<int>(
      std::count_if(row.repeats.begin(), row.repeats.end(),
                    [](const Repeat& repeat) { return repeat.kind == RepeatKind::final_round; }));
}

/// The finalist that is best so far, and those that are more than 1 % better with a chance of 5 %
/// or more; in their order. None where every run of all failed.
std::vector<std::size_t> contenders(const Report& report) {
  const double sign = is_minimised(report.metric) ? -1 : 1;
  struct Standing {
    std::size_t index;
    double goodness;
    int count;
  };
  std::vector<Standing> standings;
  for (const std::size_t index : report.validation.finalists) {
    const Row& row = report.rows[index];
    const auto value = final_value(report, row, report.metric);
    if (!value) continue;
    // What a calibration makes of it, it makes of the first run.
    const double calibrated =
        ranked_value(report, row)->value / value_in(*row.record, report.metric)->value;
    standings.push_back({index, sign * std::log(value->value * calibrated), num_final_rounds(row)});
  }
  if (standings.empty()) return {};
  const Standing leader = *std::max_element(
      standings.begin(), standings.end(),
      [](const Standing& one, const Standing& other) { return one.goodness < other.goodness; });
  const Spread spread = believed_spread(spread_of_finals(report));
  // Both sides of 90 % are 5 % each.
  const double reach = spread.deviation * student_t(0.9, spread.degrees_of_freedom);
  std::vector<std::size_t> result;
  for (const Standing& one : standings) {
    const double error = reach * std::sqrt(1.0 / one.count + 1.0 / leader.count);
    if (one.index == leader.index ||
        one.goodness + error > leader.goodness + std::log1p(worth_finding))
      result.push_back(one.index);
  }
  if (result.size() == 1 && leader.count >= final_rounds) return {};
  return result;
}

}  // namespace

std::optional<FinalRun> next_final_run(const Report& report) {
  require(!report.validation.is_done, "there are no runs after the last one");
  for (int round = 1; round <= most_final_rounds; ++round) {
    for (const std::size_t index :
         round <= least_final_rounds ? report.validation.finalists : contenders(report))
      if (num_final_tries(report.rows[index]) < round) return FinalRun{index, round};
  }
  return std::nullopt;
}

double mean_step_s(const Measurement& measurement) {
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (measurement.status != Status::ok || timed_s.empty()) return 0;
  return std::accumulate(timed_s.begin(), timed_s.end(), 0.0) / static_cast<double>(timed_s.size());
}

std::vector<std::size_t> finalists(const Report& report) {
  constexpr std::size_t looked_at = 20;
  require(!report.validation.is_done, "finalists are chosen by their first runs");
  std::vector<std::size_t> best = best_rows(report, looked_at);
  if (best.empty()) return best;
  const Spread spread = believed_spread(spread_in_search(report));
  // Of a difference of two runs.
  const double runs =
      std::sqrt(2.0) * spread.deviation * student_t(0.95, spread.degrees_of_freedom);
  const MetricValue winner = *ranked_value(report, report.rows[best.front()]);
  const auto is_clearly_behind = [&](std::size_t index) {
    const MetricValue value = *ranked_value(report, report.rows[index]);
    const double behind = std::abs(std::log(value.value / winner.value));
    return behind > std::hypot(half_width(value), half_width(winner), runs);
  };
  best.erase(std::remove_if(best.begin() + 1, best.end(), is_clearly_behind), best.end());
  best.resize(std::min(best.size(), most_finalists));
  return best;
}

Spread spread_in_search(const Report& report) {
  return spread_of(means_in_search(report));
}

Spread spread_of_finals(const Report& report) {
  return spread_of(means_of_finals(report));
}

double half_width_of_run(const Report& report) {
  std::vector<std::vector<double>> means = means_in_search(report);
  for (std::vector<double>& of_row : means_of_finals(report)) means.push_back(std::move(of_row));
  return half_width_of_run(believed_spread(spread_of(means)));
}

int num_final_rounds(const Row& row) {
  return static_cast<int>(std::count_if(row.repeats.begin(), row.repeats.end(), is_final_round));
}

std::optional<MetricValue> final_value(const Report& report, const Row& row, Metric metric) {
  const Experiment& experiment = row.planned.experiment;
  const int group_size = experiment.shape.size();
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (const Repeat& repeat : row.repeats) {
    if (!is_final_round(repeat)) continue;
    const auto value = metric_value(repeat.measurement, metric,
                                    global_batch(experiment.config, group_size), group_size);
    if (!value || !(value->value > 0)) continue;
    sum += std::log(value->value);
    squares += std::pow(half_width(*value), 2);
    ++count;
  }
  if (count == 0) return std::nullopt;
  const Spread spread = spread_of_finals(report);
  const double of_steps = std::sqrt(squares) / count;
  const double of_runs =
      spread.degrees_of_freedom > 0
          ? student_t(0.95, spread.degrees_of_freedom) * spread.deviation / std::sqrt(count)
          : 0;
  const double half = std::max(of_steps, of_runs);
  const double value = std::exp(sum / count);
  return MetricValue{value, value * std::exp(-half), value * std::exp(half)};
}

}  // namespace dstune
