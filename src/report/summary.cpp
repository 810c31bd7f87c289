#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "dstune/report/results.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// A column of tables that list members, if they are ranked by the target's time.
Column measured_column() {
  return {"measured here", ColumnType::number};
}
std::string measured_cell(const Standing& standing) {
  return standing.measured ? format_number(standing.measured->value) : "";
}

std::string spaces_table(const Answer& answer) {
  if (answer.spaces.empty()) return "No experiment was run.\n";
  const std::vector<Column> columns = {{"tuning_space", ColumnType::text},
                                       {"num_experiments", ColumnType::number},
                                       {"best_metric_val", ColumnType::number},
                                       {"best_exp_name", ColumnType::text}};
  std::vector<TableRow> rows;
  for (const TuningSpace& space : answer.spaces) {
    // Like DeepSpeed, a space without a result shows 0 and its first experiment.
    const Standing& shown = answer.standings[space.best.value_or(space.first)];
    rows.push_back({space.name, std::to_string(space.num_experiments),
                    format_number(space.best ? shown.ranked->value : 0),
                    shown.row->planned.experiment.name});
  }
  return pipe_table(columns, rows);
}

std::string verified_text(const Standing& standing, Metric metric) {
  if (!standing.verified) return "";
  const std::int64_t peak_bytes = standing.row->verified->peak_memory.total_bytes;
  return fmt::format(
      "  in DeepSpeed itself: {}{}\n", value_text(*standing.verified, metric),
      peak_bytes > 0 ? fmt::format(", {} at its fullest", format_bytes(peak_bytes)) : "");
}

/// Says why members of a status did not run; empty of one whose members ran.
std::string_view idle_words(std::string_view status) {
  if (status == to_text(PlanStatus::infeasible)) return "would not fit into memory";
  if (status == "not_run") return "did not get their turn";
  return "";
}

std::string line_of(const std::string& what, const std::string& words) {
  return words.empty() ? "" : fmt::format("  {}: {}\n", what, words);
}

std::string measured_text(const Answer& answer) {
  const auto& measured = answer.recommendation->standing.measured;
  return measured ? fmt::format("{}, {}", value_text(*measured, answer.metric), answer.source) : "";
}

/// The memory that DeepSpeed's engine used, beside the plan for it; empty if the engine did not
/// run. Compared are only tensors of a GPU with tensors: a process that grows holds code and
/// libraries, too, and the plan of a GPU has what PyTorch does not count.
std::string memory_text(const Recommendation& recommendation) {
  const Record& record = *recommendation.standing.row->record;
  const std::int64_t used = record.measurement.peak_memory.total_bytes;
  if (!recommendation.is_by_engine || used <= 0) return "";
  const std::int64_t planned = record.predicted.target_memory_bytes;
  if (record.measurement.peak_memory.gpu_bytes == 0) {
    std::string text =
        fmt::format("DeepSpeed's engine made its process grow by {}", format_bytes(used));
    if (planned > 0) text += fmt::format("; tensors of {} were planned", format_bytes(planned));
    return text;
  }
  std::string text = fmt::format("{} of tensors in DeepSpeed's engine", format_bytes(used));
  const auto& parts = record.predicted.target_categories;
  const auto beside = parts.find("framework");
  if (planned == 0 || beside == parts.end()) return text;
  const std::int64_t tensors = planned - beside->second;
  return text + fmt::format(
                    ", {} planned ({:+.1f} %); the plan has {} more for context, libraries "
                    "and PyTorch's cache",
                    format_bytes(tensors),
                    100 * (static_cast<double>(tensors) / static_cast<double>(used) - 1),
                    format_bytes(beside->second));
}

std::string winner_text(const Answer& answer) {
  if (!answer.recommendation) return "";
  const Recommendation& recommendation = *answer.recommendation;
  const Record& record = *recommendation.standing.row->record;
  const std::string choice = choice_text(recommendation);
  const GroupShape& shape = record.experiment.shape;
  std::string text = fmt::format(
      "{}:\n"
      "{}{}{}"
      "  group size: {} ({} on each of {}), activation recompute: {}\n"
      "  label: {}\n"
      "{}",
      record.experiment.name, line_of("measured here", measured_text(answer)),
      verified_text(recommendation.standing, answer.metric),
      choice.empty() ? "" : fmt::format("  chosen because {}\n", choice), shape.size(),
      shape.num_gpus, format_count(shape.num_nodes, "node"),
      to_text(record.experiment.config.recompute), recommendation.label,
      line_of("expected time", target_text(recommendation)));
  text += line_of("gain", gain_text(recommendation));
  text += line_of("global batch", batch_change_text(recommendation));
  text += line_of("memory of a rank", memory_text(recommendation));
  text += line_of("changed numerics", changed_numerics_text(record.experiment));
  for (const auto& [what, words] : confidence_lines(answer)) text += line_of(what, words);
  return text + line_of(not_comparable_words, record.measurement.not_comparable);
}

/// A table of all members that DeepSpeed itself ran: the value that each was ranked by, and
/// DeepSpeed's.
std::string verification_text(const Answer& answer) {
  const bool with_target = has_targets(answer);
  std::vector<Column> columns = {
      {"in DeepSpeed itself", ColumnType::text},
      {"status", ColumnType::text},
      {with_target ? "expected there" : "here", ColumnType::number},
      {"there", ColumnType::number},
      {with_target ? "there/expected" : "there/here", ColumnType::number}};
  constexpr std::ptrdiff_t beside_expected = 2;
  if (with_target) columns.insert(columns.begin() + beside_expected, measured_column());
  std::vector<TableRow> rows;
  answer.standings.visit_open([&](std::size_t, const Standing& standing) {
    if (!standing.row->verified) return;
    const auto& there = standing.verified;
    const auto& here = standing.ranked;
    rows.push_back({standing.row->planned.experiment.name,
                    std::string(to_text(standing.row->verified->status)),
                    here ? format_number(here->value) : "",
                    there ? format_number(there->value) : "",
                    here && there ? fmt::format("{:.3f}", there->value / here->value) : ""});
    if (with_target)
      rows.back().insert(rows.back().begin() + beside_expected, measured_cell(standing));
  });
  return rows.empty() ? "" : pipe_table(columns, rows) + "\n";
}

std::string warnings_text(const Answer& answer) {
  std::string text;
  if (const std::string machine = machine_text(answer); !machine.empty())
    text += fmt::format("The machine: {}.\n", machine);
  for (const std::string& line : warning_lines(answer)) text += fmt::format("Note: {}.\n", line);
  return text;
}

/// How many members ended how, and why the others did not run.
std::string counts_text(const Answer& answer) {
  std::vector<std::string> ran, others;
  std::size_t num_others = 0;
  for (const StatusCount& one : answer.counts) {
    if (one.count == 0) continue;
    const bool is_pruned = one.status == to_text(PlanStatus::pruned);
    const std::string_view words = idle_words(one.status);
    if (!is_pruned && words.empty()) {
      const bool is_raced_out = one.status == to_text(Status::raced_out);
      ran.push_back(fmt::format("{} {}{}", one.count, one.status,
                                is_raced_out ? " (stopped early: clearly slower)" : ""));
      continue;
    }
    num_others += one.count;
    if (!is_pruned) others.push_back(fmt::format("{} {}", one.count, words));
    for (const auto& [kind, count] : answer.pruned)
      if (is_pruned) others.push_back(fmt::format("{} {}", count, prune_words(kind)));
  }
  std::string text = fmt::format("Members of the space: {}{}{}.\n", answer.standings.size(),
                                 ran.empty() ? "" : ": ", fmt::join(ran, ", "));
  if (num_others > 0)
    text += fmt::format("{} did not run: {}.\n", format_count(num_others, "member"),
                        fmt::join(others, ", "));
  return text;
}

std::string reasons_text(const Answer& answer) {
  const std::vector<ReasonGroup>& groups = answer.reasons;
  if (groups.empty()) return "";
  constexpr std::size_t max_groups = 30;
  std::string out = "\nFailed or not run:\n";
  for (std::size_t i = 0; i < std::min(groups.size(), max_groups); ++i) {
    const ReasonGroup& group = groups[i];
    out += fmt::format("  {} {} ({}{}): {}\n", group.count, group.status,
                       fmt::join(group.first_names, ", "),
                       group.count > group.first_names.size() ? ", ..." : "",
                       group.first_reason.empty() ? "no reason given" : group.first_reason);
  }
  if (groups.size() > max_groups)
    out += fmt::format("  and {} further reasons, in results.csv\n", groups.size() - max_groups);
  return out;
}

/// The front, with throughput a GPU beside it; empty where one row has it all.
std::string front_text(const Answer& answer) {
  constexpr std::size_t max_offers_listed = 30;
  std::vector<const Offer*> front;
  for (const Offer& offer : answer.offers)
    if (offer.is_on_front) front.push_back(&offer);
  if (front.size() < 2) return "";
  const bool with_target = has_targets(answer);
  const std::string metric = fmt::format("{}{} ({})", with_target ? "expected " : "",
                                         to_text(answer.metric), unit_text(answer.metric));
  std::vector<Column> columns = {{"GPUs", ColumnType::number},
                                 {metric, ColumnType::number},
                                 {"samples/s a GPU", ColumnType::number},
                                 {"memory of a rank", ColumnType::text},
                                 {"experiment", ColumnType::text}};
  constexpr std::ptrdiff_t beside_metric = 2;
  if (with_target) columns.insert(columns.begin() + beside_metric, measured_column());
  std::vector<TableRow> rows;
  for (std::size_t place = 0; place < std::min(front.size(), max_offers_listed); ++place) {
    const Offer& offer = *front[place];
    const Standing& standing = answer.standings[offer.member];
    rows.push_back({std::to_string(offer.num_gpus), format_number(offer.value),
                    offer.throughput_per_gpu ? format_number(*offer.throughput_per_gpu) : "",
                    format_bytes(offer.memory_bytes), standing.row->record->experiment.name});
    if (with_target)
      rows.back().insert(rows.back().begin() + beside_metric, measured_cell(standing));
  }
  return "\nThe best trade-offs between GPUs, speed and memory, of all that was measured:\n" +
         pipe_table(columns, rows) +
         (front.size() > max_offers_listed
              ? fmt::format("and {} more, in results.csv\n", front.size() - max_offers_listed)
              : "");
}

/// Experiments in the order in which they ended, each with its error and the mean of the errors up
/// to it; then the mean error and the rank correlation over all. Empty where nothing was predicted.
std::string prediction_text(const Answer& answer) {
  /// The last ones are listed: what was learned on the way shows in them.
  constexpr std::size_t max_records_listed = 50;
  const std::vector<PredictedSpeed>& all = answer.predictions;
  if (all.empty()) return "";
  const std::vector<Column> columns = {{"experiment", ColumnType::text},
                                       {"predicted samples/s", ColumnType::number},
                                       {"measured", ColumnType::number},
                                       {"error, %", ColumnType::number},
                                       {"mean error so far, %", ColumnType::number}};
  const std::size_t first_listed = all.size() - std::min(all.size(), max_records_listed);
  std::vector<TableRow> rows;
  for (std::size_t index = first_listed; index < all.size(); ++index) {
    const PredictedSpeed& one = all[index];
    rows.push_back({one.record->experiment.name,
                    fmt::format("{:.4g}", *one.record->predicted.throughput),
                    fmt::format("{:.4g}", one.measured), fmt::format("{:+.1f}", 100 * one.error),
                    fmt::format("{:.1f}", 100 * one.mean_error_so_far)});
  }
  std::string text = "\nPredictions that were made before each experiment ran";
  if (first_listed > 0) text += fmt::format(" (the last {} of {})", max_records_listed, all.size());
  text += ":\n" + pipe_table(columns, rows);
  text += fmt::format("Predicted throughput: mean error {:.1f} % over {}",
                      100 * all.back().mean_error_so_far, format_count(all.size(), "experiment"));
  if (answer.rank_correlation)
    text += fmt::format(", rank correlation {:.3f}", *answer.rank_correlation);
  return text + ".\n";
}

/// Formats like Python prints a timedelta; hours go on after 23.
std::string elapsed_text(double seconds) {
  const auto us = static_cast<std::int64_t>(std::llround(seconds * 1e6));
  const std::int64_t whole_s = us / 1'000'000;
  return fmt::format("{}:{:02}:{:02}.{:06}", whole_s / 3600, whole_s / 60 % 60, whole_s % 60,
                     us % 1'000'000);
}

}  // namespace

std::string summary_text(const Answer& answer) {
  std::size_t num_experiments = 0;
  answer.standings.visit_open(
      [&](std::size_t, const Standing& one) { num_experiments += one.row->record ? 1 : 0; });
  return spaces_table(answer) + "\nDetails\n\n" + verification_text(answer) + winner_text(answer) +
         (answer.model_profile
              ? fmt::format("The model: {}.\n", model_profile_text(*answer.model_profile))
              : "") +
         counts_text(answer) + warnings_text(answer) + reasons_text(answer) + front_text(answer) +
         prediction_text(answer) +
         fmt::format("\nTuning completed in {}. Total number of experiments: {}.\n",
                     elapsed_text(answer.elapsed_s), num_experiments);
}

}  // namespace dstune
