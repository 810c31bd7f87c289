// How near times by published rates come to steps that were run (docs/figures/speed.md):
//   speed_figures mpi_tests/bench/fidelity/speed_reports.json    others' trainings, as a table
//   speed_figures SPACE.json TABLE.json ...    recorded ones of DeepSpeed and of our own step on a
//   GPU
// --json before these prints tables for scripts/figures.py. Nothing is measured. TABLE is what
// scripts/tools/deepspeed_fidelity.py has written.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/space/job_spec.hpp"
#include "fidelity_table.hpp"
#include "fixed_workspaces.hpp"
#include "json_tables.hpp"
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
  [[nodiscard]] double median() const {
    if (errors.empty()) return 0;
    std::vector<double> sorted = errors;
    std::ranges::sort(sorted);
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
  void print(const char* what) const {
    if (errors.empty()) return;
    std::printf("%s: the band holds %d of %zu, median error %.0f %%\n", what, held, errors.size(),
                100 * median());
  }
};

/// Three digits, and no point behind a whole number.
json::Value three_digits(double number) {
  const double rounded = std::stod(fmt::format("{:.3g}", number));
  if (rounded == std::floor(rounded)) return std::llround(rounded);
  return rounded;
}

void print_reports(const char* path, bool in_json) {
  const auto reports = json::read<Reports>(json::Document::read(path).node());
  std::map<std::string, bool> fitted;
  for (const Source& source : reports.sources) fitted[source.name] = source.fitted;
  const FixedWorkspaces workspaces;
  Figures fit, judged, all, partly;
  bench::JsonTable rows{"reports",
                        {"training", "url", "gpus", "device", "published", "predicted", "band",
                         "off", "held", "use"}};
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
    rows.rows.push_back({report.id, report.url, report.shape.size(), report.device,
                         three_digits(report.seconds_per_step), three_digits(time->seconds),
                         fmt::format("{:.3g}–{:.3g}", time->low_s, time->high_s), 100 * off,
                         is_held ? "yes" : "no", use});
  }
  const std::vector<std::pair<const char*, const Figures*>> sums = {
      {"Fitted", &fit}, {"Judged", &judged}, {"Both", &all}, {"Described in part", &partly}};
  if (in_json) {
    bench::JsonTable summary{"summary", {"use", "trainings", "held", "median_error"}};
    for (const auto& [use, figures] : sums)
      summary.rows.push_back({use, figures->errors.size(), figures->held, 100 * figures->median()});
    bench::print_json_tables({rows, summary});
    return;
  }
  std::printf(
      "| training | GPUs | published, s a step | predicted | band | off | in the band | use |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const auto& row : rows.rows)
    std::printf("| [%s](%s) | %d x %s | %.3g | %.3g | %s | %+.0f %% | %s | %s |\n",
                row[0].get<std::string>().c_str(), row[1].get<std::string>().c_str(),
                row[2].get<int>(), row[3].get<std::string>().c_str(), row[4].get<double>(),
                row[5].get<double>(), row[6].get<std::string>().c_str(), row[7].get<double>(),
                row[8].get<std::string>().c_str(), row[9].get<std::string>().c_str());
  std::printf("\n");
  for (const auto& [use, figures] : sums) figures->print(use);
}

/// How near one table's times come.
struct Recorded {
  Figures of_target, of_step;
};

Recorded judge_recorded(const std::string& space, const std::string& table, bool prints) {
  const json::Document recorded = json::Document::read(table);
  const auto device = recorded.root().at("device").get<std::string>();
  const int ranks = recorded.root().at("ranks").get<int>();
  const DeviceSpec* const spec = find_device_spec(device);
  if (spec == nullptr) throw Error(device + " has no published rates");
  const JobSpec job = read_job(space, {}, std::nullopt, ranks);
  const FixedWorkspaces workspaces;
  StepPredictor predictor(job.model, published_profile({.device = *spec, .gpus_per_node = ranks}),
                          workspaces, default_policy().predicting, job.target);
  Recorded found;
  for (const bench::FidelityRow& row : bench::read_fidelity_table(space, table).rows) {
    double samples_per_s = 0;
    for (const double pass : row.deepspeed)
      samples_per_s += pass / static_cast<double>(row.deepspeed.size());
    const Experiment& experiment = row.member.planned.experiment;
    const auto time = predictor.target_time(experiment);
    if (!time) throw Error(experiment.name + " has no time");
    found.of_target.add(*time, row.batch / samples_per_s);
    const double here_s = predictor.predict(experiment);
    found.of_step.add({here_s, here_s, here_s, here_s}, row.measured_s);
    if (prints)
      std::printf("%s: DeepSpeed %.3g s, predicted %.3g s; our step %.3g s, predicted %.3g s\n",
                  experiment.name.c_str(), row.batch / samples_per_s, time->seconds, row.measured_s,
                  here_s);
  }
  return found;
}

int run(const std::vector<std::string>& files, bool in_json) {
  if (files.size() == 1) {
    print_reports(files.front().c_str(), in_json);
    return 0;
  }
  bench::JsonTable tables{"recorded",
                          {"table", "members", "held", "median_error", "own_least", "own_most"}};
  for (std::size_t place = 0; place < files.size(); place += 2) {
    const Recorded found = judge_recorded(files[place], files[place + 1], !in_json);
    const double least = 100 * std::ranges::min(found.of_step.errors);
    const double most = 100 * std::ranges::max(found.of_step.errors);
    tables.rows.push_back({std::filesystem::path(files[place + 1]).stem().string(),
                           found.of_target.errors.size(), found.of_target.held,
                           100 * found.of_target.median(), least, most});
    if (in_json) continue;
    found.of_target.print("DeepSpeed");
    std::printf("Our step: errors %.0f to %.0f %%\n", least, most);
  }
  if (in_json) bench::print_json_tables({tables});
  return 0;
}

}  // namespace
}  // namespace dstune::speed

int main(int argc, char** argv) {
  std::vector<std::string> files(argv + 1, argv + argc);
  const bool in_json = !files.empty() && files.front() == "--json";
  if (in_json) files.erase(files.begin());
  if (files.size() != 1 && (files.size() % 2 != 0 || files.empty())) {
    std::fprintf(stderr,
                 "usage: speed_figures [--json] SPEED_REPORTS.json | SPACE.json TABLE.json ...\n");
    return 2;
  }
  try {
    return dstune::speed::run(files, in_json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
