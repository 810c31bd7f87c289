// Figures of a finished job, from its results folder: experiments a second between the first
// dispatch and the last outcome, slots busy, and the overhead of an experiment by phase.
//   job_figures autotuning_results SLOTS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "dstune/report/journal.hpp"

namespace {

using namespace dstune;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double percentile95(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() * 95 / 100];
}

double seconds(std::chrono::system_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: job_figures RESULTS_DIR SLOTS\n");
    return 2;
  }
  const std::string path = std::string(argv[1]) + "/journal.jsonl";
  const History history = understand(read_journal(path), path);
  auto first = std::chrono::system_clock::time_point::max();
  auto last = std::chrono::system_clock::time_point::min();
  double busy_slot_s = 0;
  std::map<std::string, std::vector<double>> phases;
  for (const auto& [key, record] : history.finished) {
    first = std::min(first, record.started_at);
    last = std::max(last, record.finished_at);
    const double taken_s = seconds(record.finished_at - record.started_at);
    busy_slot_s += taken_s * record.experiment.shape.size();
    double beside_s = taken_s;
    for (const double step_s : record.measurement.step_times_s) beside_s -= step_s;
    phases["GO to OUTCOME, beside the steps"].push_back(beside_s);
    for (const auto& [phase, phase_s] : record.measurement.overhead_s) {
      phases[phase].push_back(phase_s);
    }
  }
  const double span_s = seconds(last - first);
  std::printf("%zu experiments in %.3f s: %.0f/s; slots busy between GO and OUTCOME: %.1f %%\n",
              history.finished.size(), span_s,
              static_cast<double>(history.finished.size()) / span_s,
              100 * busy_slot_s / (span_s * std::atoi(argv[2])));
  for (const auto& [phase, values] : phases) {
    std::printf("  %-32s median %8.3f ms, 95 %% below %8.3f ms\n", phase.c_str(),
                1e3 * median(values), 1e3 * percentile95(values));
  }
  return 0;
}
