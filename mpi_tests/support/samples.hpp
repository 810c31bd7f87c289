#pragma once
/// Records, rows and scoreboards that the tests of ranking and the reports share.

#include <string>
#include <utility>
#include <vector>

#include "dstune/base/text.hpp"
#include "dstune/ranking/answer.hpp"
#include "folder_test.hpp"

namespace dstune::test {

inline Experiment sample_experiment(const std::string& name, int stage = 1) {
  Experiment experiment;
  experiment.name = name;
  experiment.shape = {2, 1};
  experiment.config.zero_stage = stage;
  experiment.config.micro_batch = 4;
  experiment.config.accumulation_steps = 2;
  experiment.config.recompute = Recompute::block;
  experiment.config.precision = Precision::bf16;
  experiment.config.reduce_bucket_size = 50'000'000;
  experiment.config.optimizer.kind = OptimizerKind::adam;
  experiment.config.optimizer.learning_rate = 1e-4;
  experiment.ds_config = {{"train_batch_size", 16},
                          {"train_micro_batch_size_per_gpu", 4},
                          {"gradient_accumulation_steps", 2},
                          {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 5e7}}}};
  return experiment;
}

/// Steps of `step_s` seconds, two of warm-up among them; a global batch of 16 samples.
inline Record sample_record(const std::string& name, double step_s = 0.5, int stage = 1) {
  Record record;
  record.experiment = sample_experiment(name, stage);
  record.predicted.peak_memory_bytes = 1000;
  record.predicted.target_memory_bytes = 2000;
  record.predicted.process_memory_bytes = 5100;
  record.predicted.host_memory_bytes = 300;
  record.predicted.host_categories = {{"optimizer", 300}};
  record.predicted.categories = {{"parameters", 600}, {"activations", 400}};
  Measurement& measurement = record.measurement;
  measurement.status = Status::ok;
  measurement.step_times_s = {9 * step_s, 2 * step_s, step_s, step_s, step_s};
  measurement.warmup_steps = 2;
  measurement.losses = {10.5, 10.25, 10.125, 10, 9.875};
  measurement.forward_s = step_s / 8;
  measurement.backward_s = step_s / 4;
  measurement.update_s = step_s / 16;
  measurement.flops_per_step = 1e12;
  measurement.peak_memory = {1000, {{"parameters", 600}, {"activations", 400}}, 5000, 300};
  measurement.world_ranks = {2, 3};
  measurement.hosts = {"one"};
  measurement.overhead_s = {{"build", 0.25}};
  record.started_at = *parse_time("2026-01-02T03:04:05.678901Z");
  record.finished_at = *parse_time("2026-01-02T03:04:15.000002Z");
  return record;
}

inline Record failed_record(const std::string& name, Status status, const std::string& reason,
                            int stage = 1) {
  Record record = sample_record(name, 0.5, stage);
  record.measurement.status = status;
  record.measurement.reason = reason;
  return record;
}

inline Row row_of(const Record& record) {
  Row row;
  row.planned.experiment = record.experiment;
  row.planned.predicted = record.predicted;
  row.record = record;
  return row;
}

inline Row planned_row(const std::string& name, PlanStatus status, const std::string& reason) {
  Row row;
  row.planned.experiment = sample_experiment(name);
  row.planned.status = status;
  row.planned.reason = reason;
  return row;
}

/// One scale for all precisions.
inline TimeCalibration calibration_of(double scale, const Overheads& costs_s = {}) {
  return {{scale, scale, scale}, costs_s};
}
inline TargetConstants constants_of(double scale, const Overheads& costs_s = {}) {
  return {calibration_of(scale, costs_s), 0.03, "recorded runs", "a machine"};
}

/// What a scoreboard is made of, to be changed freely before it is made.
struct Draft {
  Metric metric = Metric::throughput;
  std::vector<Row> rows{};
  std::vector<UserRun> user_runs{};
  std::int64_t memory_offset_bytes = 0;
  std::optional<std::size_t> baseline{};
  std::optional<TimeCalibration> calibration{};  ///< as if the user's own runs had said so
  std::optional<TargetConstants> target{};
  std::optional<std::int64_t> todays_batch{};
  int num_ranks = 0;
  int earlier_jobs = 0;
  double earlier_s = 0, earlier_rank_s = 0;
  std::vector<std::string> searched{};
  Finals finals{};
  double elapsed_s = 0;
  std::optional<double> chance_of_better{};
  const Policy* policy = &default_policy();  ///< outlives the scoreboard

  [[nodiscard]] Scoreboard scoreboard() const {
    Scoreboard scoreboard({.metric = metric,
                           .user_runs = user_runs,
                           .memory_offset_bytes = memory_offset_bytes,
                           .baseline = baseline,
                           .todays_batch = todays_batch,
                           .target = target,
                           .num_ranks = num_ranks,
                           .earlier_jobs = earlier_jobs,
                           .earlier_s = earlier_s,
                           .earlier_rank_s = earlier_rank_s,
                           .searched = searched,
                           .policy = policy},
                          rows);
    if (calibration) scoreboard.calibrate(*calibration);
    scoreboard.join_finals(finals.finalists);
    if (finals.is_done) {
      scoreboard.judge();
      scoreboard.end_finals();
    }
    if (!finals.reason.empty()) scoreboard.give_up_finals(finals.reason);
    scoreboard.conclude(elapsed_s, chance_of_better);
    return scoreboard;
  }
};

/// The answer of such a scoreboard, with the scoreboard that it points into.
struct Concluded {
  explicit Concluded(const Draft& draft)
      : scoreboard(draft.scoreboard()), answer(answer_of(scoreboard)) {}
  Concluded(const Concluded&) = delete;
  Concluded& operator=(const Concluded&) = delete;
  // NOLINTNEXTLINE(google-explicit-constructor): reports are made of an Answer.
  operator const Answer&() const { return answer; }
  [[nodiscard]] const Recommendation& recommendation() const {
    return answer.recommendation.value();
  }

  Scoreboard scoreboard;
  Answer answer;
};

inline Repeat repeat_of(RepeatKind kind, int round, double step_s) {
  Repeat repeat;
  repeat.kind = kind;
  repeat.round = round;
  repeat.measurement = sample_record("any", step_s).measurement;
  repeat.is_alone = kind == RepeatKind::final_round;
  return repeat;
}

/// Rows of these step times; their intervals have no width.
inline Draft draft_of(const std::vector<double>& steps_s) {
  Draft draft;
  for (const double step_s : steps_s)
    draft.rows.push_back(row_of(sample_record("m" + std::to_string(draft.rows.size()), step_s)));
  return draft;
}

/// Rows whose steps take so long here, and there; 0: DeepSpeed did not run it.
inline Draft verified_draft(const std::vector<std::pair<double, double>>& step_times_s) {
  Draft draft;
  for (const auto& [here_s, there_s] : step_times_s) {
    Row row = row_of(sample_record("m" + std::to_string(draft.rows.size()), here_s));
    if (there_s > 0) {
      row.verified.emplace();
      row.verified->status = Status::ok;
      row.verified->step_times_s = {there_s};
    }
    draft.rows.push_back(row);
  }
  return draft;
}

}  // namespace dstune::test
