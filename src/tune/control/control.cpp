#include <algorithm>
#include <cstdlib>
#include <limits>
#include <ranges>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "control/controller.hpp"
#include "dstune/base/output.hpp"
#include "dstune/base/text.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/device/host_load.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/search/verifying.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/tune/watchdog.hpp"
#include "profile/prediction.hpp"
#include "start/rank_devices.hpp"

namespace dstune {
namespace {

Progress::Style progress_style(const JobOptions& options) {
  if (options.quiet || options.no_progress) return Progress::Style::silent;
  return isatty(STDERR_FILENO) != 0 ? Progress::Style::terminal : Progress::Style::lines;
}

/// Tuners may ask how fast members will be. Above so many it would keep the job waiting.
void predict_members(PlannedSpace& space, JobPredictor& predictor, const TimeBudget& time) {
  constexpr std::uint64_t max_predicted = 20'000;
  if (space.planned > max_predicted) return;
  for (auto& [planned, chain] : space.members)
    if (planned.status == PlanStatus::planned && !time.is_over())
      predictor.predict(planned.experiment, planned.predicted);
}

/// What the ranks of each node may have of its host, and of its disk: there, too, what is free
/// where rank 0 is, on the fullest of the disks that members name. Not less than one of them takes:
/// a disk that has filled up since is that member's result.
std::vector<NodeBytes> bytes_of_nodes(const Preparation& ready) {
  if (ready.job.workload.kind != WorkloadKind::transformer) return {};
  NodeBytes node;
  std::set<std::string> folders;
  std::int64_t most_taken = 0;
  for (const PlannedExperiment* member : members_to_run(ready.space)) {
    const std::int64_t disk_bytes = member->predicted.disk_bytes;
    if (disk_bytes == 0) continue;
    folders.insert(member->experiment.config.disk.folder);
    most_taken = std::max(most_taken, disk_bytes * member->experiment.shape.num_gpus);
  }
  for (const std::string& folder : folders)
    node.disk = std::min(node.disk, std::max(most_taken, free_disk_bytes(folder)));
  std::vector<NodeBytes> nodes;
  for (const std::vector<int>& ranks : ready.training_ranks) {
    node.host = ready.host_memory_bytes * static_cast<std::int64_t>(ranks.size());
    nodes.push_back(node);
  }
  return nodes;
}

/// Now that the communicators of all groups are there.
void leave_out_what_does_not_fit(Preparation& ready,
                                 const std::optional<std::int64_t>& free_memory_bytes) {
  if (!free_memory_bytes) return;
  const auto has_run = [&](std::size_t index) {
    return ready.history.finished.contains(ready.keys[index]);
  };
  const std::vector<std::size_t> dropped =
      drop_what_does_not_fit(ready.space, *free_memory_bytes, has_run);
  if (dropped.empty()) return;
  log::warning(fmt::format("{} of the GPU are left for tensors: {} members do not fit",
                           format_bytes(*free_memory_bytes), dropped.size()));
  for (const std::size_t index : dropped)
    ready.journal->add(event::planned(ready.space.members[index].planned));
}

/// Challengers are stopped where they have lost to the best so far. What a plug-in counts as
/// operations need not grow with the samples.
bool races(const JobSpec& job, const WorkloadSpec& workload) {
  return job.tuning.tuner_type == "race" &&
         !(workload.takes_any_key() && job.tuning.metric == Metric::flops);
}

std::optional<HostLoad> host_load_since(const std::optional<HostTimes>& before) {
  const auto now = host_times();
  const auto load = load_average();
  if (!before || !now || !load || !(now->all_s > before->all_s)) return std::nullopt;
  return HostLoad{(now->stolen_s - before->stolen_s) / (now->all_s - before->all_s), *load,
                  static_cast<int>(std::thread::hardware_concurrency())};
}

/// Times that are given do not differ between runs.
bool repeats_best(const JobSpec& job, const WorkloadSpec& workload) {
  return races(job, workload) || workload.kind == WorkloadKind::transformer ||
         workload.takes_any_key();
}

/// Of metrics.json.
std::string instrument_of(const WorkloadSpec& workload) {
  switch (workload.kind) {
    case WorkloadKind::transformer:
      return "step";
    case WorkloadKind::deepspeed:
      return "engine";
    default:
      return std::string(to_text(workload.kind));
  }
}

/// How far answers can be trusted, where DeepSpeed's engine measures them: as far as what it trains
/// is the user's. Else empty.
std::string label_of(const WorkloadSpec& workload) {
  if (workload.kind != WorkloadKind::deepspeed) return "";
  return workload.options.contains("script") ? "verified" : "engine";
}

ProcessMemoryPredictor memory_predictor(const Preparation& ready,
                                        const std::vector<RankDevice>& devices,
                                        const BytesBefore& bytes) {
  std::optional<NonArenaMemory> gpus;
  // Only where there is a figure of every rank that trains.
  if (std::ranges::all_of(ready.training_ranks | std::views::join,
                          [&](int rank) { return bytes.gpu[static_cast<std::size_t>(rank)] > 0; }))
    gpus.emplace(bytes.gpu, true);
  return {NonArenaMemory(bytes.resident), std::move(gpus), devices.front().backend == "cuda"};
}

/// How a search ended.
struct SearchEnd {
  ExitCode code = ExitCode::internal;
  std::string reason;
  bool can_finalize = true;
};

/// What all searches of a job share. All of it outlives them.
struct SearchParts {
  const JobOptions& options;
  Preparation& ready;
  const JobEnd& end;
  TrialLimits& limits;
  JobPredictor* predictor;
  ProcessMemoryPredictor& memory;
  SlotPool& slots;
  AttemptDriver& driver;
};

/// One of a job's searches, by one instrument.
struct InstrumentSearch {
  const WorkloadSpec& workload;
  const std::vector<std::string>& keys;
  bool is_beside = false;     ///< the engine beside our own step, which decides
  bool is_screening = false;  ///< our own step, where that engine decides
  bool is_complete = false;   ///< an earlier job has ended it
};

/// How it ended, and what it has come to; that points into the board.
struct SearchResult {
  SearchEnd end;
  Answer answer;
};

SearchResult run_instrument(const SearchParts& parts, const InstrumentSearch& instrument,
                            Scoreboard& board, Tuner& tuner) {
  Preparation& ready = parts.ready;
  const WorkloadSpec& workload = instrument.workload;
  const bool in_engine = workload.kind == WorkloadKind::deepspeed;
  ready.results->set_instrument(instrument_of(workload), instrument.is_beside);
  RunAgainPolicy run_again(board,
                           {.races = races(ready.job, workload),
                            .repeats_best = repeats_best(ready.job, workload),
                            .is_alone_in_space = ready.space.planned <= 1,
                            .is_complete = instrument.is_complete,
                            .is_screening = instrument.is_screening,
                            .rounds = instrument.is_beside ? final_rounds_beside : final_rounds,
                            .deaths = deaths_in_repeats(instrument.keys, ready.history)});
  Publisher publisher(*ready.results, board,
                      {.training_command = ready.job.training_command,
                       .arg_mappings = ready.job.tuning.arg_mappings,
                       .memory_timeline = [&](const Experiment& experiment) {
                         return memory_timeline_of(ready, experiment);
                       }});
  Progress progress(progress_style(parts.options));
  JobPolicy policy{.began = parts.options.began,
                   .sends_ds_config = workload.takes_any_key(),
                   .in_engine = in_engine};
  if (in_engine)
    policy.arguments = [&](const Experiment& one) { return script_arguments(ready.job, one); };
  TrialLimits limits = parts.limits;
  limits.in_engine = in_engine;
  if (in_engine) limits.predictor = nullptr;
  policy.limits = [&limits](const PlannedExperiment& planned) { return limits.of(planned); };
  policy.end = parts.end;
  policy.host_load = [times_before = host_times()] { return host_load_since(times_before); };
  Listeners listeners{.journal = *ready.journal, .publisher = publisher, .progress = progress};
  if (!instrument.is_beside) {
    listeners.times = parts.predictor;
    listeners.memory = &parts.memory;
  }
  if (listeners.times != nullptr) {
    listeners.overheads = [&](const Experiment& experiment) {
      return parts.predictor->overheads(experiment);
    };
  }
  const Search search{.space = ready.space,
                      .keys = instrument.keys,
                      .history = ready.history,
                      .board = board,
                      .run_again = run_again,
                      .tuner = tuner,
                      .slots = parts.slots,
                      .races = races(ready.job, workload),
                      .is_complete = instrument.is_complete};
  Controller controller(search, std::move(policy), parts.driver, std::move(listeners));
  const ExitCode code = controller.run();
  return {{code, controller.reason(), controller.can_finalize()}, publisher.answer()};
}

/// What our own step says of each member, by what was measured or else is predicted.
std::vector<ScreenedMember> screened_members(const PlannedSpace& space, const Scoreboard& screened,
                                             JobPredictor& predictor) {
  std::vector<ScreenedMember> members;
  for (std::size_t row = 0; row < space.members.size(); ++row) {
    const PlannedExperiment& planned = space.members[row].planned;
    ScreenedMember& member = members.emplace_back();
    if (planned.status != PlanStatus::planned) continue;
    const Experiment& experiment = planned.experiment;
    const std::optional<Record>& record = screened.row(row).record;
    const auto latency_us =
        record ? value_so_far(record->measurement, Metric::latency, experiment) : std::nullopt;
    member.step_s = latency_us && latency_us->value > 0 ? std::optional(latency_us->value * 1e-6)
                                                        : predictor.step_s(experiment);
    member.batch = static_cast<double>(global_batch(experiment.config, experiment.shape.size()));
    member.precision = experiment.config.precision;
    member.overheads = predictor.overheads(experiment);
  }
  return members;
}

/// Of the engine's figures; of memory what was planned. The board predicts with them from now on.
std::vector<Prediction> beliefs_of(const Preparation& ready,
                                   const std::vector<ScreenedMember>& members,
                                   Scoreboard& verified) {
  std::vector<EngineRun> runs;
  for (std::size_t row = 0; row < members.size(); ++row)
    if (const std::optional<Record>& record = verified.row(row).record)
      runs.emplace_back(row, mean_step_s(record->measurement));
  // What the user has run outside of this job says as much.
  for (const UserRun& run : ready.user_runs) runs.emplace_back(run.row, run.step_s);
  for (std::size_t row = 0; row < members.size(); ++row)
    if (const auto known = ready.history.verified.find(ready.keys[row]);
        known != ready.history.verified.end())
      runs.emplace_back(row, mean_step_s(known->second));
  const auto believed = believed_throughputs(members, runs, ready.target);
  std::vector<Prediction> beliefs;
  for (std::size_t row = 0; row < members.size(); ++row) {
    Prediction& belief = beliefs.emplace_back(ready.space.members[row].planned.predicted);
    belief.throughput = believed[row];
    belief.target_throughput.reset();
    verified.predict(row, belief);
  }
  return beliefs;
}

/// What our own step has found decides where the engine looks, and the engine gives the answer.
SearchResult verify(const SearchParts& parts, const Scoreboard& screened, Scoreboard& verified) {
  Preparation& ready = parts.ready;
  log::info("DeepSpeed's engine decides from here on");
  const std::vector<ScreenedMember> members =
      screened_members(ready.space, screened, *parts.predictor);
  const auto tuner = make_verifying_tuner(ready.space, ready.job.tuning,
                                          [&] { return beliefs_of(ready, members, verified); });
  return run_instrument(parts,
                        {.workload = *ready.job.verify,
                         .keys = ready.verify_keys,
                         .is_beside = true,
                         .is_complete = ready.is_search_complete},
                        verified, *tuner);
}

Scoreboard verified_scoreboard(const Preparation& ready, const Scoreboard& screened) {
  Scoreboard board = known_scoreboard(ready.space, ready.verify_keys, ready.history,
                                      {.metric = ready.job.tuning.metric,
                                       .baseline_row = ready.space.baseline,
                                       .num_ranks = num_ranks(ready.training_ranks),
                                       .label = label_of(*ready.job.verify)});
  for (std::size_t row = 0; row < board.rows().size(); ++row)
    if (const auto& record = screened.row(row).record) board.screen(row, record->measurement);
  return board;
}

void print_answer(const JobOptions& options, const Preparation& ready, const SearchResult& result) {
  if (options.json_output) {
    output() << json::ascii_text(summary_json(result.answer, static_cast<int>(result.end.code)))
             << std::endl;
  } else {
    output() << printable_lines(summary_text(result.answer) + "\n" +
                                headline_text(result.answer, ready.results->path()))
             << std::flush;
  }
}

/// Measures the machine and runs the controller.
SearchEnd run_search(const JobOptions& options, Preparation& ready,
                     const std::vector<RankDevice>& devices, const BytesBefore& bytes,
                     const TimeBudget& time, SlotPool& slots, AttemptDriver& driver,
                     const Watchdog& watchdog) {
  const JobEnd end{time.end_at, [&] { return watchdog.num_stop_signals(); }};
  const bool is_on_gpus = devices.back().backend == "cuda";
  TrialLimits limits{ready.job, options.trial_timeout_s, is_on_gpus, time.abort_grace_s()};
  ProcessMemoryPredictor memory = memory_predictor(ready, devices, bytes);
  MeasuredMachine machine;
  if (is_predictable(ready)) {
    machine = measure_machine(
        ready, driver, [&] { return !end.reason(driver.now()).empty(); }, options.profile_path,
        is_on_gpus ? min_drain_timeout_s : 0);
    memory.start_again(machine.bytes_after);
    leave_out_what_does_not_fit(ready,
                                free_gpu_memory(devices, bytes.gpu, machine.bytes_after.gpu));
  }
  if (!machine.predictor && ready.job.workload.kind == WorkloadKind::transformer)
    machine.predictor = std::make_unique<JobPredictor>(ready, std::nullopt);
  if (machine.predictor) {
    if (ready.target) machine.predictor->calibrate(ready.target->time);
    limits.predictor = machine.predictor.get();
    predict_members(ready.space, *machine.predictor, time);
  }
  const bool is_verified = ready.job.verify.has_value();
  Scoreboard board = known_scoreboard(ready.space, ready.keys, ready.history,
                                      {.metric = ready.job.tuning.metric,
                                       .user_runs = ready.user_runs,
                                       .memory_offset_bytes = ready.memory_offset_bytes,
                                       .baseline_row = ready.space.baseline,
                                       .target = ready.target,
                                       .num_ranks = num_ranks(ready.training_ranks),
                                       .label = label_of(ready.job.workload)});
  const SearchParts parts{.options = options,
                          .ready = ready,
                          .end = end,
                          .limits = limits,
                          .predictor = machine.predictor.get(),
                          .memory = memory,
                          .slots = slots,
                          .driver = driver};
  const auto tuner = make_tuner(ready.job.tuning.tuner_type, ready.space, ready.job.tuning);
  SearchResult result = run_instrument(
      parts,
      {.workload = ready.job.workload,
       .keys = ready.keys,
       .is_screening = is_verified,
       .is_complete = is_verified ? ready.is_screening_complete : ready.is_search_complete},
      board, *tuner);
  // What our own step can not run may run in the engine.
  const bool goes_on =
      result.end.code == ExitCode::ok || result.end.code == ExitCode::nothing_feasible;
  std::optional<Scoreboard> verified;
  if (is_verified && goes_on) {
    if (!ready.is_screening_complete)
      ready.journal->add(event::search_finished(ready.screening_key));
    verified.emplace(verified_scoreboard(ready, board));
    const bool can_finalize = result.end.can_finalize;
    result = verify(parts, board, *verified);
    result.end.can_finalize &= can_finalize;
  }
  print_answer(options, ready, result);
  return result.end;
}

}  // namespace

std::string JobEnd::reason(Moment now) const {
  if (signals && signals() > 0) return "a signal to stop";
  return end_at && now.steady >= *end_at ? "the time limit" : "";
}

double JobEnd::time_left_s(Moment now) const {
  if (!end_at) return std::numeric_limits<double>::infinity();
  return seconds(*end_at - now.steady);
}

Scoreboard known_scoreboard(const PlannedSpace& space, const std::vector<std::string>& keys,
                            const History& history, ScoreboardSetup setup) {
  std::vector<Row> rows;
  for (std::size_t index = 0; index < keys.size(); ++index) {
    rows.push_back({space.members[index].planned});
    const auto repeats = history.repeats.find(keys[index]);
    if (repeats != history.repeats.end()) rows.back().repeats = repeats->second;
  }
  Scoreboard board(std::move(setup), std::move(rows));
  for (std::size_t index = 0; index < keys.size(); ++index) {
    const auto verified = history.verified.find(keys[index]);
    if (verified != history.verified.end()) board.verify(index, verified->second);
  }
  return board;
}

std::map<std::size_t, int> deaths_in_repeats(const std::vector<std::string>& keys,
                                             const History& history) {
  std::map<std::size_t, int> deaths;
  for (std::size_t index = 0; index < keys.size(); ++index) {
    const auto died = history.repeat_deaths.find(keys[index]);
    if (died != history.repeat_deaths.end()) deaths[index] = died->second;
  }
  return deaths;
}

void control(const JobOptions& options, Preparation& ready, const Topology& topology,
             const std::vector<RankDevice>& devices, const BytesBefore& bytes, Mailbox& mailbox,
             Watchdog& watchdog) {
  const TimeBudget& time = ready.time;
  SlotPool slots(ready.training_ranks, bytes_of_nodes(ready));
  AttemptDriver driver(mailbox,
                       {.stop_grace_s = time.stop_grace_s(),
                        .share_a_node =
                            [&](const std::vector<int>& one, const std::vector<int>& other) {
                              return slots.share_a_node(one, other);
                            }},
                       [&] { return watchdog.lost_ranks(); });
  SearchEnd end;
  end.code = guarded([&] {
    end = run_search(options, ready, devices, bytes, time, slots, driver, watchdog);
    return end.code;
  });
  // Members may still be in an experiment: only the process's end gets them out.
  if (end.code == ExitCode::not_writable) end.can_finalize = false;
  // The others took this process for dead, and another job may have the folder by now.
  if (ready.results->was_ended_by_others())
    watchdog.leave(static_cast<int>(ExitCode::stopped_early));
  // One that was idle may have been lost since the last experiment began.
  end.can_finalize = end.can_finalize && watchdog.lost_ranks().empty();
  end.code = guarded([&] {
    if (end.code == ExitCode::not_writable) return end.code;
    ready.journal->add(event::job_finished(static_cast<int>(end.code), end.reason));
    ready.journal->commit();
    return end.code;
  });
  if (end.code == ExitCode::not_writable) end.reason = "results can not be written";
  end.code = guarded([&] {
    ready.lock->check();  // or the file is another job's
    ready.results->write_exit_status(end.code, end.reason);
    return end.code;
  });
  ready.lock.reset();
  const message::Quit quit{static_cast<int>(end.code), end.can_finalize};
  for (int rank = 0; rank < topology.world_size; ++rank) mailbox.send(rank, encode(Message(quit)));
  mailbox.flush(5);
  // Whoever is lost may be this very process's worker, deep inside a step: nothing else ends it.
  if (!end.can_finalize) watchdog.leave(quit.exit_code);
}

}  // namespace dstune
