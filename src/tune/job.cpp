#include "dstune/tune/job.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include <unistd.h>

#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/topology.hpp"
#include "dstune/device/device.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/device/energy.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/tune/controller.hpp"
#include "dstune/tune/injection.hpp"
#include "dstune/tune/outside_memory.hpp"
#include "dstune/tune/stop_signals.hpp"
#include "dstune/tune/time_limit.hpp"
#include "dstune/tune/worker.hpp"
#include "patience.hpp"
#include "plugin_start.hpp"
#include "prediction.hpp"
#include "preparation.hpp"
#include "show_plan.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

using json::Value;

/// Of a host's memory, what its ranks share unless the document says otherwise (design 3).
constexpr double share_of_host_memory = 0.8;
/// … and with what they offload; the rest is for processes and libraries.
constexpr double share_with_offload = 0.95;
constexpr double default_reserve_s = 60;

RankDevice describe(const Topology& topology, CpuDevice& device) {
  const auto& neighbours = topology.ranks_of_node[static_cast<std::size_t>(
      topology.node_of_rank[static_cast<std::size_t>(topology.world_rank)])];
  const double host_bytes =
      static_cast<double>(host_memory_bytes()) / static_cast<double>(neighbours.size());
  // Many ranks on a small host: their processes alone may need more than is set apart for them.
  const double left_bytes =
      std::max(0.0, host_bytes - static_cast<double>(process_resident_bytes()));
  return {device.description(), topology.threads_of_rank, getpid(),
          static_cast<std::int64_t>(std::min(share_of_host_memory * host_bytes, left_bytes)),
          static_cast<std::int64_t>(std::min(share_with_offload * host_bytes, left_bytes))};
}

/// Every rank's device, on every rank. Collective over the world.
std::vector<RankDevice> gather_devices(const Communicator& world, const RankDevice& mine) {
  const std::string text = Value{
      {"description", mine.description},
      {"threads", mine.threads},
      {"process_id", mine.process_id},
      {"memory_bytes", mine.memory_bytes},
      {"host_bytes",
       mine.host_bytes}}.dump();
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  std::vector<RankDevice> devices;
  for (const Bytes& bytes : world.all_gather({begin, text.size()})) {
    const auto* first = reinterpret_cast<const char*>(bytes.data());
    const Value value = Value::parse(first, first + bytes.size());
    devices.push_back({value.at("description"), value.at("threads"), value.at("process_id"),
                       value.at("memory_bytes"), value.at("host_bytes")});
  }
  return devices;
}

bool is_process(int process_id) {
  return kill(process_id, 0) == 0 || errno != ESRCH;
}

/// Tells which ranks are known to be gone: those of this node whose process was to be seen at the
/// start (containers may hide them) and is not any more. Others are given their patience.
std::function<bool(int)> death_watch(const Topology& topology,
                                     const std::vector<RankDevice>& devices) {
  std::map<int, int> watched;
  const int here = topology.node_of_rank[static_cast<std::size_t>(topology.world_rank)];
  for (const int rank : topology.ranks_of_node[static_cast<std::size_t>(here)]) {
    const int process_id = devices[static_cast<std::size_t>(rank)].process_id;
    if (is_process(process_id)) watched[rank] = process_id;
  }
  return [watched](int rank) {
    const auto found = watched.find(rank);
    return found != watched.end() && !is_process(found->second);
  };
}

/// Runs rank 0's preparation and turns its failures into a message and an exit code.
template <class Work>
ExitCode guarded(Work&& work) {
  try {
    return work();
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) log::error(problem.text());
    return ExitCode::bad_input;
  } catch (const UsageError& error) {
    log::error(error.what());
    return ExitCode::usage;
  } catch (const IoError& error) {
    log::error(error.what());
    return ExitCode::not_writable;
  }
}

/// What rank 0's work ended with, on every rank. Collective over the world.
template <class Work>
ExitCode rank_0_says(const Communicator& world, Work&& work) {
  Bytes code(1);
  if (world.rank() == 0) code[0] = static_cast<std::byte>(guarded(work));
  world.broadcast(code, 0);
  return static_cast<ExitCode>(code[0]);
}

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

/// Modules with parameters: each has a weight. 0 where no model is trained.
std::int64_t num_modules(const JobSpec& job) {
  if (job.workload.kind != WorkloadKind::transformer) return 0;
  const ParameterTable table(job.model);
  std::int64_t count = 0;
  for (const Parameter& parameter : table.all()) {
    // Merged ones are joined by a plus.
    std::size_t at = parameter.name.find("weight");
    for (; at != std::string::npos; at = parameter.name.find("weight", at + 1)) ++count;
  }
  return count;
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

/// Rank 0's search: everything but the worker. Ends with a QUIT to every rank.
void control(const JobOptions& options, Preparation& ready, const Topology& topology,
             const std::vector<RankDevice>& devices,
             const std::vector<std::int64_t>& resident_bytes, Mailbox& mailbox) {
  SlotPool slots(ready.training_ranks, bytes_of_nodes(ready));
  Progress progress(progress_style(options));
  ControllerOptions control_options;
  control_options.metric = ready.job.tuning.metric;
  control_options.is_search_complete = ready.is_search_complete;
  // What a plug-in counts as operations need not grow with the samples.
  control_options.races =
      ready.job.tuning.tuner_type == "race" && !(ready.job.workload.kind == WorkloadKind::plugin &&
                                                 ready.job.tuning.metric == Metric::flops);
  control_options.trial_timeout_s = options.trial_timeout_s;
  double reserve_s = default_reserve_s;
  control_options.end_at = end_time(options, reserve_s);
  control_options.stop_grace_s = std::max(1.0, reserve_s / 3);
  control_options.abort_grace_s = std::max(1.0, reserve_s / 6);
  MeasuredMachine machine;
  control_options.patience_s = [&](const Experiment& experiment) {
    const auto step_s = machine.predictor ? machine.predictor->step_s(experiment) : std::nullopt;
    return patience_s(ready.job, options.trial_timeout_s, experiment, step_s);
  };
  control_options.training_command = ready.job.training_command;
  control_options.arg_mappings = ready.job.tuning.arg_mappings;
  control_options.own_runs = ready.own_runs;
  control_options.memory_offset_bytes = ready.memory_offset_bytes;
  control_options.num_modules = num_modules(ready.job);
  control_options.sends_ds_config = ready.job.workload.kind == WorkloadKind::plugin;
  control_options.memory_timeline = [&](const Experiment& experiment) {
    return memory_timeline_of(ready.job, experiment);
  };
  OutsideMemory outside_memory(resident_bytes);
  control_options.outside_memory = &outside_memory;
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
          options.profile_path);
      control_options.first_attempt = machine.next_attempt;
      outside_memory.start_again(machine.outside_bytes);
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

/// What nobody expected: the others wait for this rank, and only the end of the job gets them out.
[[noreturn]] void give_up(const Preparation& ready, const std::string& where,
                          const std::exception& error) {
  const std::string reason = "internal error in the " + where + ": " + error.what();
  log::set_level(log::Level::error);
  log::error(reason);
  try {
    if (ready.results) ready.results->write_exit_status(ExitCode::internal, reason);
  } catch (const std::exception& failed) {
    log::error(failed.what());
  }
  MpiEnvironment::abort(static_cast<int>(ExitCode::internal));
}

}  // namespace

ExitCode run_job(const JobOptions& options, bool thread_multiple) {
  const Communicator world = Communicator::world();
  const auto pretended = pretended_host(world.rank(), world.size());
  const Communicator node = pretended ? world.create_group(pretended->world_ranks, pretended->index)
                                      : world.split_shared();
  const Topology topology =
      pretended ? find_topology(world, node, pretended->name) : find_topology(world, node);
  if (topology.world_rank != 0) log::set_level(log::Level::off);

  CpuDevice device(host_memory_bytes(), topology.threads_of_rank);
  const std::vector<RankDevice> devices = gather_devices(world, describe(topology, device));

  JobOptions decided = options;
  Preparation ready;
  JobInput input;
  if (topology.world_rank == 0) {
    const ExitCode code = guarded([&] {
      if (!thread_multiple && !decided.dedicated_coordinator) {
        log::warning("MPI grants less than MPI_THREAD_MULTIPLE: rank 0 only coordinates");
        decided.dedicated_coordinator = true;
      }
      if (decided.dedicated_coordinator && topology.world_size < 2 && !decided.dry_run) {
        throw UsageError(
            "--coordinator dedicated needs at least 2 ranks: start it with "
            "mpirun -np 2 or more");
      }
      ready = prepare_plan(decided, topology, devices);
      if (decided.profile_path && !is_predictable(ready)) {
        throw UsageError(
            "--profile-out: the machine is measured for the workload transformer alone, where "
            "something is planned");
      }
      if (decided.dry_run) return show_plan(ready, decided, device);
      input = job_input(ready);
      return ExitCode::ok;
    });
    if (!input.run || code != ExitCode::ok) {
      input = JobInput{};
      input.exit_code = static_cast<int>(code);
    }
  }
  Bytes bytes = encode(input);
  world.broadcast(bytes, 0);
  input = decode_job_input(bytes);
  if (!input.run) return static_cast<ExitCode>(input.exit_code);
  const std::string objection = load_plugin_everywhere(world, input.workload);
  const FoundEnergyMeter energy = find_powercap_meter(powercap_folder());
  ready.energy = energy.meter ? energy.meter->description() : "not measured: " + energy.reason;
  log::info("energy: " + ready.energy);
  // Only now: bad input touches no result.
  const ExitCode start = rank_0_says(world, [&] {
    if (!objection.empty()) throw InputError({plugin_problem(*ready.job.document, objection)});
    open_results(ready, decided, topology, devices);
    return ExitCode::ok;
  });
  if (start != ExitCode::ok) return start;

  count_stop_signals();
  device.budget().set_limit_bytes(input.device_memory_bytes);
  device.host_budget().set_limit_bytes(input.host_memory_bytes);
  const Communicator to_workers = world.duplicate();
  const Communicator to_controller = world.duplicate();
  GroupTable groups(world, node, topology, input.groups, {});
  const std::vector<std::int64_t> resident_bytes =
      resident_before_experiments(world, device.kernels());
  MpiMailbox worker_mailbox(to_workers, to_controller, MpiMailbox::Side::worker);
  Worker worker(
      {.model = &input.model,
       .workload = &input.workload,
       .measure = input.measure,
       .seed = reference_seed,
       .topology = &topology,
       .groups = &groups,
       .device = &device,
       .mailbox = &worker_mailbox,
       .energy = energy.meter.get(),
       .leaves_when_stuck = thread_multiple && input.workload.kind == WorkloadKind::plugin});

  std::thread controller_thread;
  if (topology.world_rank == 0) {
    const auto work = [&] {
      try {
        MpiMailbox mailbox(to_workers, to_controller, MpiMailbox::Side::controller);
        control(decided, ready, topology, devices, resident_bytes, mailbox);
      } catch (const std::exception& error) {
        give_up(ready, "controller", error);
      }
    };
    // Without THREAD_MULTIPLE the two halves must not run at once: rank 0 has no slot then, and its
    // worker only takes the QUIT that is already waiting for it.
    if (thread_multiple) {
      controller_thread = std::thread(work);
    } else {
      work();
    }
  }
  message::Quit quit;
  try {
    quit = worker.run();
  } catch (const std::exception& error) {
    // Here, and not where this would end up: the controller's thread is still running.
    give_up(ready, "worker of rank " + std::to_string(topology.world_rank), error);
  }
  if (controller_thread.joinable()) controller_thread.join();
  if (!quit.finalize) MpiEnvironment::leave_without_finalize(quit.exit_code);
  return static_cast<ExitCode>(quit.exit_code);
}

}  // namespace dstune
