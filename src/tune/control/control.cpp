#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <ranges>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "control/controller.hpp"
#include "control/job_search.hpp"
#include "dstune/base/output.hpp"
#include "dstune/base/text.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/tune/watchdog.hpp"
#include "profile/prediction.hpp"
#include "start/rank_devices.hpp"
#include "target/target_constants.hpp"

namespace dstune {
namespace {

/// Tuners may ask how fast members will be. Above so many it would keep the job waiting.
void predict_members(PlannedSpace& space, JobPredictor& predictor, const TimeBudget& time) {
  constexpr std::uint64_t max_predicted = 20'000;
  if (space.planned > max_predicted) return;
  auto member = space.members.begin();
  for (std::size_t index = 0; index < space.members.size(); ++index, ++member)
    if (space.status(index) == PlanStatus::planned && !time.is_over())
      predictor.predict(member->planned.experiment, member->planned.predicted);
}

/// Returns how much host memory and disk the ranks of each node may have. Every node's disk counts
/// as having the free bytes that rank 0 sees, on the fullest disk that members name. It is at least
/// what one member takes: a disk that has filled up since is that member's result.
std::vector<NodeBytes> bytes_of_nodes(const OpenJob& ready) {
  if (!ready.deciding().traits().runs_plan) return {};
  NodeBytes node;
  std::set<std::string> folders;
  std::int64_t most_taken = 0;
  visit_members_to_run(ready.space, [&](const PlannedExperiment& member) {
    const std::int64_t disk_bytes = member.predicted.disk_bytes;
    if (disk_bytes == 0) return true;
    folders.insert(member.experiment.config.disk.folder);
    most_taken = std::max(most_taken, disk_bytes * member.experiment.shape.num_gpus);
    return true;
  });
  for (const std::string& folder : folders)
    node.disk = std::min(node.disk, std::max(most_taken, free_disk_bytes(folder)));
  std::vector<NodeBytes> nodes;
  for (const std::vector<int>& ranks : ready.training_ranks) {
    node.host = *ready.host_memory_bytes * static_cast<std::int64_t>(ranks.size());
    nodes.push_back(node);
  }
  return nodes;
}

/// Now that the communicators of all groups are there.
void leave_out_what_does_not_fit(OpenJob& ready,
                                 const std::optional<std::int64_t>& free_memory_bytes) {
  if (!free_memory_bytes) return;
  const auto has_run = [&](std::size_t member) {
    return ready.history.finished.contains(ready.keys[member]);
  };
  const std::vector<std::size_t> dropped =
      drop_what_does_not_fit(ready.space, *free_memory_bytes, has_run);
  if (dropped.empty()) return;
  const std::string members = format_count(dropped.size(), "member");
  log::warning(
      fmt::format(log_text::members_do_not_fit, members, format_bytes(*free_memory_bytes)));
  MembersLeftOut left_out;
  for (const std::size_t member : dropped)
    left_out.add(ready.space.members.copy_of(member).planned);
  ready.journal->add(left_out.event());
}

ProcessMemoryPredictor memory_predictor(const OpenJob& ready,
                                        const std::vector<RankDevice>& devices,
                                        const BytesBefore& bytes) {
  std::optional<NonArenaMemory> gpus;
  // Only where there is a figure of every rank that trains.
  if (std::ranges::all_of(ready.training_ranks | std::views::join,
                          [&](int rank) { return bytes.gpu[static_cast<std::size_t>(rank)] > 0; }))
    gpus.emplace(bytes.gpu, true);
  return {NonArenaMemory(bytes.resident), std::move(gpus), devices.front().is_gpu()};
}

void print_answer(const JobOptions& options, const OpenJob& ready, const SearchResult& result) {
  if (options.json_output) {
    output() << json::ascii_text(summary_json(result.answer, static_cast<int>(result.end.code)))
             << std::endl;
  } else {
    output() << printable_lines(summary_text(result.answer) + "\n" +
                                headline_text(result.answer, ready.results->path()))
             << std::flush;
  }
}

/// Measures what the machine can do, and how fast it is, for forecasts.
MeasuredMachine measure(const JobOptions& options, OpenJob& ready,
                        const std::vector<RankDevice>& devices, const BytesBefore& bytes,
                        AttemptDriver& driver, const std::function<bool()>& is_to_be_ended,
                        ProcessMemoryPredictor& memory, Progress& progress) {
  MeasuredMachine machine;
  if (!ready.target_key.empty() || is_predictable(ready)) progress.begin(TuningPhase::profiling);
  // First, so that what engines leave in the processes is in what is measured of these.
  measure_target(ready, driver, is_to_be_ended);
  if (is_predictable(ready)) {
    machine = measure_machine(ready, driver, is_to_be_ended, options.profile_path,
                              memory.devices_have_own_memory ? min_drain_timeout_s : 0);
    memory.start_again(machine.bytes_after);
    leave_out_what_does_not_fit(ready,
                                free_gpu_memory(devices, bytes.gpu, machine.bytes_after.gpu));
  }
  if (!machine.predictor && ready.job.has_own_step())
    machine.predictor = std::make_unique<JobPredictor>(ready, std::nullopt);
  if (!machine.predictor) return machine;
  price_link(ready, *machine.predictor);
  if (ready.target) machine.predictor->calibrate(ready.target->time);
  progress.begin(TuningPhase::planning);
  predict_members(ready.space, *machine.predictor, ready.time);
  return machine;
}

/// Measures the machine and runs the controller.
SearchEnd run_search(const JobOptions& options, OpenJob& ready, const Topology& topology,
                     const std::vector<RankDevice>& devices, const BytesBefore& bytes,
                     SlotPool& slots, AttemptDriver& driver, Progress& progress,
                     const Watchdog& watchdog) {
  if (ready.time.end_at)
    progress.set_time_limit(seconds(*ready.time.end_at - options.began) + ready.time.reserve_s);
  const JobEnd end{ready.time.end_at, [&] { return watchdog.num_stop_signals(); },
                   [&] { return watchdog.who_died(); }};
  ProcessMemoryPredictor memory = memory_predictor(ready, devices, bytes);
  bool is_end_written = false;
  // It is asked all the time while the machine is measured.
  ShowTimes times(options.began);
  const auto is_to_be_ended = [&] {
    progress.tick();
    if (times.is_state_due(progress.state().phase, driver.now().steady))
      ready.results->write_state(progress.state());
    const std::string reason = end.reason(driver.now());
    // mpirun may kill everything a second after the signal.
    if (!reason.empty() && !std::exchange(is_end_written, true))
      ready.results->write_exit_status(ExitCode::stopped_early,
                                       reason + "; the same command resumes");
    return !reason.empty();
  };
  const MeasuredMachine machine =
      measure(options, ready, devices, bytes, driver, is_to_be_ended, memory, progress);
  // Predictions are of our own step.
  const bool runs_plan = ready.deciding().traits().runs_plan;
  const TrialLimits limits{ready.job,
                           ready.deciding(),
                           options.trial_timeout_s,
                           memory.devices_have_own_memory,
                           ready.time.abort_grace_s(),
                           runs_plan ? machine.predictor.get() : nullptr};
  Scoreboard scoreboard = scoreboard_of(ready);
  const SearchResult result = search({.options = options,
                                      .job = ready,
                                      .end = end,
                                      .limits = limits,
                                      .predictor = machine.predictor.get(),
                                      .memory = memory,
                                      .slots = slots,
                                      .driver = driver,
                                      .topology = topology,
                                      .progress = progress},
                                     scoreboard);
  print_answer(options, ready, result);
  return result.end;
}

}  // namespace

std::string JobEnd::reason(Moment now) const {
  if (signals && signals() > 0) {
    const std::string died = who_died ? who_died() : "";
    return died.empty() ? "a signal to stop" : died + ", and the launcher stops the job";
  }
  return end_at && now.steady >= *end_at ? "the time limit" : "";
}

double JobEnd::time_left_s(Moment now) const {
  if (!end_at) return std::numeric_limits<double>::infinity();
  return seconds(*end_at - now.steady);
}

namespace {

/// A scoreboard's members are those of the space.
class SpaceMembers : public MemberSource {
 public:
  explicit SpaceMembers(const PlannedSpace& space) : space_(space) {}

  [[nodiscard]] std::size_t size() const override { return space_.members.size(); }
  [[nodiscard]] PlannedExperiment planned(std::size_t member) const override {
    return space_.members.copy_of(member).planned;
  }
  [[nodiscard]] PlanStatus status(std::size_t member) const override {
    return space_.status(member);
  }
  [[nodiscard]] PruneKind prune_kind(std::size_t member) const override {
    return space_.prune_kind(member);
  }
  [[nodiscard]] std::string_view reason(std::size_t member) const override {
    return space_.reason(member);
  }

 private:
  const PlannedSpace& space_;
};

}  // namespace

Scoreboard known_scoreboard(const PlannedSpace& space, const std::vector<std::string>& keys,
                            const History& history, ScoreboardSetup setup) {
  setup.earlier_jobs = history.num_jobs;
  setup.earlier_s = history.spent_s;
  setup.earlier_rank_s = history.spent_rank_s;
  PackedList<Row> rows;
  if (space.members.is_open()) {
    for (const PlannedMember& member : space.members) rows.push_back({member.planned});
  } else {
    rows = rows_of(std::make_shared<SpaceMembers>(space));
  }
  Scoreboard scoreboard(std::move(setup), std::move(rows));
  for (std::size_t member = 0; member < keys.size(); ++member) {
    const auto repeats = history.repeats.find(keys[member]);
    if (repeats != history.repeats.end())
      for (const Repeat& repeat : repeats->second) scoreboard.repeat(member, repeat);
    const auto verified = history.verified.find(keys[member]);
    if (verified != history.verified.end()) scoreboard.verify(member, verified->second);
  }
  return scoreboard;
}

std::map<std::size_t, int> deaths_in_repeats(const std::vector<std::string>& keys,
                                             const History& history) {
  std::map<std::size_t, int> deaths;
  for (std::size_t member = 0; member < keys.size(); ++member) {
    const auto died = history.repeat_deaths.find(keys[member]);
    if (died != history.repeat_deaths.end()) deaths[member] = died->second;
  }
  return deaths;
}

void control(const JobOptions& options, OpenJob& ready, const Topology& topology,
             const std::vector<RankDevice>& devices, const BytesBefore& bytes, Mailbox& mailbox,
             Progress& progress, Watchdog& watchdog) {
  const TimeBudget& time = ready.time;
  SlotPool slots(ready.training_ranks, bytes_of_nodes(ready));
  AttemptDriver driver(mailbox,
                       {.stop_grace_s = time.stop_grace_s(),
                        .share_a_node =
                            [&](const std::vector<int>& one, const std::vector<int>& other) {
                              return slots.share_a_node(one, other);
                            }},
                       [&] { return watchdog.lost_ranks(); });
  driver.set_choice_keeper([&](const kernels::CudaChoices& chosen) {
    log::debug(fmt::format("libraries: {} choices by time", chosen.size()));
    for (const auto& [what, place] : chosen) ready.choices[what] = place;
    ready.lock->check();  // or the file is another job's
    ready.results->write_library_choices(ready.choices);
  });
  SearchEnd end;
  end.code = guarded([&] {
    end = run_search(options, ready, topology, devices, bytes, slots, driver, progress, watchdog);
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
  const char* const not_written =
      "results can not be written; the same command resumes once they can";
  if (end.code == ExitCode::not_writable) end.reason = not_written;
  bool is_folder_ours = false;
  end.code = guarded([&] {
    ready.lock->check();  // or the file is another job's
    is_folder_ours = true;
    ready.results->write_exit_status(end.code, end.reason);
    return end.code;
  });
  ready.lock.reset();
  // On a full disk there is room where the lock was.
  if (is_folder_ours && end.code == ExitCode::not_writable)
    create_exit_status(ready.results->exit_status_path(), end.code, not_written);
  const message::Quit quit{static_cast<int>(end.code), end.can_finalize};
  for (int rank = 0; rank < topology.world_size; ++rank) mailbox.send(rank, encode(Message(quit)));
  mailbox.flush(5);
  // Whoever is lost may be this very process's worker, deep inside a step: nothing else ends it.
  if (!end.can_finalize) watchdog.leave(quit.exit_code);
}

}  // namespace dstune
