// Estimates of the time that recorded jobs still took, at a quarter, a half and three quarters:
//   estimate_bench [--json] mpi_tests/bench/recorded_jobs/*.json
// Prints Markdown tables, with --json what scripts/figures.py reads: the estimate with its ends,
// the truth, and how far the one is off.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "figure_tables.hpp"
#include "recorded_job.hpp"

namespace dstune::bench {
namespace {

struct Tally {
  int estimates = 0, close = 0, inside = 0;
};

void add_row(const RecordedJob& job, double share, Tally& tally, FigureTables& tables) {
  const double moment_s = share * job.end_s;
  const double truth_s = job.end_s - moment_s;
  const auto left = estimate_at(job, moment_s);
  ++tally.estimates;
  if (!left) {
    tables.row({job.name, {moment_s, 1}, {}, {}, {}, {truth_s, 1}, {}, {}, {}});
    return;
  }
  const double error = left->seconds / truth_s - 1;
  const bool is_inside = left->low_s <= truth_s && truth_s <= left->high_s;
  tally.close += std::abs(error) <= 0.3 ? 1 : 0;
  tally.inside += is_inside ? 1 : 0;
  tables.row({job.name,
              {moment_s, 1},
              {left->seconds, 1},
              {left->low_s, 1},
              {left->high_s, 1},
              {truth_s, 1},
              {100 * error, 0},
              is_inside ? "inside" : "outside",
              left->assumes});
}

Tally print_table(const std::vector<RecordedJob>& jobs, double share, FigureTables& tables) {
  tables.begin(
      fmt::format("{:.2f}", share), fmt::format("At {:.2f} of the time:", share),
      {"job", "after s", "left s", "low s", "high s", "true s", "error %", "truth", "assumes"});
  Tally tally;
  for (const RecordedJob& job : jobs) add_row(job, share, tally, tables);
  return tally;
}

int run(int argc, char** argv) {
  const std::filesystem::path scratch =
      std::filesystem::temp_directory_path() / fmt::format("estimate_bench.{}", std::rand());
  std::filesystem::create_directories(scratch);
  std::vector<RecordedJob> jobs;
  bool is_json = false;
  for (int at = 1; at < argc; ++at) {
    if (argv[at] == std::string("--json"))
      is_json = true;
    else
      jobs.push_back(read_recorded_job(argv[at], scratch.string()));
  }
  std::filesystem::remove_all(scratch);
  FigureTables tables(is_json);
  std::vector<std::pair<double, Tally>> tallies;
  for (const double share : {0.25, 0.5, 0.75})
    tallies.emplace_back(share, print_table(jobs, share, tables));
  tables.begin("all",
               "All jobs:", {"share of the time", "jobs", "within 30 %", "between low and high"});
  for (const auto& [share, tally] : tallies)
    tables.row({{share, 2}, tally.estimates, tally.close, tally.inside});
  tables.end();
  return 0;
}

}  // namespace
}  // namespace dstune::bench

int main(int argc, char** argv) {
  try {
    return dstune::bench::run(argc, argv);
  } catch (const dstune::InputError& error) {
    for (const auto& problem : error.problems())
      std::fprintf(stderr, "%s\n", problem.text().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
