// How near times by published rates come to steps that were run (docs/figures/fidelity.md, "Speed
// on GPUs"):
//   speed_figures mpi_tests/bench/fidelity/speed_reports.json    others' trainings, as a table
//   speed_figures SPACE.json TABLE.json ...    recorded ones of DeepSpeed and of our own step on a
//   GPU
// Nothing is measured. TABLE is what scripts/tools/deepspeed_fidelity.py has written.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/space/job_spec.hpp"
#include "fidelity_table.hpp"
#include "fixed_workspaces.hpp"
#include "speed_reports.hpp"

namespace dstune::speed {
namespace {

/// Errors of some trainings' times, and in how many bands the truth is.
struct Figures {
  std::vector<double> errors;
  int held = 0;
  void add(const TargetStepTime& time, double true_s) {
    errors.push_back(std::abs(time.seconds / true_s - 1));
    held += time.low_s <= true_s && true_s <= time.high_s ? 1 : 0;
  }
  void print(const char* what) {
    if (errors.empty()) return;
    const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
    std::nth_element(errors.begin(), middle, errors.end());
    double median = *middle;
    if (errors.size() % 2 == 0) median = (median + *std::max_element(errors.begin(), middle)) / 2;
    std::printf("%s: the band holds %d of %zu, median error %.0f %%\n", what, held, errors.size(),
                100 * median);
  }
};

int print_reports(const char* path) {
  const auto reports = json::read<Reports>(json::Document::read(path).node());
  std::map<std::string, bool> fitted;
  for (const Source& source : reports.sources) fitted[source.name] = source.fitted;
  const FixedWorkspaces workspaces;
  Figures fit, judged, all, partly;
  std::printf(
      "| training | GPUs | published, s a step | predicted | band | off | in the band | use |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Report& report : reports.rows) {
    const auto time = time_of(report, reports.models.at(report.model), workspaces);
    if (!time) throw Error(report.id + " has no time");
    const bool is_held =
        time->low_s <= report.seconds_per_step && report.seconds_per_step <= time->high_s;
    const double off = time->seconds / report.seconds_per_step - 1;
    const bool is_described = report.described == "yes";
    Figures& figures = !is_described ? partly : fitted.at(report.source) ? fit : judged;
    figures.add(*time, report.seconds_per_step);
    if (is_described) all.add(*time, report.seconds_per_step);
    const char* const use = !is_described              ? "shown"
                            : fitted.at(report.source) ? "fitted"
                                                       : "judged";
    std::printf("| [%s](%s) | %d x %s | %.3g | %.3g | %.3g–%.3g | %+.0f %% | %s | %s |\n",
                report.id.c_str(), report.url.c_str(), report.shape.size(), report.device.c_str(),
                report.seconds_per_step, time->seconds, time->low_s, time->high_s, 100 * off,
                is_held ? "yes" : "no", use);
  }
  std::printf("\n");
  fit.print("Fitted");
  judged.print("Judged");
  all.print("Both");
  partly.print("Described in part");
  return 0;
}

void print_recorded(const std::string& space, const std::string& table) {
  const json::Document recorded = json::Document::read(table);
  const auto device = recorded.root().at("device").get<std::string>();
  const int ranks = recorded.root().at("ranks").get<int>();
  const DeviceSpec* const spec = find_device_spec(device);
  if (spec == nullptr) throw Error(device + " has no published rates");
  const JobSpec job = read_job(space, {}, std::nullopt, ranks);
  const FixedWorkspaces workspaces;
  StepPredictor predictor(job.model, published_profile({.device = *spec, .gpus_per_node = ranks}),
                          workspaces, default_policy().predicting, job.target);
  Figures of_target, of_step;
  for (const bench::FidelityRow& row : bench::read_fidelity_table(space, table).rows) {
    double samples_per_s = 0;
    for (const double pass : row.deepspeed)
      samples_per_s += pass / static_cast<double>(row.deepspeed.size());
    const Experiment& experiment = row.member.planned.experiment;
    const auto time = predictor.target_time(experiment);
    if (!time) throw Error(experiment.name + " has no time");
    of_target.add(*time, row.batch / samples_per_s);
    const double here_s = predictor.predict(experiment);
    of_step.add({here_s, here_s, here_s, here_s}, row.measured_s);
    std::printf("%s: DeepSpeed %.3g s, predicted %.3g s; our step %.3g s, predicted %.3g s\n",
                experiment.name.c_str(), row.batch / samples_per_s, time->seconds, row.measured_s,
                here_s);
  }
  of_target.print("DeepSpeed");
  std::printf("Our step: errors %.0f to %.0f %%\n", 100 * *std::ranges::min_element(of_step.errors),
              100 * *std::ranges::max_element(of_step.errors));
}

int run(int argc, char** argv) {
  if (argc == 2) return print_reports(argv[1]);
  for (int place = 1; place + 1 < argc; place += 2) print_recorded(argv[place], argv[place + 1]);
  return 0;
}

}  // namespace
}  // namespace dstune::speed

int main(int argc, char** argv) {
  if (argc != 2 && (argc % 2 != 1 || argc == 1)) {
    std::fprintf(stderr, "usage: speed_figures SPEED_REPORTS.json | SPACE.json TABLE.json ...\n");
    return 2;
  }
  try {
    return dstune::speed::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
