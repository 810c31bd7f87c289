#include "answer_text.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/units.hpp"

namespace dstune {

namespace {

/// "module call"
std::string words_of(Overhead overhead) {
  std::string words(to_text(overhead));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string calibration_text(const CalibrationSummary& calibration) {
  const TimeCalibration& fit = calibration.fit;
  std::string text = fmt::format("measured times x {:.4g}", fit.scale);
  for (std::size_t each = 0; each < fit.costs_s.size(); ++each) {
    if (fit.costs_s[each] > 0)
      text += fmt::format(" + {:.4g} us for each {}", fit.costs_s[each] * 1e6,
                          words_of(static_cast<Overhead>(each)));
  }
  if (const std::int64_t bytes = calibration.memory_offset_bytes; bytes != 0)
    text += fmt::format("; memory of the training {} {}", bytes > 0 ? "+" : "-",
                        format_bytes(std::abs(bytes)));
  for (const CalibrationSummary::Run& run : calibration.runs)
    text += fmt::format("; {}: {:.4g} s, fitted {:.4g} s ({:+.1f} %)", run.name, run.step_s,
                        run.fitted_s, 100 * (run.fitted_s / run.step_s - 1));
  return text;
}

std::string percent(double share) {
  if (share > 0.999) return "more than 99.9 %";
  if (share < 0.001) return "less than 0.1 %";
  return fmt::format("{:.3g} %", 100 * share);
}

std::string measured_again_text(const Answer& answer) {
  const std::size_t others = answer.finalists.size() - 1;
  return fmt::format("{} times, alone{}; runs differ by {:.2g} % (standard deviation)",
                     answer.recommendation->final_rounds,
                     others > 0 ? fmt::format(", in turns with {} other finalist{}", others,
                                              others == 1 ? "" : "s")
                                : "",
                     100 * answer.spread_of_finals.deviation);
}

std::string flag_words(const FlagCount& flag) {
  const bool is_one = flag.count == 1;
  switch (flag.kind) {
    case FlagKind::unsteady:
      return is_one ? " was not steady" : "s were not steady";
    case FlagKind::throttled:
      return is_one ? " had a GPU that was throttled" : "s had GPUs that were throttled";
    case FlagKind::not_comparable:
      return is_one ? " shared a GPU or went through the host"
                    : "s shared GPUs or went through the host";
  }
  return "";
}

}  // namespace

std::string choice_text(const Recommendation& recommendation) {
  if (!recommendation.ahead_here) return "";
  const Standing& ahead = *recommendation.ahead_here;
  return fmt::format("DeepSpeed itself made {} {} with it and {} with {}, which was ahead here",
                     format_number(recommendation.standing.verified->value),
                     unit_text(recommendation.metric), format_number(ahead.verified->value),
                     ahead.row->planned.experiment.name);
}

std::vector<std::pair<std::string, std::string>> confidence_lines(const Answer& answer) {
  const Recommendation& recommendation = *answer.recommendation;
  std::vector<std::pair<std::string, std::string>> lines;
  if (recommendation.calibration)
    lines.emplace_back("calibrated", calibration_text(*recommendation.calibration));
  if (recommendation.final_rounds > 0) {
    lines.emplace_back("measured again", measured_again_text(answer));
    if (answer.faster_in_a_single_run) {
      const Standing& faster = answer.standings[*answer.faster_in_a_single_run];
      lines.emplace_back(
          "faster in a single run",
          fmt::format("{}, {} {}: not one of the finalists, so that it does not "
                      "count",
                      faster.row->planned.experiment.name, format_number(faster.ranked->value),
                      unit_text(answer.metric)));
    }
  } else if (!answer.no_finals_reason.empty()) {
    lines.emplace_back("not measured again", answer.no_finals_reason);
  }
  lines.emplace_back("the best of what was measured",
                     "with a probability of " + percent(recommendation.probability_best));
  if (recommendation.chance_of_better)
    lines.emplace_back("something that was not run is more than 1 % better",
                       "with a probability of " + percent(*recommendation.chance_of_better));
  if (const auto& joules = recommendation.standing.joules_per_sample)
    lines.emplace_back("energy", fmt::format("{} J a sample", format_number(*joules)));
  return lines;
}

std::string changed_numerics_text(const Experiment& experiment) {
  const std::vector<std::string> keys = changed_numerics(experiment);
  if (keys.empty()) return "";
  return fmt::format("by {}: its losses are others than without", fmt::join(keys, " and "));
}

std::vector<std::string> warning_lines(const Answer& answer) {
  std::vector<std::string> lines;
  for (const SlowHost& slow : answer.slow_hosts)
    lines.push_back(
        fmt::format("host {} is slow: forward takes {:.0f} % longer there than on the "
                    "other hosts, in all of its {} groups",
                    slow.host, 100 * slow.slower_by, slow.groups));
  for (const FlagCount& flag : answer.flags)
    lines.push_back(fmt::format("{} experiment{}, for instance {}: {}", flag.count,
                                flag_words(flag), flag.first_name, flag.first_flag));
  return lines;
}

}  // namespace dstune
