#include "parts.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// In the summary; a script that is told of in each of its runs would fill it.
constexpr std::size_t most_notes = 10;

/// How many characters stand behind the decimal point (or behind the exponent's letter where there
/// is no point); −1 for an integer.
std::ptrdiff_t places_behind_point(const std::string& cell) {
  std::size_t at = cell.rfind('.');
  if (at == std::string::npos) at = cell.find_last_of("eE");
  if (at == std::string::npos) return -1;
  return static_cast<std::ptrdiff_t>(cell.size() - at) - 1;
}

void align_decimal_points(std::vector<std::string>& cells) {
  std::ptrdiff_t most = -1;
  for (const std::string& cell : cells) most = std::max(most, places_behind_point(cell));
  for (std::string& cell : cells)
    cell.append(static_cast<std::size_t>(most - places_behind_point(cell)), ' ');
}

/// A column's cells, the header first, at its width.
std::vector<std::string> padded(const Column& column, std::vector<std::string> cells) {
  const bool is_number = column.type == ColumnType::number;
  if (is_number) align_decimal_points(cells);
  std::size_t width = column.header.size() + 2;
  for (const std::string& cell : cells) width = std::max(width, cell.size());
  cells.insert(cells.begin(), column.header);
  for (std::string& cell : cells)
    cell.insert(is_number ? 0 : cell.size(), width - cell.size(), ' ');
  return cells;
}

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
    if (costs_s[each] > 0 && is_beside_device(overhead) == beside_device)
      text += fmt::format(" + {:.4g} us for each {}", costs_s[each] * 1e6, words_of(overhead));
  }
  return text;
}

std::string time_text(const TimeCalibration& time, Precision precision) {
  const std::string scaled = fmt::format("measured times x {:.4g}", time.scale_of(precision));
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

std::string percent(double share) {
  if (share > 0.999) return "more than 99.9 %";
  if (share < 0.001) return "less than 0.1 %";
  return fmt::format("{:.3g} %", 100 * share);
}

std::string measured_again_text(const Answer& answer) {
  const int rounds = answer.recommendation->final_rounds;
  const std::size_t finalists = answer.finalists.size();
  return fmt::format("{}, alone{}", format_count(rounds, "time"),
                     finalists > 1 ? fmt::format(", in turns; {} finalists", finalists) : "");
}

/// The notes on experiments: each note once, with the first that has it.
std::vector<std::string> note_lines(const Answer& answer) {
  std::vector<std::string> lines;
  std::set<std::string> told;
  const auto add = [&](const Experiment& experiment, const Measurement& measurement) {
    for (const std::string& note : measurement.notes)
      if (told.insert(note).second) lines.push_back(fmt::format("{}: {}", experiment.name, note));
  };
  for (const Standing& standing : answer.standings) {
    const Experiment& experiment = standing.row->planned.experiment;
    if (standing.row->record) add(experiment, standing.row->record->measurement);
    for (const Repeat& repeat : standing.row->repeats) add(experiment, repeat.measurement);
  }
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

bool file_name::is_temporary(std::string_view name) {
  constexpr std::string_view begin = ".dstune-";
  constexpr std::string_view end = ".tmp";
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size())
    return false;
  std::string_view middle = name.substr(begin.size());
  middle.remove_suffix(end.size());
  const std::size_t dash = middle.find('-');
  if (dash == std::string_view::npos) return false;
  const std::string_view who = middle.substr(0, dash);
  const std::string_view which = middle.substr(dash + 1);
  const auto all = [](std::string_view text, int (*is_one)(int)) {
    return !text.empty() && std::ranges::all_of(text, [&](char character) {
      return is_one(static_cast<unsigned char>(character)) != 0;
    });
  };
  if (who == "lock" || who == "probe") return which.size() == 6 && all(which, std::isalnum);
  return all(who, std::isdigit) && all(which, std::isdigit);
}

std::string interval_text(const std::optional<MetricValue>& value) {
  if (!value || !std::isfinite(value->ci_high)) return "";
  return fmt::format("{} to {}", format_number(value->ci_low), format_number(value->ci_high));
}

std::string value_text(const MetricValue& value, Metric metric) {
  const std::string interval = interval_text(value);
  return fmt::format("{} {}{}", format_number(value.value), unit_text(metric),
                     interval.empty() ? "" : fmt::format(" (95 % interval {})", interval));
}

std::string json_text(const json::Value& value, int indent) {
  return value.dump(indent, ' ', false, json::Value::error_handler_t::replace);
}

json::Value without_tuning(json::Value ds_config) {
  ds_config.erase("autotuning");
  ds_config.erase("dstune");
  return ds_config;
}

std::string filled(std::string_view pattern,
                   std::initializer_list<std::pair<std::string_view, std::string>> texts) {
  std::string out;
  while (true) {
    const std::size_t begin = pattern.find('@');
    out += pattern.substr(0, begin);
    if (begin == std::string_view::npos) return out;
    pattern.remove_prefix(begin + 1);
    const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& each) {
      return pattern.starts_with(each.first) && pattern.substr(each.first.size()).starts_with('@');
    });
    out += found == texts.end() ? "@" : found->second;
    if (found != texts.end()) pattern.remove_prefix(found->first.size() + 1);
  }
}

std::string pipe_table(const std::vector<Column>& columns, const std::vector<TableRow>& rows) {
  std::vector<std::string> lines(rows.size() + 1);
  std::string rule;
  for (std::size_t index = 0; index < columns.size(); ++index) {
    std::vector<std::string> cells;
    for (const TableRow& row : rows) cells.push_back(row[index]);
    cells = padded(columns[index], std::move(cells));
    for (std::size_t line = 0; line < lines.size(); ++line) lines[line] += "| " + cells[line] + " ";
    const std::string dashes(cells.front().size() + 1, '-');
    rule += columns[index].type == ColumnType::number ? "|" + dashes + ":" : "|:" + dashes;
  }
  lines.insert(lines.begin() + 1, rule);
  return fmt::format("{}|\n", fmt::join(lines, "|\n"));
}

bool has_targets(const Answer& answer) {
  return std::ranges::any_of(answer.standings,
                             [](const Standing& one) { return one.target.has_value(); });
}

std::string target_text(const Recommendation& recommendation) {
  if (!recommendation.constants) return "";
  const TargetConstants& constants = *recommendation.constants;
  const Precision precision = recommendation.standing.row->planned.experiment.config.precision;
  const std::string scaled =
      fmt::format("measured times x {:.2f}", constants.time.scale_of(precision));
  const bool is_calibrated = recommendation.calibration.has_value();
  const std::string recorded = fmt::format("{} on {}", constants.source, constants.machine);
  std::string judged;
  if (constants.num_engines > 0)
    judged = fmt::format(
        "measured here by {} tiny engines, off by {:.1f} % of their times; what these do not tell "
        "is as fitted to {}",
        constants.num_engines, 100 * constants.fit_error, recorded);
  else if (constants.error > 0)
    judged = fmt::format(
        "off by {:.1f} % on average, but for one common factor, where {} judged; fitted to {}",
        100 * constants.error, is_calibrated ? "they were" : "it was", recorded);
  else
    judged = "not judged yet; fitted to " + recorded;
  if (recommendation.calibration)
    return "fitted to your own runs, beginning with constants that were " + judged;
  if (!constants.time.is_device_behind_host)
    return fmt::format("{} + costs of DeepSpeed's own work, {}", scaled, judged);
  return fmt::format(
      "the longer of {} and of DeepSpeed's work on the host, + the update's and the network's, {}",
      scaled, judged);
}

std::string collective_kind(Overhead overhead) {
  if (!is_of_network(overhead) || overhead == Overhead::communicated_byte) return "";
  constexpr std::string_view end = "_call";
  std::string kind(to_text(overhead));
  if (kind.ends_with(end)) kind.resize(kind.size() - end.size());
  return kind;
}

std::string choice_text(const Recommendation& recommendation) {
  if (const auto& other = recommendation.as_good_with_more_memory)
    return fmt::format("it takes less memory than {}, which is as good", *other);
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
    lines.emplace_back(
        "calibrated",
        calibration_text(*recommendation.calibration,
                         recommendation.standing.row->planned.experiment.config.precision));
  if (recommendation.final_rounds > 0)
    lines.emplace_back("measured again", measured_again_text(answer));
  else if (!answer.no_finals_reason.empty())
    lines.emplace_back("not measured again", answer.no_finals_reason);
  lines.emplace_back("the best of what was measured",
                     probability_text(recommendation.probability_best));
  if (recommendation.chance_of_better)
    lines.emplace_back("something that was not run is more than 1 % better",
                       probability_text(*recommendation.chance_of_better));
  if (const std::string text = undecided_text(recommendation); !text.empty())
    lines.emplace_back("undecided", text);
  if (const auto& joules = recommendation.standing.joules_per_sample)
    lines.emplace_back("energy", fmt::format("{} J a sample", format_number(*joules)));
  return lines;
}

std::string probability_text(double probability) {
  return "with a probability of " + percent(probability);
}

std::string undecided_text(const Recommendation& recommendation) {
  if (recommendation.undecided.empty()) return "";
  std::vector<std::string> parts;
  for (const Undecided& one : recommendation.undecided)
    parts.push_back(fmt::format("{} (better by at most {:.2g} %)", one.name, 100 * one.at_most));
  std::string text = fmt::format("as good may be {}", fmt::join(parts, ", "));
  if (recommendation.more_time_s)
    text += fmt::format("; about {} of further runs would tell the first of them apart to 1 %",
                        format_duration(*recommendation.more_time_s));
  return text;
}

std::string batch_change_text(const Recommendation& recommendation) {
  if (!recommendation.batch_change) return "";
  const auto& [today, answer] = *recommendation.batch_change;
  const double ratio = static_cast<double>(answer) / static_cast<double>(today);
  return fmt::format(
      "{} today, {} in the answer: a usual rule takes {:.3g} times the learning rate with "
      "Adam (square root, arXiv:2205.10287), {:.3g} times with SGD (linear, arXiv:1706.02677); "
      "\"global_batch\": \"keep\" in dstune keeps the batch",
      format_count(today, "sample"), answer, std::sqrt(ratio), ratio);
}

std::string gain_text(const Recommendation& recommendation) {
  if (!recommendation.baseline) return "";
  const BaselineStanding& baseline = *recommendation.baseline;
  const std::string& name = baseline.name;
  if (baseline.member == recommendation.member)
    return fmt::format("{} is the baseline: nothing was better by more than the interval", name);
  if (!baseline.gain) return fmt::format("the baseline {} gave no result", name);
  const double factor = 1 + *baseline.gain;
  return fmt::format("{:.3g} times as fast as the baseline {}", factor, name);
}

std::string cost_text(const Recommendation& recommendation) {
  const TuningCost& cost = recommendation.cost;
  std::string hours =
      fmt::format("{}, {:.3g} GPU-hours", format_duration(cost.elapsed_s), cost.gpu_hours);
  if (cost.earlier_jobs > 0)
    hours += fmt::format(", {} included", format_count(cost.earlier_jobs, "earlier job"));
  if (!cost.earned_back_steps) return hours + "; not earned back: there is no gain";
  return fmt::format("{}; earned back after {:.0f} optimizer steps with it", hours,
                     *cost.earned_back_steps);
}

std::string machine_text(const Answer& answer) {
  if (!answer.machine) return "";
  const MachineConduct& machine = *answer.machine;
  std::string text = fmt::format("runs differ by {:.2g} %, drift by {:.2g} %",
                                 100 * machine.run_deviation, 100 * machine.drift_deviation);
  if (const long disturbed = std::lround(machine.disturbed_runs); disturbed > 0)
    text += fmt::format(", {} of {} runs were disturbed", disturbed, machine.num_runs);
  if (machine.are_steps_interrupted)
    text += ", steps are interrupted, so that speeds are those of undisturbed steps";
  if (machine.load) {
    text += fmt::format("; load {:.1f} on {} cores", machine.load->load_average,
                        machine.load->num_cores);
    if (machine.load->stolen_share >= 0.001)
      text += fmt::format(", {:.1f} % of their time stolen", 100 * machine.load->stolen_share);
  }
  if (!answer.recommendation || answer.recommendation->undecided.empty())
    return text + "; the answer is clear all the same";
  double most = 0;
  for (const Undecided& one : answer.recommendation->undecided) most = std::max(most, one.at_most);
  return text +
         fmt::format("; so others may be better than the answer by up to {:.2g} %", 100 * most);
}

std::string changed_numerics_text(const Experiment& experiment) {
  const std::vector<std::string> keys = changed_numerics(experiment);
  if (keys.empty()) return "";
  return fmt::format("by {}: its losses differ from those without", fmt::join(keys, " and "));
}

std::string large_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  for (const auto& [unit, name] : {std::pair(1e12, "trillion"), {1e9, "billion"}, {1e6, "million"}})
    if (value >= 0.9995 * unit)
      return value >= 100 * unit ? fmt::format("{:.0f} {}", value / unit, name)
                                 : fmt::format("{:.3g} {}", value / unit, name);
  return std::to_string(count);
}

std::string model_profile_text(const ModelProfile& profile) {
  const bool all_train = profile.trainable_parameters == profile.parameters;
  std::string text = fmt::format("{} parameters, {} trainable", large_count(profile.parameters),
                                 all_train ? "all" : large_count(profile.trainable_parameters));
  if (profile.activation_bytes && profile.loss_bytes)
    text += fmt::format(
        "; a sample of {} in {} keeps {} of activations without recompute, and its loss takes {}",
        format_count(static_cast<std::uint64_t>(profile.sequence_length), "token"),
        to_text(profile.precision), format_bytes(*profile.activation_bytes),
        format_bytes(*profile.loss_bytes));
  const bool is_small = profile.flops_per_token < 1e9;
  return text + fmt::format("; {:.3g} {} a token", profile.flops_per_token / (is_small ? 1e6 : 1e9),
                            is_small ? "MFLOP" : "GFLOP");
}

json::Value model_profile_json(const std::optional<ModelProfile>& profile) {
  if (!profile) return nullptr;
  const auto bytes = [](const std::optional<std::int64_t>& amount) {
    return amount ? json::Value(*amount) : json::Value();
  };
  return {{"parameters", profile->parameters},
          {"trainable_parameters", profile->trainable_parameters},
          {"sequence_length", profile->sequence_length},
          {"precision", to_text(profile->precision)},
          {"activation_bytes_per_sample", bytes(profile->activation_bytes)},
          {"loss_bytes_per_sample", bytes(profile->loss_bytes)},
          {"flops_per_token", profile->flops_per_token}};
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
  std::ranges::move(note_lines(answer), std::back_inserter(lines));
  return lines;
}

}  // namespace dstune
