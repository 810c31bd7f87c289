#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/report/results.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// "121 samples/s expected in your training (95 % interval 120 to 122)"
std::string speed_text(const Answer& answer) {
  const Standing& standing = answer.recommendation->standing;
  const std::string interval = interval_text(standing.reported);
  return fmt::format(
      "{} {} {}{}", format_number(standing.reported->value), unit_text(answer.metric),
      standing.target ? "expected in your training" : "measured with " + answer.source,
      interval.empty() ? "" : fmt::format(" (95 % interval {})", interval));
}

/// The answer beside the user's own configuration, as the end of the sentence that names it.
std::string comparison_text(const Recommendation& recommendation) {
  if (!recommendation.baseline) return ".";
  const BaselineStanding& baseline = *recommendation.baseline;
  if (baseline.member == recommendation.member)
    return ". It is your configuration: nothing that was measured is clearly better.";
  if (!baseline.gain) return ". Your configuration gave no result to compare with.";
  return fmt::format(", {} times as fast as your configuration.", factor_text(baseline));
}

std::string batch_line(const Recommendation& recommendation) {
  if (!recommendation.batch_change) return "";
  const auto& [today, answer] = *recommendation.batch_change;
  const double ratio = static_cast<double>(answer) / static_cast<double>(today);
  return fmt::format(
      "Global batch: {} instead of {}. A usual rule multiplies the learning rate by {:.3g} with "
      "Adam, by {:.3g} with SGD.\n",
      format_count(answer, "sample"), today, std::sqrt(ratio), ratio);
}

/// The label, and how likely something else is better.
std::string confidence_text(const Answer& answer) {
  constexpr std::size_t max_rivals = 2;
  const Recommendation& recommendation = *answer.recommendation;
  std::string text =
      fmt::format("{} ({}).", recommendation.label, label_words(recommendation.label));
  if (const auto& chance = recommendation.chance_of_better)
    text += fmt::format(" The {}: {}.", untested_words(answer.metric), percent_text(*chance));
  if (!recommendation.undecided.empty())
    text += fmt::format(" May be as good: {}.", rivals_text(recommendation, max_rivals));
  // Finals that were cut short had begun.
  if (!answer.finals_are_done && !answer.no_finals_reason.empty() &&
      recommendation.final_rounds == 0)
    text += fmt::format(" Not measured again: {}.", answer.no_finals_reason);
  return text;
}

/// The reason that most experiments gave no result for.
std::string no_answer_text(const Answer& answer, const std::string& results_dir) {
  std::string text = "No experiment gave a result, so there is no answer.\n";
  const auto most = std::ranges::max_element(answer.reasons, {}, &ReasonGroup::count);
  if (most != answer.reasons.end() && !most->first_reason.empty())
    text += fmt::format("Most frequent reason: {} {}: {}\n", most->count, most->status,
                        most->first_reason);
  return text +
         fmt::format("Files: {}: summary.txt and results.csv have every reason.\n", results_dir);
}

}  // namespace

std::string headline_text(const Answer& answer, const std::string& results_dir) {
  if (!answer.recommendation) return no_answer_text(answer, results_dir);
  const Recommendation& recommendation = *answer.recommendation;
  return fmt::format(
      "{}: {}: {}{}\n"
      "{}"
      "Confidence: {}\n"
      "Cost: {}.\n"
      "Files: {}: ds_config_optimal.json (the configuration), cmd_optimal.txt (its command), "
      "report.html (all results).\n",
      is_speed(answer.metric) ? "Fastest" : "Best",
      recommendation.standing.row->planned.experiment.name, speed_text(answer),
      comparison_text(recommendation), batch_line(recommendation), confidence_text(answer),
      cost_text(recommendation), results_dir);
}

}  // namespace dstune
