// How sure an answer is, in a number and in words.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "dstune/report/validation.hpp"

namespace dstune {

namespace {

/// What is believed of a row: the logarithm of its value, larger is better.
struct Competitor {
  double mean = 0;
  double standard_error = 0;
  double degrees_of_freedom = 1;
};

constexpr double no_precision = 0.2;  ///< where an interval has no end

Competitor competitor(const Report& report, const Row& row, const Spread& in_search,
                      const Spread& of_finals) {
  const MetricValue value = *ranked_value(report, row);
  Competitor result;
  result.mean = std::log(value.value) * (is_minimised(report.metric) ? -1 : 1);
  const bool is_bounded = value.ci_low > 0 && std::isfinite(value.ci_high);
  const double half = is_bounded
                          ? std::min(no_precision, std::log(value.ci_high / value.ci_low) / 2)
                          : no_precision;
  if (report.validation.is_done && num_final_rounds(row) > 0) {
    result.degrees_of_freedom = std::max(1.0, of_finals.degrees_of_freedom);
    result.standard_error = half / student_t(0.95, result.degrees_of_freedom);
  } else {
    result.degrees_of_freedom = in_search.degrees_of_freedom;
    result.standard_error = std::hypot(half / 2, in_search.deviation);
  }
  return result;
}

std::string percent(double share) {
  if (share > 0.999) return "more than 99.9 %";
  if (share < 0.001) return "less than 0.1 %";
  return fmt::format("{:.3g} %", 100 * share);
}

}  // namespace

double chance_of_best(const Report& report, const Row& answer) {
  constexpr std::size_t most_competitors = 20;
  constexpr int draws = 4000;
  const Spread in_search = believed_spread(spread_in_search(report));
  const Spread of_finals = spread_of_finals(report);
  std::vector<Competitor> all = {competitor(report, answer, in_search, of_finals)};
  for (const std::size_t index : best_rows(report, most_competitors))
    if (report.rows[index].planned.experiment.name != answer.planned.experiment.name)
      all.push_back(competitor(report, report.rows[index], in_search, of_finals));

  std::mt19937_64 generator(0);
  const auto draw = [&](const Competitor& one) {
    if (one.standard_error == 0) return one.mean;
    std::student_t_distribution<double> student(one.degrees_of_freedom);
    return one.mean + one.standard_error * student(generator);
  };
  int won = 0;
  for (int i = 0; i < draws; ++i) {
    const double mine = draw(all.front());
    // A tie is a win: the rule that broke it has chosen.
    won += std::all_of(all.begin() + 1, all.end(),
                       [&](const Competitor& other) { return draw(other) <= mine; })
               ? 1
               : 0;
  }
  return static_cast<double>(won) / draws;
}

namespace {

/// What no final round has put right may look better than what was measured again.
std::optional<std::size_t> best_in_a_single_run(const Report& report, const Row& answer) {
  const double sign = is_minimised(report.metric) ? -1 : 1;
  const auto goodness = [&](const Row& row) {
    const auto value = ranked_value(report, row);
    return value ? sign * value->value : -std::numeric_limits<double>::infinity();
  };
  std::optional<std::size_t> best;
  double most = goodness(answer);
  for (std::size_t index = 0; index < report.rows.size(); ++index) {
    const Row& row = report.rows[index];
    if (num_final_rounds(row) > 0 || !(goodness(row) > most)) continue;
    most = goodness(row);
    best = index;
  }
  return best;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> confidence_lines(const Report& report,
                                                                  const Row& answer) {
  std::vector<std::pair<std::string, std::string>> lines;
  const Validation& validation = report.validation;
  if (validation.is_done && num_final_rounds(answer) > 0) {
    const std::size_t others = validation.finalists.size() - 1;
    const Spread spread = spread_of_finals(report);
    lines.emplace_back(
        "measured again",
        fmt::format("{} times, alone{}; runs differ by {:.2g} % (standard deviation)",
                    num_final_rounds(answer),
                    others > 0 ? fmt::format(", in turns with {} other finalist{}", others,
                                             others == 1 ? "" : "s")
                               : "",
                    100 * spread.deviation));
    if (const auto faster = best_in_a_single_run(report, answer))
      lines.emplace_back(
          "faster in a single run",
          fmt::format("{}, {} {}: not one of the finalists, so that it does not count",
                      report.rows[*faster].planned.experiment.name,
                      format_number(ranked_value(report, report.rows[*faster])->value),
                      unit_text(report.metric)));
  } else if (!validation.reason.empty()) {
    lines.emplace_back("not measured again", validation.reason);
  }
  lines.emplace_back("the best of what was measured",
                     "with a probability of " + percent(chance_of_best(report, answer)));
  if (report.chance_of_better)
    lines.emplace_back("something that was not run is more than 1 % better",
                       "with a probability of " + percent(*report.chance_of_better));
  return lines;
}

}  // namespace dstune
