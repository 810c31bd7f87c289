#include "group_totals.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/train/agreement.hpp"

namespace dstune::train {

std::optional<GpuCondition> condition_of(const std::vector<GpuSamples>& all) {
  GpuCondition worst;
  std::uint64_t reasons = 0;
  bool has_seen = false;
  for (const GpuSamples& one : all) {
    if (one.num_samples == 0) continue;
    has_seen = true;
    if (one.sm_clock_mhz > 0 &&
        (worst.sm_clock_mhz == 0 || one.sm_clock_mhz < worst.sm_clock_mhz)) {
      worst.sm_clock_mhz = one.sm_clock_mhz;
      worst.max_sm_clock_mhz = one.max_sm_clock_mhz;
    }
    worst.temperature_c = std::max(worst.temperature_c, one.temperature_c);
    worst.power_w = std::max(worst.power_w, one.power_w);
    reasons |= static_cast<std::uint64_t>(one.reasons);
  }
  if (!has_seen) return std::nullopt;
  worst.throttled_by = throttle_text(reasons);
  return worst;
}

void add_totals(ProcessGroup& group, PeakMemory mine, double joules_used, Measurement& result) {
  std::vector<double> numbers{
      static_cast<double>(mine.process_bytes), static_cast<double>(mine.total_bytes),
      static_cast<double>(mine.host_bytes),    joules_used,
      static_cast<double>(mine.gpu_bytes),     static_cast<double>(mine.graph_bytes)};
  // Every rank has the same categories: they are the workload's.
  for (const auto& [name, bytes] : mine.category_bytes)
    numbers.push_back(static_cast<double>(bytes));
  const std::vector<double> all = group.exchange(numbers);
  const auto of = [&](int rank) {
    return std::span(all).subspan(static_cast<std::size_t>(rank) * numbers.size());
  };
  int fullest_rank = 0;
  double joules_of_all = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    joules_of_all += of(rank)[3];
    mine.process_bytes = std::max(mine.process_bytes, static_cast<std::int64_t>(of(rank)[0]));
    mine.gpu_bytes = std::max(mine.gpu_bytes, static_cast<std::int64_t>(of(rank)[4]));
    mine.graph_bytes = std::max(mine.graph_bytes, static_cast<std::int64_t>(of(rank)[5]));
    if (of(rank)[1] > of(fullest_rank)[1]) fullest_rank = rank;
  }
  mine.total_bytes = static_cast<std::int64_t>(of(fullest_rank)[1]);
  mine.host_bytes = static_cast<std::int64_t>(of(fullest_rank)[2]);
  std::size_t at = 6;
  for (auto& [name, bytes] : mine.category_bytes)
    bytes = static_cast<std::int64_t>(of(fullest_rank)[at++]);
  result.peak_memory = std::move(mine);
  if (joules_of_all > 0) result.energy_j = joules_of_all;
}

void add_fallbacks(ProcessGroup& group, const std::vector<Fallback>& mine, Measurement& result) {
  constexpr char comparable = '=', other = '!';
  std::vector<std::string> lines;
  for (const Fallback& fallback : mine)
    lines.push_back((fallback.is_comparable ? comparable : other) + fallback.text);
  std::vector<std::string> reasons;
  for (const std::string& line : train::share_lines(group, lines)) {
    result.fallbacks.push_back(line.substr(1));
    if (line.front() == other) reasons.push_back(result.fallbacks.back());
  }
  constexpr std::size_t most = 2;
  const std::size_t more = reasons.size() > most ? reasons.size() - most : 0;
  reasons.resize(reasons.size() - more);
  result.not_comparable = fmt::format("{}", fmt::join(reasons, "; "));
  if (more > 0) result.not_comparable += fmt::format("; and {} more", more);
}

}  // namespace dstune::train
