#include "words.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"

namespace dstune::plan_words {

MemoryVerdict verdict_of(const PlannedExperiment& planned) {
  using enum MemoryVerdict;
  if (planned.status == PlanStatus::pruned) return unknown;
  if (planned.predicted.verdict != unknown) return planned.predicted.verdict;
  return planned.status == PlanStatus::infeasible ? does_not_fit : unknown;
}

std::string_view verdict_text(MemoryVerdict verdict) {
  using enum MemoryVerdict;
  switch (verdict) {
    case fits:
      return "fits";
    case edge:
      return "at the edge";
    case does_not_fit:
      return "does not fit";
    case unknown:
      break;
  }
  return "not known";
}

std::int64_t judged_bytes(const Prediction& predicted) {
  return predicted.target_memory_bytes > 0 ? predicted.target_memory_bytes
                                           : predicted.peak_memory_bytes;
}

std::string memory_words(std::int64_t bytes, std::int64_t limit_bytes) {
  std::string amount = format_bytes(bytes);
  if (limit_bytes <= 0) return amount;
  const std::string limit = format_bytes(limit_bytes);
  const std::size_t unit = amount.rfind(' ');
  // One unit is enough for both.
  if (amount.substr(unit) == limit.substr(limit.rfind(' '))) amount.erase(unit);
  return fmt::format("{} of {}", amount, limit);
}

std::int64_t node_host_bytes(const PlannedExperiment& planned) {
  return planned.predicted.target_host_memory_bytes * planned.experiment.shape.num_gpus;
}

namespace {

std::string with_digits(double value, int digits) {
  if (!(std::abs(value) >= std::pow(10, digits - 1))) return fmt::format("{:.{}g}", value, digits);
  const double step = std::pow(10, std::floor(std::log10(std::abs(value))) - (digits - 1));
  return fmt::format("{:.0f}", std::round(value / step) * step);
}

}  // namespace

std::string short_number(double value) {
  return with_digits(value, 3);
}

std::string speed_words(const Prediction& predicted, std::string_view between) {
  if (!predicted.throughput_low || !predicted.throughput_high) {
    const std::optional<double>& speed = ranked_throughput(predicted);
    return speed ? short_number(*speed) : "";
  }
  const double low = *predicted.throughput_low, high = *predicted.throughput_high;
  for (const int digits : {2, 3}) {
    const std::string first = with_digits(low, digits), last = with_digits(high, digits);
    if (first != last) return first + std::string(between) + last;
  }
  return short_number(low);
}

std::string ranks_words(const DryRun& plan, int ranks) {
  return format_count(static_cast<std::uint64_t>(ranks), plan.head.is_on_gpus ? "GPU" : "rank");
}

int tuning_ranks(const DryRun& plan) {
  int ranks = plan.head.machine.size();
  for (const PlannedExperiment& planned : plan.experiments)
    if (planned.status == PlanStatus::planned)
      ranks = std::max(ranks, planned.experiment.shape.size());
  return ranks;
}

std::string details_of(const DryRun& plan, const PlannedExperiment& planned) {
  std::vector<std::string> parts;
  if (const std::int64_t bytes = judged_bytes(planned.predicted); bytes > 0)
    parts.push_back(memory_words(bytes, plan.device_memory_bytes));
  if (const std::int64_t bytes = node_host_bytes(planned); bytes > 0)
    parts.push_back(
        fmt::format("{} on each host", memory_words(bytes, plan.head.host_memory_bytes)));
  if (const std::string speed = speed_words(planned.predicted, " to "); !speed.empty())
    parts.push_back(speed + " samples/s");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string described(const DryRun& plan, const PlannedExperiment& planned,
                      std::string_view between) {
  const std::string details = details_of(plan, planned);
  const std::string& name = planned.experiment.name;
  if (name.empty() || details.empty()) return name + details;
  return between == " " ? fmt::format("{} ({})", name, details)
                        : fmt::format("{}{}{}", name, between, details);
}

std::string without_brackets(std::string text) {
  for (std::size_t from = text.find(" ("); from != text.npos; from = text.find(" (")) {
    const std::size_t to = std::min(text.find(')', from), text.size() - 1);
    text.erase(from, to - from + 1);
  }
  return text;
}

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::vector<std::string> wrapped(std::string text, std::size_t width) {
  std::vector<std::string> lines;
  while (width > 0 && text.size() > width) {
    std::size_t cut = text.rfind(' ', width);
    if (cut == 0 || cut == text.npos) cut = std::min(text.find(' ', width), text.size());
    lines.push_back(text.substr(0, cut));
    text.erase(0, std::min(cut + 1, text.size()));
  }
  if (!text.empty()) lines.push_back(std::move(text));
  return lines;
}

}  // namespace dstune::plan_words
