#pragma once
/// Speeds that others published of their trainings (bench/fidelity/speed_reports.json), and the
/// times of the same trainings by published rates.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/archive.hpp"
#include "dstune/predict/step_predictor.hpp"

namespace dstune::speed {

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

/// The model is that of a Hugging Face config.json.
inline std::optional<TargetStepTime> time_of(const Report& report, const json::Value& config,
                                             const WorkspaceSizes& workspaces) {
  const auto document = json::Document::parse(config.dump(), report.model);
  const ModelSpec model = import_huggingface(document);
  Cluster cluster{.device = *find_device_spec(report.device),
                  .gpus_per_node = report.shape.num_gpus};
  if (!report.network.empty()) cluster.network = *find_network_spec(report.network);
  Experiment experiment;
  experiment.shape = report.shape;
  experiment.config = report.config;
  place_on(report.shape, experiment.config);
  const TargetSpec target{
      .attention = report.attention, .optimizer = report.optimizer, .loss = report.loss};
  StepPredictor predictor(model, published_profile(cluster), workspaces,
                          default_policy().predicting, target);
  return predictor.target_time(experiment);
}

}  // namespace dstune::speed
