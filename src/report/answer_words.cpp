#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// A share in percent, of two digits at least.
std::string rough_percent(double share) {
  const double percent = 100 * share;
  return percent < 100 ? fmt::format("{:.2g}", percent) : fmt::format("{:.0f}", percent);
}

/// In the summary; a script that is told of in each of its runs would fill it.
constexpr std::size_t most_notes = 10;

/// "module call", "call of all_gather"
std::string words_of(Overhead overhead) {
  if (overhead == Overhead::all_gather_ahead)
    return "call of all_gather that nobody waits for at once";
  if (const std::string kind = collective_kind(overhead); !kind.empty()) return "call of " + kind;
  std::string words(to_text(overhead));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

/// " + 20 us for each optimizer step", beside the device or not; empty where all are 0.
std::string costs_text(const Overheads& costs_s, bool beside_device) {
  std::string text;
  for (std::size_t each = 0; each < costs_s.size(); ++each) {
    const auto overhead = static_cast<Overhead>(each);
    if (overhead == Overhead::recompute || is_beside_device(overhead) != beside_device) continue;
    if (costs_s[each] > 0)
      text += fmt::format(" + {:.4g} us for each {}", costs_s[each] * 1e6, words_of(overhead));
  }
  return text;
}

std::string time_text(const TimeCalibration& time, Precision precision) {
  std::string scaled = fmt::format("measured times x {:.4g}", time.scale_of(precision));
  if (const double more = time.costs_s[static_cast<std::size_t>(Overhead::recompute)]; more > 0)
    scaled += fmt::format(" (x {:.4g} where blocks are recomputed)",
                          time.scale_of(precision) * (1 + more));
  const std::string beside = costs_text(time.costs_s, true);
  const std::string others = costs_text(time.costs_s, false);
  if (!time.is_device_behind_host || beside.empty()) return scaled + beside + others;
  constexpr std::size_t plus = 3;
  return fmt::format("the longer of {} and the host's {}{}", scaled, beside.substr(plus), others);
}

std::string calibration_text(const CalibrationSummary& calibration, Precision precision) {
  std::string text = time_text(calibration.fit, precision);
  if (const std::int64_t bytes = calibration.memory_offset_bytes; bytes != 0)
    text += fmt::format("; memory of the training {} {}", bytes > 0 ? "+" : "-",
                        format_bytes(std::abs(bytes)));
  for (const CalibrationSummary::Run& run : calibration.runs)
    text += fmt::format("; {}: {:.4g} s, fitted {:.4g} s ({:+.1f} %)", run.name, run.step_s,
                        run.fitted_s, 100 * (run.fitted_s / run.step_s - 1));
  return text;
}

std::string measured_again_text(const Answer& answer) {
  const int rounds = answer.recommendation->final_rounds;
  const std::size_t finalists = answer.finalists.size();
  return fmt::format("{}, alone{}", format_count(rounds, "time"),
                     finalists > 1 ? fmt::format(", in turns with {}",
                                                 format_count(finalists - 1, "other finalist"))
                                   : "");
}

/// The notes on experiments: each note once, with the first that has it.
std::vector<std::string> note_lines(const Answer& answer) {
  std::vector<std::string> lines;
  std::set<std::string> told;
  const auto add = [&](const Experiment& experiment, const Measurement& measurement) {
    for (const std::string& note : measurement.notes)
      if (told.insert(note).second) lines.push_back(fmt::format("{}: {}", experiment.name, note));
  };
  answer.standings.visit_open([&](std::size_t, const Standing& standing) {
    const Experiment& experiment = standing.row->planned.experiment;
    if (standing.row->record) add(experiment, standing.row->record->measurement);
    for (const Repeat& repeat : standing.row->repeats) add(experiment, repeat.measurement);
  });
  if (lines.size() > most_notes) {
    const std::size_t left_out = lines.size() - most_notes;
    lines.resize(most_notes);
    lines.push_back(fmt::format("{} more notes are in the files metrics.json", left_out));
  }
  return lines;
}

std::string flag_words(const FlagCount& flag) {
  const bool is_one = flag.count == 1;
  switch (flag.kind) {
    case FlagKind::unsteady:
      return is_one ? " was not steady" : "s were not steady";
    case FlagKind::throttled:
      return is_one ? " had a GPU that was throttled" : "s had GPUs that were throttled";
    case FlagKind::not_comparable:
      return is_one ? " is not comparable" : "s are not comparable";
    case FlagKind::fallback:
      return is_one ? " fell back to a slower way" : "s fell back to slower ways";
  }
  return "";
}

}  // namespace

bool has_targets(const Answer& answer) {
  bool is_any = false;
  answer.standings.visit_open(
      [&](std::size_t, const Standing& one) { is_any |= one.target.has_value(); });
  return is_any;
}

std::string target_text(const Recommendation& recommendation) {
  if (!recommendation.constants) return "";
  const TargetConstants& constants = *recommendation.constants;
  const Precision precision = recommendation.standing.row->planned.experiment.config.precision;
  const std::string scaled =
      fmt::format("{:.2f} x the measured time", constants.time.scale_of(precision));
  // The record that constants are fitted to is a long list: optimal.json has it.
  std::string judged = "not tested yet";
  if (constants.num_engines > 0)
    judged = fmt::format("measured here by {} tiny engines with an error of {:.1f} %",
                         constants.num_engines, 100 * constants.fit_error);
  else if (constants.error > 0)
    judged =
        fmt::format("average error in our tests {:.1f} % after scaling", 100 * constants.error);
  judged += host_text(constants) + " (target in optimal.json)";
  if (recommendation.calibration)
    return "fitted to your own runs; constants before that: " + judged;
  if (!constants.time.is_device_behind_host)
    return fmt::format("{} + DeepSpeed's overhead; {}", scaled, judged);
  return fmt::format(
      "the longer of {} and DeepSpeed's work on the host, + its update and network calls; {}",
      scaled, judged);
}

std::string collective_kind(Overhead overhead) {
  constexpr std::string_view end = "_call";
  std::string kind(to_text(overhead));
  if (overhead == Overhead::all_gather_ahead) return kind;
  if (!is_of_network(overhead) || !kind.ends_with(end)) return "";
  kind.resize(kind.size() - end.size());
  return kind;
}

std::string choice_text(const Recommendation& recommendation) {
  if (const auto& other = recommendation.as_good_with_more_memory)
    return fmt::format("it needs less memory than {}, which is as good", *other);
  if (!recommendation.ahead_here) return "";
  const Standing& ahead = *recommendation.ahead_here;
  return fmt::format("DeepSpeed itself reached {} {} with it, and {} with {}, which was ahead here",
                     format_number(recommendation.standing.verified->value),
                     unit_text(recommendation.metric), format_number(ahead.verified->value),
                     ahead.row->planned.experiment.name);
}

namespace {

/// The member with a better value than the answer's, where neither DeepSpeed nor memory says why
/// it is not the answer.
std::string better_value_text(const Answer& answer) {
  const Recommendation& recommendation = *answer.recommendation;
  if (recommendation.ahead_here || recommendation.as_good_with_more_memory) return "";
  const double sign = is_minimised(answer.metric) ? -1 : 1;
  const Standing* best = &recommendation.standing;
  answer.standings.visit_open([&](std::size_t, const Standing& one) {
    if (one.reported && sign * one.reported->value > sign * best->reported->value) best = &one;
  });
  if (best == &recommendation.standing) return "";
  return fmt::format("{} has {}; the runs do not tell the two apart",
                     best->row->planned.experiment.name,
                     value_text(*best->reported, answer.metric));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> confidence_lines(const Answer& answer) {
  const Recommendation& recommendation = *answer.recommendation;
  std::vector<std::pair<std::string, std::string>> lines;
  if (recommendation.calibration)
    lines.emplace_back(
        "calibrated",
        calibration_text(*recommendation.calibration,
                         recommendation.standing.row->planned.experiment.config.precision));
  if (recommendation.final_rounds > 0)
    lines.emplace_back("measured again", measured_again_text(answer));
  else if (!answer.no_finals_reason.empty())
    lines.emplace_back("not measured again", answer.no_finals_reason);
  if (std::string better = better_value_text(answer); !better.empty())
    lines.emplace_back("a better value", std::move(better));
  lines.emplace_back("chance that it is the best that was measured",
                     percent_text(recommendation.probability_best));
  if (recommendation.chance_of_better)
    lines.emplace_back(untested_words(answer.metric),
                       percent_text(*recommendation.chance_of_better));
  if (const std::string text = undecided_text(recommendation); !text.empty())
    lines.emplace_back("may be as good", text);
  if (const auto& doubt = recommendation.order_doubt) {
    constexpr double worth_a_name = 0.01;
    lines.emplace_back(
        fmt::format("chance that errors of the constants alone make another measured one more than "
                    "1 % {}",
                    is_speed(answer.metric) ? "faster" : "better"),
        percent_text(doubt->chance) +
            (doubt->chance_of_it < worth_a_name
                 ? ""
                 : fmt::format("; the likeliest is {} ({})", doubt->likeliest,
                               percent_text(doubt->chance_of_it))));
  }
  if (const auto& joules = recommendation.standing.joules_per_sample)
    lines.emplace_back("energy", fmt::format("{} J a sample", format_number(*joules)));
  return lines;
}

std::string percent_text(double share) {
  if (share > 0.999) return "more than 99.9 %";
  if (share < 0.001) return "less than 0.1 %";
  return fmt::format("{:.3g} %", 100 * share);
}

bool is_speed(Metric metric) {
  return metric == Metric::throughput || metric == Metric::latency;
}

std::string untested_words(Metric metric) {
  return fmt::format("chance that an untested member is more than 1 % {}",
                     is_speed(metric) ? "faster" : "better");
}

std::string label_words(std::string_view label) {
  if (label == "verified") return "your training ran it in DeepSpeed";
  if (label == "engine") return "DeepSpeed's engine ran it with random tokens";
  if (label == "calibrated") return "fitted to your own runs, not yet verified in DeepSpeed";
  return "not yet verified in DeepSpeed; verify.sbatch and verify.pbs do that";
}

std::string undecided_text(const Recommendation& recommendation) {
  if (recommendation.undecided.empty()) return "";
  std::string text = rivals_text(recommendation, recommendation.undecided.size());
  if (recommendation.more_time_s)
    text += fmt::format("; about {} of further runs would tell the first of them apart to 1 %",
                        format_duration(*recommendation.more_time_s));
  return text;
}

std::string rivals_text(const Recommendation& recommendation, std::size_t max_names) {
  const std::vector<Undecided>& rivals = recommendation.undecided;
  std::vector<std::string> parts;
  for (std::size_t place = 0; place < std::min(rivals.size(), max_names); ++place)
    parts.push_back(fmt::format("{} (at most {} % {})", rivals[place].name,
                                rough_percent(rivals[place].at_most),
                                is_speed(recommendation.metric) ? "faster" : "better"));
  return fmt::format(
      "{}{}", fmt::join(parts, ", "),
      rivals.size() > max_names ? fmt::format(" and {} more", rivals.size() - max_names) : "");
}

std::string batch_change_text(const Recommendation& recommendation) {
  if (!recommendation.batch_change) return "";
  const auto& [today, answer] = *recommendation.batch_change;
  const double ratio = static_cast<double>(answer) / static_cast<double>(today);
  return fmt::format(
      "{} instead of {}. A usual rule multiplies the learning rate by {:.3g} with Adam (square "
      "root, arXiv:2205.10287), by {:.3g} with SGD (linear, arXiv:1706.02677). "
      "\"global_batch\": \"keep\" in dstune keeps today's batch",
      format_count(answer, "sample"), today, std::sqrt(ratio), ratio);
}

std::string factor_text(const BaselineStanding& baseline) {
  std::string text = format_factor(1 + *baseline.gain);
  if (baseline.gain_low && baseline.gain_high)
    text += fmt::format(" ({} to {})", format_factor(1 + *baseline.gain_low),
                        format_factor(1 + *baseline.gain_high));
  return text;
}

std::string gain_text(const Recommendation& recommendation) {
  if (!recommendation.baseline) return "";
  const BaselineStanding& baseline = *recommendation.baseline;
  const std::string& name = baseline.name;
  if (baseline.member == recommendation.member)
    return fmt::format("{} is your configuration: nothing that was measured is clearly better",
                       name);
  if (!baseline.gain) return fmt::format("your configuration {} gave no result", name);
  return fmt::format("{} times as fast as your configuration {}", factor_text(baseline), name);
}

std::string cost_text(const Recommendation& recommendation) {
  const TuningCost& cost = recommendation.cost;
  std::string hours =
      fmt::format("{}, {:.3g} GPU-hours", format_duration(cost.elapsed_s), cost.gpu_hours);
  if (cost.earlier_jobs > 0)
    hours += fmt::format(", {} included", format_count(cost.earlier_jobs, "earlier job"));
  if (!cost.earned_back_steps) return hours + "; not earned back, since nothing is gained";
  return fmt::format("{}; earned back after {:.0f} optimizer steps of your training", hours,
                     *cost.earned_back_steps);
}

std::string machine_text(const Answer& answer) {
  if (!answer.machine) return "";
  const MachineConduct& machine = *answer.machine;
  std::string text =
      fmt::format("runs of one member differ by {} %, and drift by {} %",
                  rough_percent(machine.run_deviation), rough_percent(machine.drift_deviation));
  if (const long disturbed = std::lround(machine.disturbed_runs); disturbed > 0)
    text += fmt::format(". Something disturbed {} of {} runs", disturbed, machine.num_runs);
  if (const long loaded = std::lround(machine.loaded_runs); loaded > 0)
    text +=
        fmt::format(". In {} of {} runs the machine was up to {:.0f} % slower{}: that is taken off",
                    loaded, machine.num_runs, 100 * machine.largest_load,
                    // More is not told apart.
                    machine.largest_load > 1.7 ? " or more" : "");
  if (machine.are_steps_interrupted)
    text += ". Something interrupts steps, so speeds are those of undisturbed steps";
  if (machine.load) {
    text += fmt::format(". Load {:.1f} on {} cores", machine.load->load_average,
                        machine.load->num_cores);
    if (machine.load->stolen_share >= 0.001)
      text += fmt::format(", {:.1f} % of their time stolen", 100 * machine.load->stolen_share);
  }
  if (!answer.recommendation) return text;
  // Only runs that were made again tell.
  if (answer.recommendation->undecided.empty())
    return answer.recommendation->final_rounds > 0 ? text + ". The answer is still clear" : text;
  double most = 0;
  for (const Undecided& one : answer.recommendation->undecided) most = std::max(most, one.at_most);
  return text + fmt::format(". The measurements are noisy: another member may be up to {} % {}",
                            rough_percent(most), is_speed(answer.metric) ? "faster" : "better");
}

std::string_view prune_words(PruneKind kind) {
  switch (kind) {
    case PruneKind::twin:
      return "would run exactly like another";
    case PruneKind::batch:
      return "had batch sizes that do not go together";
    case PruneKind::refused:
      return "broke a rule of DeepSpeed or needed what is not there";
    case PruneKind::smaller_size:
      return "had a smaller micro-batch than the config asks for";
    case PruneKind::excluded:
      return "would fail as another one did";
    case PruneKind::early_stopping:
      return "came after early stopping";
    case PruneKind::cap:
      return "came after the limit of experiments";
    case PruneKind::not_chosen:
      return "promised too little to be run";
  }
  return "";
}

std::string changed_numerics_text(const Experiment& experiment) {
  const std::vector<std::string> keys = changed_numerics(experiment);
  if (keys.empty()) return "";
  return fmt::format("{} {} the losses of your training", fmt::join(keys, " and "),
                     keys.size() == 1 ? "changes" : "change");
}

std::vector<std::string> warning_lines(const Answer& answer) {
  std::vector<std::string> lines;
  for (const SlowHost& slow : answer.slow_hosts)
    lines.push_back(
        fmt::format("host {} is slow: forward takes {:.0f} % longer than on the other hosts, in "
                    "all of its {} groups",
                    slow.host, 100 * slow.slower_by, slow.groups));
  for (const FlagCount& flag : answer.flags)
    lines.push_back(fmt::format("{} experiment{}, for instance {}: {}", flag.count,
                                flag_words(flag), flag.first_name, flag.first_flag));
  std::ranges::move(note_lines(answer), std::back_inserter(lines));
  return lines;
}

}  // namespace dstune
