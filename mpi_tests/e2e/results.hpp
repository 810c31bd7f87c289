#pragma once
/// The files that a run left, read independently of the code that wrote them. Local.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job.hpp"

namespace dstune::e2e {

using testing::HasSubstr;
using testing::Not;

/// The default of --results-dir.
inline const std::string results = "autotuning_results/";

/// Events of the journal, in order. Fails the test at a line that is none.
[[nodiscard]] std::vector<Json> journal(const Job& job);
/// The names in `events` of this kind, in order, from number `from` on.
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

/// Both times are as metrics.json has them, within a day.
[[nodiscard]] double seconds_between(const std::string& begin, const std::string& end);

/// optimal.json and exit_status.json.
[[nodiscard]] Json optimal_of(const Job& job);
[[nodiscard]] Json exit_status_of(const Job& job);
/// All of stdout. Throws, and so fails the test, where that is no JSON object.
[[nodiscard]] Json printed(const Ended& ended);

/// Fails the test unless the run ended with this code and wrote it down.
void expect_exit(const Job& job, const Ended& ended, int exit_code);
/// … and every experiment in the folder ended well; returns their metrics.
std::map<std::string, Json> expect_all_ok(const Job& job, const Ended& ended, std::size_t count);
/// Fails the test unless the command ends with this code, says each part once for the whole job,
/// and writes nothing but exit_status.json.
Ended expect_refused(Job& job, const Command& command, int exit_code,
                     const std::vector<std::string>& parts);
/// Fails the test unless the losses are equal, as far as both go.
void expect_same_losses(const Json& metrics, const Json& others);

/// A test with a job.
class JobTest : public testing::Test {
 protected:
  /// On so many ranks, with space.json as its last argument.
  [[nodiscard]] Command command(std::vector<std::string> args = {}) const {
    args.emplace_back("space.json");
    return {.ranks = ranks_, .args = std::move(args)};
  }
  Ended run(std::vector<std::string> args = {}) { return job_.run(command(std::move(args))); }
  Ended run_with(const std::map<std::string, std::string>& environment,
                 std::vector<std::string> args = {}) {
    Command changed = command(std::move(args));
    changed.environment = environment;
    return job_.run(changed);
  }
  /// The JSON that a plan prints.
  Json plan(std::vector<std::string> args = {}, int exit_code = done);
  /// Waits until so many experiments have finished, or the job has ended.
  void wait_for_finished(Process& process, int count) const;
  /// Starts the job and waits until so many have.
  Process start_and_wait(int count);

  Job job_;
  int ranks_ = 2;
};

}  // namespace dstune::e2e
