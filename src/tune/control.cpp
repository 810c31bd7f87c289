#include "control.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/tune/controller.hpp"
#include "dstune/tune/outside_memory.hpp"
#include "dstune/tune/stop_signals.hpp"
#include "dstune/tune/time_limit.hpp"
#include "gpu_room.hpp"
#include "guarded.hpp"
#include "patience.hpp"
#include "prediction.hpp"
#include "rank_devices.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

constexpr double default_reserve_s = 60;

Progress::Style progress_style(const JobOptions& options) {
  if (options.quiet || options.no_progress) return Progress::Style::silent;
  return isatty(STDERR_FILENO) != 0 ? Progress::Style::terminal : Progress::Style::lines;
}

std::optional<ControllerOptions::Clock::time_point> end_time(const JobOptions& options,
                                                             double& reserve_s) {
  const auto limit = find_time_limit(
      options.time_limit_s,
      [](const char* name) { return static_cast<const char*>(std::getenv(name)); },
      std::chrono::system_clock::now());
  if (options.reserve_s) reserve_s = *options.reserve_s;
  if (!limit) {
    log::info("no time limit is known (--time-limit sets one)");
    return std::nullopt;
  }
  reserve_s = options.reserve_s.value_or(std::min(default_reserve_s, limit->left_s / 10));
  log::info("time limit " + format_duration(limit->left_s) + " from " + limit->source + ", " +
            format_duration(reserve_s) + " of it for a clean end");
  return ControllerOptions::Clock::now() + to_duration(std::max(0.0, limit->left_s - reserve_s));
}

/// Tuners may ask how fast members will be. Above so many it would keep the job waiting.
void predict_members(PlannedSpace& space, JobPredictor& predictor) {
  constexpr std::uint64_t most_predicted = 20'000;
  if (space.planned > most_predicted) return;
  for (auto& [planned, chain] : space.members)
    if (planned.status == PlanStatus::planned)
      planned.predicted.throughput = predictor.throughput(planned.experiment);
}

/// What the ranks of each node may have of its host, and of its disk: there, too, what is free
/// where rank 0 is, on the fullest of the disks that members name. Not less than one of them takes:
/// a disk that has filled up since is that member's result.
std::vector<NodeBytes> bytes_of_nodes(const Preparation& ready) {
  if (ready.job.workload.kind != WorkloadKind::transformer) return {};
  NodeBytes node;
  std::set<std::string> folders;
  std::int64_t most_taken = 0;
  for (const PlannedMember& member : ready.space.members) {
    const auto& [experiment, status, reason, predicted] = member.planned;
    if (status != PlanStatus::planned || predicted.disk_bytes == 0) continue;
    folders.insert(experiment.config.disk.folder);
    most_taken = std::max(most_taken, predicted.disk_bytes * experiment.shape.num_gpus);
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

/// Whether there is a figure of every rank that trains.
bool is_known(const std::vector<std::int64_t>& bytes, const std::vector<std::vector<int>>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [&](const std::vector<int>& ranks) {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int rank) { return bytes[static_cast<std::size_t>(rank)] > 0; });
  });
}

/// Now that the communicators of all groups are there.
void leave_out_what_lacks_room(Preparation& ready, const std::optional<std::int64_t>& room_bytes) {
  if (!room_bytes) return;
  const auto has_run = [&](std::size_t index) {
    return ready.history.finished.contains(ready.keys[index]);
  };
  const std::vector<std::size_t> dropped = drop_what_lacks_room(ready.space, *room_bytes, has_run);
  if (dropped.empty()) return;
  log::warning(fmt::format("{} of the GPU are left for tensors: {} members do not fit",
                           format_bytes(*room_bytes), dropped.size()));
  for (const std::size_t index : dropped)
    ready.journal->add(event::planned(ready.space.members[index].planned));
}

}  // namespace

void control(const JobOptions& options, Preparation& ready, const Topology& topology,
             const std::vector<RankDevice>& devices, const BytesBefore& bytes, Mailbox& mailbox) {
  SlotPool slots(ready.training_ranks, bytes_of_nodes(ready));
  Progress progress(progress_style(options));
  ControllerOptions control_options;
  control_options.metric = ready.job.tuning.metric;
  control_options.is_search_complete = ready.is_search_complete;
  // What a plug-in counts as operations need not grow with the samples.
  control_options.races =
      ready.job.tuning.tuner_type == "race" && !(ready.job.workload.kind == WorkloadKind::plugin &&
                                                 ready.job.tuning.metric == Metric::flops);
  const bool is_measured = ready.job.workload.kind == WorkloadKind::transformer ||
                           ready.job.workload.kind == WorkloadKind::plugin;
  control_options.repeats_best = control_options.races || is_measured;
  control_options.trial_timeout_s = options.trial_timeout_s;
  double reserve_s = default_reserve_s;
  control_options.end_at = end_time(options, reserve_s);
  control_options.stop_grace_s = std::max(1.0, reserve_s / 3);
  control_options.abort_grace_s = std::max(1.0, reserve_s / 6);
  MeasuredMachine machine;
  const auto predicted_step_s = [&](const PlannedExperiment& planned) {
    return machine.predictor ? machine.predictor->step_s(planned.experiment) : std::nullopt;
  };
  control_options.patience_s = [&](const PlannedExperiment& planned) {
    return patience_s(ready.job, options.trial_timeout_s, planned, predicted_step_s(planned));
  };
  const bool is_on_gpus = devices.back().backend == "cuda";
  if (is_on_gpus) {
    control_options.rest_s = [&](const PlannedExperiment& planned) {
      return rest_s(predicted_step_s(planned));
    };
  }
  control_options.training_command = ready.job.training_command;
  control_options.arg_mappings = ready.job.tuning.arg_mappings;
  control_options.own_runs = ready.own_runs;
  const CpuWorkspaces workspaces(*ready.kernels);
  std::optional<OverheadCounter> overheads;
  if (ready.job.workload.kind == WorkloadKind::transformer) {
    overheads.emplace(ready.job.model, workspaces);
    control_options.overheads = [&](const Experiment& experiment) {
      return overheads->count(experiment.config, experiment.shape.size());
    };
  }
  control_options.memory_offset_bytes = ready.memory_offset_bytes;
  control_options.sends_ds_config = ready.job.workload.kind == WorkloadKind::plugin;
  control_options.memory_timeline = [&](const Experiment& experiment) {
    return memory_timeline_of(ready, experiment);
  };
  OutsideMemory outside_memory(bytes.resident);
  control_options.outside_memory = &outside_memory;
  control_options.devices_have_own_memory = devices.front().backend == "cuda";
  OutsideMemory outside_gpu_memory(bytes.gpu, true);
  if (is_known(bytes.gpu, ready.training_ranks))
    control_options.outside_gpu_memory = &outside_gpu_memory;
  control_options.is_dead = death_watch(topology, devices);
  control_options.signals = stop_signals;

  bool can_finalize = true;
  std::string reason;
  ExitCode exit_code = guarded([&] {
    if (is_predictable(ready)) {
      const auto end_at = control_options.end_at;
      machine = measure_machine(
          ready, mailbox, control_options.is_dead,
          [end_at] {
            return stop_signals() > 0 || (end_at && ControllerOptions::Clock::now() >= *end_at);
          },
          options.profile_path, is_on_gpus ? least_rest_s : 0);
      control_options.first_attempt = machine.next_attempt;
      outside_memory.start_again(machine.outside_bytes);
      outside_gpu_memory.start_again(machine.gpu_outside_bytes);
      leave_out_what_lacks_room(ready, room_on_gpus(devices, bytes.gpu, machine.gpu_outside_bytes));
    }
    if (machine.predictor) {
      control_options.predictor = machine.predictor.get();
      control_options.default_timeout_s = [&](const Experiment& experiment) {
        const auto predicted_s = machine.predictor->experiment_s(experiment);
        return predicted_s ? default_trial_timeout_s(*predicted_s) : 0;
      };
    }
    if (machine.predictor) predict_members(ready.space, *machine.predictor);
    const auto tuner = make_tuner(ready.job.tuning.tuner_type, ready.space, ready.job.tuning);
    Controller controller(ready.space, ready.keys, ready.history, *tuner, slots, mailbox,
                          *ready.journal, *ready.results, progress, control_options);
    const ExitCode code = controller.run();
    reason = controller.reason();
    can_finalize = controller.can_finalize() && machine.is_everybody_back;
    if (options.json_output) {
      std::cout << summary_json(controller.report(), static_cast<int>(code)).dump() << std::endl;
    } else {
      std::cout << summary_text(controller.report()) << std::flush;
    }
    return code;
  });
  if (exit_code == ExitCode::not_writable) {
    // Members may still be in an experiment: only the process's end gets them out.
    can_finalize = false;
    reason = "results can not be written";
  }
  exit_code = guarded([&] {
    ready.journal->add(event::job_finished(static_cast<int>(exit_code), reason));
    ready.journal->commit();
    ready.results->write_exit_status(exit_code, reason);
    return exit_code;
  });
  const message::Quit quit{static_cast<int>(exit_code), can_finalize};
  for (int rank = 0; rank < topology.world_size; ++rank) mailbox.send(rank, encode(Message(quit)));
  mailbox.flush(5);
  // Whoever is lost may be this very process's worker, deep inside a step: nothing else ends it.
  if (!can_finalize) MpiEnvironment::leave_without_finalize(quit.exit_code);
}

}  // namespace dstune
