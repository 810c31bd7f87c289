#include "recorded_job.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>

#include "control/estimate.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/ranking/run_again.hpp"
#include "dstune/search/tuner.hpp"
#include "dstune/train/executor.hpp"

namespace dstune::bench {
namespace {

using json::Value;

std::chrono::system_clock::time_point at(double job_s) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::duration<double>(job_s)));
}

JobSpec job_of(const Value& recording, const std::filesystem::path& folder,
               const std::filesystem::path& scratch) {
  Value document = recording["space"];
  Value& section = document["dstune"];
  if (section.contains("workload") && section["workload"].contains("table"))
    section["workload"]["table"] =
        std::filesystem::absolute(folder / section["workload"]["table"].get<std::string>());
  if (recording.contains("config"))
    write_file_atomically((scratch / "config.json").string(), recording["config"].dump());
  write_file_atomically((scratch / "space.json").string(), document.dump());
  return read_job((scratch / "space.json").string(), {}, std::nullopt,
                  recording["ranks"].get<int>());
}

/// What was planned then is planned, with what was predicted of it.
void take_predictions(const Value& predicted, RecordedJob& job) {
  std::map<std::string, const Value*> rows;
  for (const Value& row : predicted) rows[row[0].get<std::string>()] = &row;
  job.space.planned = 0;
  for (PlannedMember& member : job.space.members) {
    PlannedExperiment& planned = member.planned;
    const auto row = rows.find(planned.experiment.name);
    planned.status = row == rows.end() ? PlanStatus::pruned : PlanStatus::planned;
    if (row == rows.end()) continue;
    ++job.space.planned;
    const Value &here = (*row->second)[1], &target = (*row->second)[2];
    if (here.is_number()) planned.predicted.throughput = here.get<double>();
    if (!target.is_number()) continue;
    planned.predicted.target_throughput = target.get<double>();
    job.has_target = true;
  }
}

/// `row`: the number among the predictions, the kind, when it began, its steps began and it ended,
/// ranks, whether it was alone, status, bytes, microseconds of steps. `members`: by that number.
RecordedRun run_of(const Value& row, const std::vector<std::size_t>& members) {
  RecordedRun run;
  run.member = members.at(row.at(0).get<std::size_t>());
  if (const int kind = row.at(1).get<int>(); kind > 0)
    run.repeat = kind == 1 ? RepeatKind::spread : RepeatKind::final_round;
  run.begin_s = row.at(2).get<double>();
  run.start_s = row.at(3).get<double>();
  run.end_s = row.at(4).get<double>();
  run.num_ranks = row.at(5).get<int>();
  run.is_alone = row.at(6).get<bool>();
  run.measurement.status = from_text<Status>(row.at(7).get<std::string>()).value();
  run.measurement.peak_memory.total_bytes = row.at(8).get<std::int64_t>();
  for (const Value& step_us : row.at(9))
    run.measurement.step_times_s.push_back(step_us.get<double>() * 1e-6);
  return run;
}

/// The tuner and the finals as they were at a moment.
class Replay {
 public:
  explicit Replay(const RecordedJob& job)
      : job_(job),
        tuner_(make_tuner(job.job.tuning.tuner_type, job.space, job.job.tuning)),
        predictor_(job.job.model, std::nullopt, workspaces_),
        scoreboard_(setup_of(job), rows_of(job.space)),
        estimate_(members_of(job)) {}

  std::optional<TimeLeft> estimate_at(double moment_s) {
    for (std::size_t run = 0; run < job_.runs.size(); ++run) begin(run, moment_s);
    for (std::size_t run = 0; run < job_.runs.size(); ++run) end(run, moment_s);
    TimeEstimate::Expected expected;
    if (job_.time_limit_s) expected.time_left_s = *job_.time_limit_s - moment_s;
    expected.first_runs = expected_first_runs();
    if (!expected.first_runs) return std::nullopt;
    if (has_finals_) scoreboard_.judge();
    const RunAgainPolicy run_again(scoreboard_, {.races = tuner_races(job_.job.tuning),
                                                 .is_alone_in_space = job_.space.planned <= 1});
    expected.finals = run_again.expected_finals(estimate_.search_s(*expected.first_runs, moment_s));
    expected.final_s = run_again.usual_final_s();
    return estimate_.left(expected, moment_s);
  }

 private:
  static ScoreboardSetup setup_of(const RecordedJob& job) {
    ScoreboardSetup setup{.metric = job.job.tuning.metric,
                          .baseline = job.space.baseline,
                          .are_steps_alike = job.job.has_own_step()};
    if (job.has_target) setup.target = target_constants(false);
    return setup;
  }
  static std::vector<Row> rows_of(const PlannedSpace& space) {
    std::vector<Row> rows;
    for (const PlannedMember& member : space.members) rows.push_back({member.planned});
    return rows;
  }
  static std::vector<TimeEstimate::Member> members_of(const RecordedJob& job) {
    std::vector<TimeEstimate::Member> members;
    for (const PlannedMember& one : job.space.members) {
      TimeEstimate::Member& member = members.emplace_back();
      const PlannedExperiment& planned = one.planned;
      if (planned.status != PlanStatus::planned) continue;
      member.num_at_once = std::max(1, job.num_ranks / planned.experiment.shape.size());
      if (const auto throughput = planned.predicted.throughput; throughput && *throughput > 0)
        member.predicted_step_s = static_cast<double>(batch_of(planned.experiment)) / *throughput;
    }
    return members;
  }

  void begin(std::size_t number, double moment_s) {
    const RecordedRun& run = job_.runs[number];
    if (run.begin_s > moment_s) return;
    // In the order of all events, as a job tells it.
    order_.emplace(run.begin_s, number);
    if (run.end_s > moment_s && !run.repeat) ++num_running_;
    has_finals_ = has_finals_ || run.repeat == RepeatKind::final_round;
  }

  void end(std::size_t number, double moment_s) {
    const RecordedRun& run = job_.runs[number];
    while (!order_.empty() && order_.begin()->first <= std::min(run.end_s, moment_s)) {
      const std::size_t begun = order_.begin()->second;
      order_.erase(order_.begin());
      const RecordedRun& next = job_.runs[begun];
      const auto kind = !next.repeat                             ? TimeEstimate::Kind::first
                        : next.repeat == RepeatKind::final_round ? TimeEstimate::Kind::final
                                                                 : TimeEstimate::Kind::again;
      estimate_.started(begun, next.member, kind, next.begin_s);
    }
    if (run.end_s > moment_s) return;
    estimate_.ended(number, run.end_s, run.measurement.status == Status::ok);
    const Experiment& experiment = job_.space.experiment(run.member);
    if (run.repeat) {
      scoreboard_.repeat(run.member,
                         {*run.repeat, ++rounds_[{run.member, *run.repeat}], run.measurement,
                          at(run.start_s), at(run.end_s), run.is_alone});
      return;
    }
    Record record;
    record.experiment = experiment;
    record.predicted = scoreboard_.row(run.member).planned.predicted;
    record.measurement = run.measurement;
    record.started_at = at(run.start_s);
    record.finished_at = at(run.end_s);
    record.is_alone = run.is_alone;
    const std::uint64_t revision = scoreboard_.value_revision();
    scoreboard_.record(run.member, std::move(record), predictor_.overheads(experiment));
    if (scoreboard_.value_revision() != revision)
      for (std::size_t other = 0; other < scoreboard_.rows().size(); ++other)
        if (other != run.member && scoreboard_.row(other).record)
          tuner_->revise(other, observation_of(other));
    tuner_->observe(run.member, observation_of(run.member));
  }

  [[nodiscard]] Observation observation_of(std::size_t member) const {
    const Measurement& measurement = scoreboard_.row(member).record->measurement;
    return {measurement.status, scoreboard_.observed_value(member),
            measurement.peak_memory.total_bytes};
  }

  /// The tuner has not heard of those that run: to it they wait.
  std::optional<ExpectedRuns> expected_first_runs() {
    if (has_finals_) return ExpectedRuns{};
    const bool asks = tuner_->next().has_value();
    std::optional<ExpectedRuns> left = tuner_->expected_left();
    if (!left) return left;
    *left += ExpectedRuns::exactly((asks ? 1 : 0) - num_running_);
    return left->at_least(0);
  }

  const RecordedJob& job_;
  CpuWorkspaces workspaces_{kernels::cpu_table()};
  std::unique_ptr<Tuner> tuner_;
  StepPredictor predictor_;
  Scoreboard scoreboard_;
  TimeEstimate estimate_;
  std::multimap<double, std::size_t> order_;  ///< runs that are to begin
  std::map<std::pair<std::size_t, RepeatKind>, int> rounds_;
  double num_running_ = 0;
  bool has_finals_ = false;
};

}  // namespace

RecordedJob read_recorded_job(const std::string& path, const std::string& scratch) {
  const Value recording = Value::parse(read_file(path));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  RecordedJob job;
  job.name = std::filesystem::path(path).stem().string();
  job.num_ranks = recording["ranks"].get<int>();
  if (recording["time_limit_s"].is_number())
    job.time_limit_s = recording["time_limit_s"].get<double>();
  job.others = recording["others"].get<double>();
  job.end_s = recording["end_s"].get<double>();
  job.job = job_of(recording, folder, scratch);
  PlannerOptions options;
  options.lists_pruned = false;
  options.host_memory_bytes = options.device_memory_bytes = std::int64_t{1} << 60;
  job.space =
      plan_space(job.job, SearchSpace(job.job), CpuWorkspaces(kernels::cpu_table()), options);
  take_predictions(recording["predicted"], job);
  std::map<std::string, std::size_t> by_name;
  for (std::size_t member = 0; member < job.space.members.size(); ++member)
    by_name[job.space.experiment(member).name] = member;
  std::vector<std::size_t> members;
  for (const Value& row : recording["predicted"])
    members.push_back(by_name.at(row[0].get<std::string>()));
  for (const Value& row : recording["runs"]) job.runs.push_back(run_of(row, members));
  return job;
}

std::optional<TimeLeft> estimate_at(const RecordedJob& job, double moment_s) {
  return Replay(job).estimate_at(moment_s);
}

}  // namespace dstune::bench
