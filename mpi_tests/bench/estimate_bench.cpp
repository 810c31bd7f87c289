// Estimates of the time that recorded jobs still took, at a quarter, a half and three quarters:
//   estimate_bench mpi_tests/bench/recorded_jobs/*.json
// Prints a Markdown table: the estimate with its ends, the truth, and how far the one is off.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "recorded_job.hpp"

namespace dstune::bench {
namespace {

struct Tally {
  int estimates = 0, close = 0, inside = 0;
};

void add_row(const RecordedJob& job, double share, Tally& tally) {
  const double moment_s = share * job.end_s;
  const double truth_s = job.end_s - moment_s;
  const auto left = estimate_at(job, moment_s);
  ++tally.estimates;
  if (!left) {
    std::printf("| %s | %.1f | – | – | %.1f | – |\n", job.name.c_str(), moment_s, truth_s);
    return;
  }
  const double error = left->seconds / truth_s - 1;
  const bool is_inside = left->low_s <= truth_s && truth_s <= left->high_s;
  tally.close += std::abs(error) <= 0.3 ? 1 : 0;
  tally.inside += is_inside ? 1 : 0;
  std::printf("| %s | %.1f | %.1f | %.1f to %.1f%s | %.1f | %+.0f %% | %s |\n", job.name.c_str(),
              moment_s, left->seconds, left->low_s, left->high_s, is_inside ? "" : " (outside)",
              truth_s, 100 * error, left->assumes.c_str());
}

void print_table(const std::vector<RecordedJob>& jobs, double share) {
  std::printf("\n| job | after s | left s | low to high | true s | error | assumes |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- |\n");
  Tally tally;
  for (const RecordedJob& job : jobs) add_row(job, share, tally);
  std::printf("\nAt %.2f: %d of %d within 30 %%, %d between low and high.\n", share, tally.close,
              tally.estimates, tally.inside);
}

int run(int argc, char** argv) {
  const std::filesystem::path scratch =
      std::filesystem::temp_directory_path() / fmt::format("estimate_bench.{}", std::rand());
  std::filesystem::create_directories(scratch);
  std::vector<RecordedJob> jobs;
  for (int at = 1; at < argc; ++at) jobs.push_back(read_recorded_job(argv[at], scratch.string()));
  std::filesystem::remove_all(scratch);
  for (const double share : {0.25, 0.5, 0.75}) print_table(jobs, share);
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
