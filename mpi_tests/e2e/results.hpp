#pragma once
/// What a run left in its results folder, read independently of the code that wrote it. Local.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "job.hpp"

namespace dstune::e2e {

/// The default of --results-dir.
inline const std::string results = "autotuning_results/";

/// Events of the journal, in order. Fails the test at a line that is none.
[[nodiscard]] std::vector<Json> journal(const Job& job);
/// Of `events` from number `from` on, the names in those of this kind, in order.
[[nodiscard]] std::vector<std::string> names_of(const std::vector<Json>& events,
                                                const std::string& kind, std::size_t from = 0);
/// Finished lines that are whole, while the job runs.
[[nodiscard]] int num_finished_so_far(const Job& job);

/// metrics.json of every experiment that has one, by name; one that was cut short has none.
[[nodiscard]] std::map<std::string, Json> all_metrics(const Job& job);
/// results.csv: name → column → text.
[[nodiscard]] std::map<std::string, std::map<std::string, std::string>> results_table(
    const Job& job);

/// From a metrics.json.
[[nodiscard]] std::set<int> ranks_of(const Json& metrics);
[[nodiscard]] bool is_overlapping(const Json& metrics, const Json& other);
/// Fails the test where a rank is in two experiments at once.
void expect_no_rank_used_twice(const std::map<std::string, Json>& metrics);
/// Did groups of different sizes run at the same time?
[[nodiscard]] bool have_different_sizes_overlapped(const std::map<std::string, Json>& metrics);

/// Of two times as metrics.json has them, within a day.
[[nodiscard]] double seconds_between(const std::string& begin, const std::string& end);

/// Fails the test unless the run ended with this code and wrote it down.
void expect_exit(const Job& job, const Ended& ended, int exit_code);

}  // namespace dstune::e2e
