// The price of a search in DeepSpeed's engine, as a share of the time of all members there.
#include <algorithm>
#include <chrono>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "parts.hpp"

namespace dstune {

namespace {

/// Begin, end and number of ranks. Finalists that took turns share one.
using Stretch =
    std::tuple<std::chrono::system_clock::time_point, std::chrono::system_clock::time_point, int>;

double rank_seconds(const std::set<Stretch>& stretches) {
  double sum = 0;
  for (const auto& [began, ended, ranks] : stretches)
    sum += std::max(0.0, std::chrono::duration<double>(ended - began).count()) * ranks;
  return sum;
}

/// Members that could have run, and did not.
std::size_t count_left_out(const Answer& answer) {
  std::size_t count = 0;
  for (const auto& [kind, members] : answer.pruned)
    if (kind == PruneKind::early_stopping || kind == PruneKind::cap ||
        kind == PruneKind::not_chosen)
      count += members;
  return count;
}

}  // namespace

std::string engine_price_text(const Answer& answer) {
  if (!answer.recommendation || !answer.recommendation->is_by_engine) return "";
  std::set<Stretch> search, to_end, repeats;
  std::size_t num_ran = 0, num_to_end = 0;
  answer.standings.visit_open([&](std::size_t, const Standing& standing) {
    if (!standing.row->record) return;
    const Record& record = *standing.row->record;
    const int ranks = record.experiment.shape.size();
    ++num_ran;
    search.insert({record.started_at, record.finished_at, ranks});
    if (record.measurement.status == Status::ok) {
      ++num_to_end;
      to_end.insert({record.started_at, record.finished_at, ranks});
    }
    for (const Repeat& repeat : standing.row->repeats)
      repeats.insert({repeat.started_at, repeat.finished_at, ranks});
  });
  const std::size_t count = num_ran + count_left_out(answer);
  const double each = num_to_end > 0 ? rank_seconds(to_end) / static_cast<double>(num_to_end) : 0;
  if (num_to_end >= count || each <= 0) return "";
  const auto percent = [&](const std::set<Stretch>& stretches) {
    return 100 * rank_seconds(stretches) / (each * static_cast<double>(count));
  };
  return fmt::format(
      "{} of {} members ran to the end in DeepSpeed's engine. The search took {:.0f} % of the time "
      "that all of them would take, by the mean of those, and repeats {:.0f} %",
      num_to_end, count, percent(search), percent(repeats));
}

}  // namespace dstune
