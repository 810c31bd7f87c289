#pragma once
/// The finalists, measured again, alone and in turns: who they are, what came out, and how sure the
/// winner is. docs/measuring.md has the rules and the formulas. Local.

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/report/results.hpp"

namespace dstune {

inline constexpr std::size_t most_finalists = 3;
/// Of the best finalist; another one that is clearly no better leaves after the second.
inline constexpr int final_rounds = 3;
/// With fewer whole rounds nothing is decided anew.
inline constexpr int least_final_rounds = 2;
/// Of those that are not told apart by then.
inline constexpr int most_final_rounds = 6;

/// The best row by its first run, and at most two others whose intervals, widened by the run-to-run
/// spread, overlap its own; best first. Empty where nothing gave a result. Before the validation is
/// done.
[[nodiscard]] std::vector<std::size_t> finalists(const Report& report);

struct FinalRun {
  std::size_t index = 0;  ///< of the row
  int round = 1;
};
/// The next final run of report.validation.finalists after those that the rows have; nothing once
/// it is clear which one is the best, or not worth more runs.
[[nodiscard]] std::optional<FinalRun> next_final_run(const Report& report);

/// The mean step time of a run that ended ok, or 0.
[[nodiscard]] double mean_step_s(const Measurement& measurement);
/// What the runs of the search say of it: of each configuration that was repeated there, its first
/// run and the repeats.
[[nodiscard]] Spread spread_in_search(const Report& report);
/// … and what the final rounds of report.validation.finalists say.
[[nodiscard]] Spread spread_of_finals(const Report& report);
/// By both, and by what is believed before: for report.half_width_of_run.
[[nodiscard]] double half_width_of_run(const Report& report);

/// Final rounds of a row that ended ok.
[[nodiscard]] int num_final_rounds(const Row& row);
/// In a metric, over its final rounds; nothing without one.
[[nodiscard]] std::optional<MetricValue> final_value(const Report& report, const Row& row,
                                                     Metric metric);

/// The chance that this row, which has a value, is the best of all that were measured.
/// Deterministic.
[[nodiscard]] double chance_of_best(const Report& report, const Row& answer);

/// Lines for people: how often the answer was measured, how sure it is. Pairs of what and what of
/// it.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> confidence_lines(
    const Report& report, const Row& answer);

/// validation.json
[[nodiscard]] json::Value validation_json(const Report& report);

}  // namespace dstune
