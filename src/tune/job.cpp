#include "dstune/tune/job.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "control/controller.hpp"
#include "dstune/base/crash.hpp"
#include "dstune/base/log.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/device/device.hpp"
#include "dstune/device/energy.hpp"
#include "dstune/device/nvml.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/tune/watchdog.hpp"
#include "dstune/tune/worker.hpp"
#include "profile/prediction.hpp"
#include "start/gpu_groups.hpp"
#include "start/preparation.hpp"
#include "start/rank_devices.hpp"
#include "watch/heartbeats.hpp"
#include "worker/injection.hpp"

namespace dstune {
namespace {

/// What nobody expected: the others wait for this rank, and only the end of the job gets them out.
[[noreturn]] void give_up(const Preparation& ready, const std::string& where,
                          const std::exception& error, Watchdog& watchdog) {
  const std::string reason = "internal error in the " + where + ": " + error.what();
  log::set_level(log::Level::error);
  log::error(reason);
  try {
    if (ready.lock) ready.lock->check();  // or the file is another job's
    if (ready.results) ready.results->write_exit_status(ExitCode::internal, reason);
  } catch (const std::exception& failed) {
    log::error(failed.what());
  }
  if (ready.lock) release_folder_locks();
  watchdog.note_end(static_cast<int>(ExitCode::internal));
  MpiEnvironment::abort(static_cast<int>(ExitCode::internal));
}

/// It prepares the job, then it is a worker's, and last it ends the job.
constexpr const char* main_thread = "the main thread";

/// The end of a job that has not begun its search.
void write_end(Preparation& ready, const JobOptions& options, ExitCode code,
               const std::string& reason) {
  if (!ready.lock) {
    // Folders that were made for it say the same.
    write_early_end(options, code, reason);
    return;
  }
  try {
    ready.lock->check();
    ready.results->write_exit_status(code, reason);
  } catch (const Error& error) {
    log::error(error.what());
  }
}

/// How the rank's GPU is; empty where it has none.
std::function<std::optional<nvml::GpuState>()> gpu_samples(const FoundDevice& found) {
  if (found.gpu.name.empty()) return nullptr;
  return [library = nvml::find_library().library, uuid = found.gpu.uuid] {
    return nvml::try_sample(library, uuid);
  };
}

/// This rank's place on its node.
int local_rank_of(const Topology& topology) {
  const int node = topology.node_of_rank[static_cast<std::size_t>(topology.world_rank)];
  const std::vector<int>& ranks = topology.ranks_of_node[static_cast<std::size_t>(node)];
  return static_cast<int>(std::ranges::find(ranks, topology.world_rank) - ranks.begin());
}

/// excluded_ranks() as rank 0 knows them, whose files they are from. Collective over the world.
std::vector<int> agree_on_excluded_ranks(const Communicator& world, const JobOptions& options,
                                         const Topology& topology) {
  std::vector<int> ranks;
  if (world.rank() == 0) {
    try {
      ranks = excluded_ranks(options, topology);
    } catch (const Error&) {
      // The preparation will say so, with what else is wrong.
    }
  }
  const auto plain = std::as_bytes(std::span(ranks));
  Bytes bytes(plain.begin(), plain.end());
  world.broadcast(bytes, 0);
  ranks.resize(bytes.size() / sizeof(int));
  std::ranges::copy(bytes, std::as_writable_bytes(std::span(ranks)).begin());
  return ranks;
}

}  // namespace

ExitCode run_job(const JobOptions& options, bool thread_multiple, Watchdog& watchdog) {
  const Communicator world = Communicator::world();
  crash::name_thread(main_thread);
  watchdog.note_world_rank(world.rank());
  std::optional<Heartbeats> heartbeats;
  if (thread_multiple)
    heartbeats.emplace(watchdog.ranks_here(), [&](int rank) { watchdog.lose(rank); });
  if (world.rank() != 0) log::set_level(log::Level::off);
  const FoundNode here = find_node(world);
  const Topology& topology = here.topology;
  if (!here.is_pretended) watchdog.note_hosts(static_cast<int>(topology.hosts.size()));

  FoundDevice found;
  try {
    const bool has_coordinator = !thread_multiple || options.dedicated_coordinator;
    found = find_device(world, topology, options,
                        {has_coordinator, agree_on_excluded_ranks(world, options, topology)});
  } catch (const DeviceError& error) {
    log::error(error.what());
    if (world.rank() == 0) write_early_end(options, ExitCode::no_device, error.what());
    return ExitCode::no_device;
  }
  Device& device = *found.device;
  const std::vector<RankDevice> devices = gather_devices(world, describe(topology, found));
  if (topology.world_rank == 0 && options.verbose) log_ranks(topology, devices);

  JobOptions decided = options;
  Preparation ready;
  JobInput input;
  std::string reason;
  if (topology.world_rank == 0) {
    const ExitCode code = guarded(
        [&] {
          if (!thread_multiple && !decided.dedicated_coordinator) {
            log::warning("MPI grants less than MPI_THREAD_MULTIPLE: rank 0 only coordinates");
            decided.dedicated_coordinator = true;
          }
          if (decided.dedicated_coordinator && topology.world_size < 2) {
            throw UsageError(
                "--coordinator dedicated needs at least 2 ranks: start it with "
                "mpirun -np 2 or more");
          }
          ready = prepare_plan(decided, topology, devices, device.kernels());
          // Kernels in their place are slower: nobody asks for GPUs to measure those. PyTorch and
          // plug-ins bring their own.
          if (options.backend == Backend::cuda &&
              ready.job.workload.kind == WorkloadKind::transformer &&
              !found.missing_library.empty())
            throw DeviceError("--backend cuda: " + found.missing_library +
                              "; --backend auto goes on without it, slower, and says so");
          take_folders(ready, decided);
          if (ready.space.is_cut_short) return end_while_planning(ready);
          if (decided.profile_path && !is_predictable(ready)) {
            throw UsageError(
                "--profile-out: the machine is measured for the workload transformer alone, where "
                "something is planned");
          }
          input = job_input(ready);
          return ExitCode::ok;
        },
        &reason);
    if (!reason.empty()) write_end(ready, options, code, reason);
    if (!input.run || code != ExitCode::ok) {
      input = JobInput{};
      input.exit_code = static_cast<int>(code);
    }
  }
  Bytes bytes = encode(input);
  world.broadcast(bytes, 0);
  input = decode_job_input(bytes);
  if (!input.run) return static_cast<ExitCode>(input.exit_code);
  const LoadedPlugin plugin = load_plugin_everywhere(
      world, input.workload,
      {.on_own_thread = thread_multiple,
       .timeout_s = options.trial_timeout_s.value_or(PluginLoading().timeout_s)});
  const WorkloadSpec* const beside = input.beside ? &*input.beside : nullptr;
  LoadedEngine loaded = load_engine_everywhere(world, beside != nullptr ? *beside : input.workload,
                                               {.world_rank = topology.world_rank,
                                                .local_rank = local_rank_of(topology),
                                                .on_gpu = !found.gpu.name.empty(),
                                                .device_index = found.gpu.number,
                                                .threads = device.threads()},
                                               options.engine_refusal);
  if (loaded.engine) ready.engine = loaded.engine->loaded();
  const FoundEnergyMeter energy =
      find_energy_meter(powercap_folder(), gpus_of_node(topology, devices));
  ready.energy = energy.meter ? energy.meter->description() : "not measured";
  if (!energy.reason.empty())
    ready.energy += (energy.meter ? "; nothing else: " : ": ") + energy.reason;
  // Only now: bad input touches no result.
  JobStart begun;
  if (world.rank() == 0) {
    const ExitCode code = guarded(
        [&] {
          if (!plugin.violation.empty())
            throw InputError({plugin_problem(*ready.job.document, plugin.violation)});
          if (!loaded.violation.empty())
            throw InputError({engine_problem(ready.job, loaded.violation)});
          if (const auto other = engine_release_violation(ready.job, ready.engine); !other.empty())
            throw InputError({engine_problem(ready.job, other)});
          if (loaded.engine) prune_for_operators(ready, *loaded.engine);
          // A GPU's memory is for Python alone.
          if (loaded.engine && beside == nullptr && is_planned(ready.job) && found.gpu.name.empty())
            predict_engine_members(ready, device);
          open_results(ready, decided, topology, devices, [&watchdog](const std::string& path) {
            watchdog.set_exit_status_path(path);
          });
          log::info((energy.meter ? "energy is measured: " : "energy is ") + ready.energy);
          return ExitCode::ok;
        },
        &reason);
    if (!reason.empty()) write_end(ready, options, code, reason);
    begun = {static_cast<int>(code), ready.choices};
  }
  bytes = encode(begun);
  world.broadcast(bytes, 0);
  begun = decode_job_start(bytes);
  const auto start = static_cast<ExitCode>(begun.exit_code);
  if (plugin.hangs) MpiEnvironment::leave_without_finalize(static_cast<int>(start));
  if (start != ExitCode::ok) return start;

  kernels::adopt_cuda_choices(begun.choices);
  device.budget().set_limit_bytes(input.device_memory_bytes);
  device.host_budget().set_limit_bytes(input.host_memory_bytes);
  const Communicator to_workers = world.duplicate();
  const Communicator to_controller = world.duplicate();
  // PyTorch brings communicators of its own. Beside it our step takes the library that is loaded.
  const bool is_engine_alone = loaded.engine && beside == nullptr;
  const auto shared_with = loaded.engine ? nccl::SharedWith::pytorch : nccl::SharedWith::nobody;
  GroupTable groups(world, here.node, topology, input.groups,
                    {.device = is_engine_alone ? std::nullopt : device_groups(found, shared_with)});
  if (options.verbose)
    for (const std::vector<int>& ranks : input.groups)
      log::debug(fmt::format("group: ranks {}", fmt::join(ranks, ", ")));
  if (groups.devices() != nullptr)
    log::info("collectives: " + transports_of(*groups.devices(), input.groups));
  if (input.workload.kind == WorkloadKind::transformer &&
      input.measure.start_profile_step < steps_until_alike(device)) {
    log::warning(fmt::format(
        "the first {} steps of each experiment are warm-up here, not {} "
        "(autotuning.start_profile_step): in these libraries choose their algorithms, code is "
        "loaded, and graphs are recorded",
        steps_until_alike(device), input.measure.start_profile_step));
  }
  const BytesBefore bytes_before = bytes_before_experiments(world, device);
  // That was the last that needs every rank.
  watchdog.begin_search();
  MpiMailbox worker_mailbox(to_workers, to_controller, MpiMailbox::Side::worker);
  Worker worker({.model = &input.model,
                 .workload = &input.workload,
                 .beside = beside,
                 .measure = input.measure,
                 .seed = reference_seed,
                 .topology = &topology,
                 .groups = &groups,
                 .device = &device,
                 .mailbox = &worker_mailbox,
                 .energy = energy.meter.get(),
                 .sample_gpu = gpu_samples(found),
                 .engine = loaded.engine.get(),
                 .exits_when_stuck =
                     thread_multiple &&
                     (input.workload.kind == WorkloadKind::plugin || groups.devices() != nullptr)});

  std::thread controller_thread;
  if (topology.world_rank == 0) {
    const auto work = [&] {
      crash::name_thread("the controller");
      try {
        MpiMailbox mailbox(to_workers, to_controller, MpiMailbox::Side::controller);
        control(decided, ready, topology, devices, bytes_before, mailbox, watchdog);
      } catch (const std::exception& error) {
        give_up(ready, "controller", error, watchdog);
      }
    };
    // Without THREAD_MULTIPLE the two halves must not run at once: rank 0 has no slot then, and its
    // worker only takes the QUIT that is already waiting for it.
    if (thread_multiple) {
      controller_thread = std::thread(work);
    } else {
      work();
      crash::name_thread(main_thread);
    }
  }
  message::Quit quit;
  try {
    quit = worker.run();
  } catch (const std::exception& error) {
    // Here, and not where this would end up: the controller's thread is still running.
    give_up(ready, "worker of rank " + std::to_string(topology.world_rank), error, watchdog);
  }
  if (controller_thread.joinable()) controller_thread.join();
  if (!quit.finalize) watchdog.leave(quit.exit_code);
  watchdog.begin_end(quit.exit_code);
  return static_cast<ExitCode>(quit.exit_code);
}

}  // namespace dstune
