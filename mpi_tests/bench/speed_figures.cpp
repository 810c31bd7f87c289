// How near times by published rates come to speeds that others published of their trainings:
//   speed_figures mpi_tests/bench/fidelity/speed_reports.json
// prints the table of docs/fidelity.md, "Speed on GPUs". Nothing is measured.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/archive.hpp"
#include "dstune/base/error.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "fixed_workspaces.hpp"

namespace dstune {
namespace {

struct Source {
  std::string name, sha256;
  bool fitted = false;
};
template <class Archive>
void members(Archive& archive, json::Of<Archive, Source>& source) {
  archive("name", source.name);
  archive("sha256", source.sha256);
  archive("fitted", source.fitted);
}

/// A training whose speed is published.
struct Report {
  std::string id, source, url, described, confidence, model, device, network, observed;
  std::vector<std::string> assumed;
  TrainingConfig config;
  GroupShape shape;
  TargetAttention attention = TargetAttention::sdpa;
  TargetLoss loss = TargetLoss::full;
  TargetOptimizer optimizer = TargetOptimizer::of_config;
  double seconds_per_step = 0;
};
template <class Archive>
void members(Archive& archive, json::Of<Archive, Report>& report) {
  archive("id", report.id);
  archive("source", report.source);
  archive("url", report.url);
  archive("described", report.described);
  archive("confidence", report.confidence);
  archive("assumed", report.assumed);
  archive("model", report.model);
  archive.differences("config", report.config, TrainingConfig{});
  archive("device", report.device);
  archive("gpus_per_node", report.shape.num_gpus);
  archive("nodes", report.shape.num_nodes);
  archive("network", report.network, {.may_be_missing = true});
  archive("attention", report.attention);
  archive("loss", report.loss);
  archive("optimizer", report.optimizer);
  archive("observed", report.observed);
  archive("seconds_per_step", report.seconds_per_step, json::amount);
}

struct Reports {
  std::string note, split;
  std::vector<Source> sources;
  std::map<std::string, json::Value> models;
  std::vector<Report> rows;
};
template <class Archive>
void members(Archive& archive, json::Of<Archive, Reports>& reports) {
  archive("note", reports.note);
  archive("split", reports.split);
  archive("sources", reports.sources);
  archive("models", reports.models);
  archive("rows", reports.rows);
}

std::optional<TargetStepTime> time_of(const Report& report, const json::Value& config) {
  const auto document = json::Document::parse(config.dump(), report.model);
  const ModelSpec model = import_huggingface(document);
  Cluster cluster{.device = *find_device_spec(report.device),
                  .gpus_per_node = report.shape.num_gpus};
  if (!report.network.empty()) cluster.network = *find_network_spec(report.network);
  Experiment experiment;
  experiment.shape = report.shape;
  experiment.config = report.config;
  place_on(report.shape, experiment.config);
  const FixedWorkspaces workspaces;
  const TargetSpec target{
      .attention = report.attention, .optimizer = report.optimizer, .loss = report.loss};
  StepPredictor predictor(model, published_profile(cluster), workspaces,
                          default_policy().predicting, target);
  return predictor.target_time(experiment);
}

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
  Figures fit, judged, all, partly;
  std::printf(
      "| training | GPUs | published, s a step | predicted | band | off | in the band | use |\n");
  std::printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Report& report : reports.rows) {
    const auto time = time_of(report, reports.models.at(report.model));
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
}  // namespace dstune

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: speed_figures SPEED_REPORTS.json\n");
    return 2;
  }
  try {
    return dstune::run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
