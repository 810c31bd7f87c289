#include <fmt/format.h>

#include "answer.hpp"
#include "head.hpp"
#include "parts.hpp"
#include "words.hpp"

namespace dstune {

namespace {

json::Value positive_or_null(std::int64_t amount) {
  return amount > 0 ? json::Value(amount) : json::Value();
}

json::Value text_or_null(const std::string& text) {
  return text.empty() ? json::Value() : json::Value(text);
}

/// Bytes of tensors at the fullest instant: without what surrounds them.
std::int64_t allocated_bytes(const Prediction& predicted) {
  const auto framework = predicted.target_categories.find("framework");
  const bool has_one = framework != predicted.target_categories.end();
  return predicted.target_memory_bytes - (has_one ? framework->second : 0);
}

/// The prediction of a member. The keys of a pruned one are there, too, all null.
json::Value predicted_json(const PlannedExperiment& planned) {
  const Prediction& predicted = planned.predicted;
  json::Value value = {
      {"throughput", finite_or_null(predicted.throughput)},
      {"target_throughput", finite_or_null(predicted.target_throughput)},
      {"throughput_low", finite_or_null(predicted.throughput_low)},
      {"throughput_high", finite_or_null(predicted.throughput_high)},
      {"verdict", to_text(predicted.verdict)},
      {"because", text_or_null(predicted.because)},
      {"target_memory_bytes", predicted.target_memory_bytes},
      {"target_allocated_bytes", allocated_bytes(predicted)},
      {"target_categories", predicted.target_categories},
      {"target_memory_shown_bytes", positive_or_null(predicted.target_memory_shown_bytes)},
      {"target_host_memory_bytes", predicted.target_host_memory_bytes},
      {"target_host_memory_bytes_per_node", plan_words::node_host_bytes(planned)},
      {"target_loading_bytes_per_node",
       predicted.target_loading_bytes * planned.experiment.shape.num_gpus},
      {"target_saving_bytes", predicted.target_saving_bytes},
      {"peak_memory_bytes", predicted.peak_memory_bytes},
      {"host_memory_bytes", predicted.host_memory_bytes},
      {"disk_bytes", predicted.disk_bytes},
      {"process_memory_bytes", positive_or_null(predicted.process_memory_bytes)},
      {"gpu_memory_bytes", positive_or_null(predicted.gpu_memory_bytes)},
      {"categories", predicted.categories}};
  json::Value& ranks = value["ranks"] = json::Value::array();
  for (const RankMemory& alike : predicted.ranks)
    ranks.push_back({{"ranks", {alike.first, alike.last}},
                     {"peak_memory_bytes", alike.peak_memory_bytes},
                     {"categories", alike.categories}});
  if (planned.status == PlanStatus::pruned)
    for (json::Value& member : value) member = nullptr;
  return value;
}

json::Value experiment_json(const PlannedExperiment& planned) {
  const Experiment& experiment = planned.experiment;
  return {{"name", experiment.name},
          {"num_gpus", experiment.shape.size()},
          {"status", to_text(planned.status)},
          {"reason", planned.reason},
          {"pruned_because", planned.status == PlanStatus::pruned
                                 ? json::Value(to_text(planned.prune_kind))
                                 : json::Value()},
          {"predicted", predicted_json(planned)},
          {"ds_config", experiment.ds_config},
          {"sequence_length", experiment.config.sequence_length},
          {"recompute", to_text(experiment.config.recompute)}};
}

/// A configuration that the answer names; a change that is no member has no name.
json::Value named_json(const PlannedExperiment& planned) {
  const Prediction& predicted = planned.predicted;
  return {{"name", text_or_null(planned.experiment.name)},
          {"num_gpus", planned.experiment.shape.size()},
          {"micro_batch", planned.experiment.config.micro_batch},
          {"verdict", to_text(predicted.verdict)},
          {"memory_bytes", positive_or_null(plan_words::judged_bytes(predicted))},
          {"host_memory_bytes_per_node", plan_words::node_host_bytes(planned)},
          {"throughput", finite_or_null(ranked_throughput(predicted))},
          {"throughput_low", finite_or_null(predicted.throughput_low)},
          {"throughput_high", finite_or_null(predicted.throughput_high)}};
}

class AnswerJson {
 public:
  AnswerJson(const DryRun& plan, const PlanAnswer& answer) : plan_(&plan), answer_(&answer) {}

  [[nodiscard]] json::Value all() const {
    const PlanChanges& changes = answer_->changes;
    json::Value edge = json::Value::array();
    for (const std::size_t member : answer_->edge)
      edge.push_back(plan_->experiments[member].experiment.name);
    return {{"largest_micro_batch", named_or_null(answer_->largest)},
            {"larger_micro_batch_that_fits", larger()},
            {"largest_micro_batch_by_configuration", largest_of_each()},
            {"fastest", named_or_null(answer_->fastest)},
            {"at_the_edge", std::move(edge)},
            {"counts",
             {{"fits", answer_->num_fitting},
              {"edge", answer_->edge.size()},
              {"does_not_fit", answer_->num_misfits},
              {"unknown", answer_->num_unknown}}},
            {"does_not_fit", reasons_json(answer_->misfits)},
            {"pruned", reasons_json(answer_->pruned)},
            {"changes_of", named_or_null(changes.subject)},
            {"changes_ordered_by", changes.is_by_speed ? "predicted_throughput" : "usual_slowdown"},
            {"cheapest_change",
             changes.changes.empty() ? json::Value() : change_json(changes.changes.front())},
            {"changes", changes_json()},
            {"smallest_num_gpus",
             changes.smallest_num_gpus ? json::Value(*changes.smallest_num_gpus) : json::Value()},
            {"tried_num_gpus", changes.tried_num_gpus},
            {"hours", hours()},
            {"no_speed", text_or_null(plan_->no_speed)},
            {"no_verdict", text_or_null(plan_->no_verdict)}};
  }

 private:
  [[nodiscard]] json::Value named_or_null(std::optional<std::size_t> member) const {
    return member ? named_json(plan_->experiments[*member]) : json::Value();
  }

  [[nodiscard]] json::Value larger() const {
    const auto& larger = answer_->changes.larger_micro_batch;
    return larger ? json::Value(*larger) : json::Value();
  }

  /// The largest size of each configuration; the smallest, with a null for it, where none fits.
  [[nodiscard]] json::Value largest_of_each() const {
    json::Value all = json::Value::array();
    for (const SizeChain& chain : answer_->chains)
      all.push_back({{"smallest_member", plan_->experiments[chain.members.front()].experiment.name},
                     {"largest", named_or_null(chain.largest)}});
    return all;
  }

  [[nodiscard]] json::Value reasons_json(const std::vector<SharedReason>& reasons) const {
    json::Value all = json::Value::array();
    for (const SharedReason& reason : reasons)
      all.push_back({{"count", reason.count},
                     {"because", reason.text},
                     {"example", plan_->experiments[reason.example].experiment.name}});
    return all;
  }

  [[nodiscard]] static json::Value change_json(const PlanChange& change) {
    return {{"kind", to_text(change.kind)},
            {"text", change.text},
            {"keys", change.keys},
            {"usual_slowdown", change.usual_slowdown},
            {"then", named_json(change.planned)}};
  }

  [[nodiscard]] json::Value changes_json() const {
    json::Value all = json::Value::array();
    for (const PlanChange& change : answer_->changes.changes) all.push_back(change_json(change));
    return all;
  }

  /// The whole tuning, by the clock and for all ranks.
  [[nodiscard]] json::Value hours() const {
    const int ranks = plan_words::tuning_ranks(*plan_);
    json::Value elapsed, of_gpus;
    if (plan_->expected_s) {
      elapsed = *plan_->expected_s / 3600;
      of_gpus = *plan_->expected_s / 3600 * ranks;
    }
    return {{"num_gpus", ranks}, {"elapsed", elapsed}, {"gpu_hours", of_gpus}};
  }

  const DryRun* plan_;
  const PlanAnswer* answer_;
};

}  // namespace

json::Value dry_run_json(const DryRun& plan) {
  json::Value experiments = json::Value::array();
  for (const PlannedExperiment& planned : plan.experiments)
    experiments.push_back(experiment_json(planned));
  json::Value sources = json::Value::array();
  for (const PlanSource& source : plan.sources)
    sources.push_back({{"what", source.what}, {"source", source.source}});
  return {{"experiments", std::move(experiments)},
          {"counts",
           {{"planned", plan.planned}, {"infeasible", plan.infeasible}, {"pruned", plan.pruned}}},
          {"pruned", prune_counts_json(plan.prune_counts)},
          {"expected_duration_s", finite_or_null(plan.expected_s)},
          {"deepspeed_version", plan.deepspeed_version},
          {"from_command", plan.from_command},
          {"assumptions", plan.assumptions},
          {"head", head_json(plan)},
          {"model_profile", model_profile_json(plan.model_profile)},
          {"answer", AnswerJson(plan, answer_of(plan)).all()},
          {"sources", std::move(sources)}};
}

}  // namespace dstune
