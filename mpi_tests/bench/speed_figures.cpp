// How near times by published rates come to speeds that others published of their trainings:
//   speed_figures mpi_tests/bench/fidelity/speed_reports.json
// prints the table of docs/fidelity.md, "Speed on GPUs". Nothing is measured.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "fixed_workspaces.hpp"
#include "speed_reports.hpp"

namespace dstune::speed {
namespace {

/// Times and counts of the rows of one half.
struct Figures {
  std::vector<double> errors;
  int held = 0;
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

int run(const char* path) {
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
    const auto add = [&](Figures& figures) {
      figures.errors.push_back(std::abs(off));
      figures.held += is_held ? 1 : 0;
    };
    if (is_described) add(all);
    add(!is_described ? partly : fitted.at(report.source) ? fit : judged);
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

}  // namespace
}  // namespace dstune::speed

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: speed_figures SPEED_REPORTS.json\n");
    return 2;
  }
  try {
    return dstune::speed::run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
