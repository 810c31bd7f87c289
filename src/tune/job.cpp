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
#include "dstune/core/log_text.hpp"
#include "dstune/device/device.hpp"
#include "dstune/device/energy.hpp"
#include "dstune/device/gpu_state.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/instrument/workloads.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/tune/watchdog.hpp"
#include "dstune/tune/worker.hpp"
#include "profile/prediction.hpp"
#include "start/gpu_groups.hpp"
#include "start/open_job.hpp"
#include "start/rank_devices.hpp"
#include "watch/heartbeats.hpp"
#include "watch/injection.hpp"

namespace dstune {
namespace {

/// Ends the job after an error that nobody expected: the others wait for this rank, and only the
/// end of the job gets them out. `job`: rank 0's.
[[noreturn]] void give_up(const OpenJob* job, const std::string& where, const std::exception& error,
                          Watchdog& watchdog) {
  const std::string reason = "internal error in the " + where + ": " + error.what();
  log::set_level(log::Level::error);
  log::error(reason);
  try {
    if (job != nullptr && job->lock) job->lock->check();  // or the file is another job's
    if (job != nullptr && job->results) job->results->write_exit_status(ExitCode::internal, reason);
  } catch (const std::exception& failed) {
    log::error(failed.what());
  }
  if (job != nullptr && job->lock) release_folder_locks();
  watchdog.note_end(static_cast<int>(ExitCode::internal));
  MpiEnvironment::abort(static_cast<int>(ExitCode::internal));
}

/// It prepares the job, then it is a worker's, and last it ends the job.
constexpr const char* main_thread = "the main thread";

/// The end of a job that has its folders and has not begun its search.
void write_end(const OpenJob& job, ExitCode code, const std::string& reason) {
  try {
    job.lock->check();
    job.results->write_exit_status(code, reason);
  } catch (const Error& error) {
    log::error(error.what());
  }
}

/// How the rank's GPU is; empty where it has none.
std::function<std::optional<GpuState>()> gpu_samples(const FoundDevice& found) {
  if (found.gpu.name.empty()) return nullptr;
  return [driver = find_gpu_driver(), uuid = found.gpu.uuid] { return sample_gpu(driver, uuid); };
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

/// The ranks of the job, as one of them sees them.
struct JobRanks {
  const Communicator& world;
  const FoundNode& here;
  FoundDevice found;                        ///< this rank's
  std::vector<RankDevice> devices;          ///< of all
  std::vector<PlacementFinding> placement;  ///< rank 0's
  bool has_threads;                         ///< MPI_THREAD_MULTIPLE

  [[nodiscard]] const Topology& topology() const { return here.topology; }
  [[nodiscard]] bool is_first() const { return world.rank() == 0; }
  [[nodiscard]] bool is_on_gpu() const { return !found.gpu.name.empty(); }
};

/// Nothing where some rank has none: rank 0 has said why. Collective over the world.
std::optional<JobRanks> take_devices(const Communicator& world, const FoundNode& here,
                                     const JobOptions& options, bool has_threads) {
  const Topology& topology = here.topology;
  try {
    const bool has_coordinator = !has_threads || options.dedicated_coordinator;
    const IdleRanks idle{has_coordinator, agree_on_excluded_ranks(world, options, topology)};
    FoundDevice found = find_device(world, topology, options, idle);
    RankDevice mine = describe(topology, found);
    mine.place = place_of(here, found, options, idle);
    JobRanks ranks{world, here, std::move(found), gather_devices(world, mine), {}, has_threads};
    if (!ranks.is_first()) return ranks;
    if (options.verbose) log_ranks(topology, ranks.devices);
    ranks.placement = find_placement(ranks.devices);
    for (const PlacementFinding& finding : ranks.placement) log::warning(finding.text);
    return ranks;
  } catch (const DeviceError& error) {
    log::error(error.what());
    if (world.rank() == 0) write_early_end(options, ExitCode::no_device, error.what());
    return std::nullopt;
  }
}

/// Rank 0 says it, every rank hears it. Collective over the world.
template <class News>
News told_by_first(const Communicator& world, const News& news, News (*decode)(const Bytes&)) {
  Bytes bytes = encode(news);
  world.broadcast(bytes, 0);
  return decode(bytes);
}

/// The job's input, on every rank; rank 0 has its plan, too.
struct Planning {
  JobInput input;
  std::optional<PlannedJob> job{};
  JobFolders folders{};
};

/// Throws UsageError where rank 0 can not only coordinate.
JobOptions with_coordinator(JobOptions options, const JobRanks& ranks) {
  if (!ranks.has_threads && !options.dedicated_coordinator) {
    log::warning(log_text::no_thread_multiple);
    options.dedicated_coordinator = true;
  }
  if (options.dedicated_coordinator && ranks.topology().world_size < 2) {
    throw UsageError(fmt::format(
        "rank 0 only coordinates{}, and the job has no other rank to train: start 2 or more "
        "(mpirun -np 2, srun --ntasks=2){}",
        ranks.has_threads ? " (--coordinator dedicated)" : "",
        ranks.has_threads ? ", or leave --coordinator out"
                          : ", or take an MPI that grants MPI_THREAD_MULTIPLE"));
  }
  return options;
}

/// Rank 0's. Local.
Planning plan_here(const JobOptions& options, const JobRanks& ranks) {
  Planning planning;
  std::string reason;
  const ExitCode code = guarded(
      [&] {
        const JobOptions decided = with_coordinator(options, ranks);
        planning.job =
            plan_of_job(decided, ranks.topology(), ranks.devices, ranks.found.device->kernels());
        // PyTorch and plug-ins bring their own.
        if (planning.job->job.has_own_step()) require_libraries(ranks.found, options.backend);
        planning.folders = choose_job_folders(*planning.job, options);
        if (planning.job->space.is_cut_short) return end_while_planning(planning.folders);
        if (options.profile_path && !is_predictable(*planning.job))
          throw UsageError(
              "--profile-out: the machine is measured for the workload transformer alone, where "
              "something is planned");
        planning.input = job_input(*planning.job);
        return ExitCode::ok;
      },
      &reason);
  if (!reason.empty()) write_early_end(options, code, reason);
  if (code == ExitCode::ok) return planning;
  planning.input = {};
  planning.input.exit_code = static_cast<int>(code);
  return planning;
}

/// Collective over the world.
Planning plan_everywhere(const JobOptions& options, const JobRanks& ranks) {
  Planning planning = ranks.is_first() ? plan_here(options, ranks) : Planning{};
  planning.input = told_by_first(ranks.world, planning.input, decode_job_input);
  return planning;
}

/// Starts the instruments in their order until one fails, and returns what came of each start.
/// Collective over the world.
std::vector<Started> start_everywhere(const Instruments& instruments, const JobOptions& options,
                                      const JobRanks& ranks) {
  const StartContext context{
      .world = ranks.world,
      .world_rank = ranks.topology().world_rank,
      .local_rank = local_rank_of(ranks.topology()),
      .on_gpu = ranks.is_on_gpu(),
      .device_index = ranks.found.gpu.number,
      .threads = ranks.found.device->threads(),
      .has_threads = ranks.has_threads,
      .plugin_timeout_s = options.trial_timeout_s.value_or(PluginLoading().timeout_s),
      .python_refusal = options.engine_refusal,
      .is_alone = instruments.size() == 1};
  std::vector<Started> started;
  for (const auto& instrument : instruments) {
    started.push_back(instrument->start(context));
    if (!started.back().violation.empty()) break;
  }
  return started;
}

std::string text_of(const FoundEnergyMeter& energy) {
  std::string text = energy.meter ? energy.meter->description() : "not measured";
  if (!energy.reason.empty()) text += (energy.meter ? "; nothing else: " : ": ") + energy.reason;
  return text;
}

/// Facts that are known once the results folder is open, on every rank; rank 0 has the job, too.
struct Opening {
  JobStart start;
  std::unique_ptr<OpenJob> job{};
};

/// Members that can not run are taken out, and what the plan tells of the others is noted. Throws
/// InputError where an instrument has not started.
void forecast(OpenJob& job, const std::vector<Started>& started, const JobRanks& ranks) {
  for (std::size_t place = 0; place < started.size(); ++place) {
    Instrument& instrument = *(*job.instruments)[place];
    if (!started[place].violation.empty())
      throw InputError({instrument.problem(job.job, started[place].violation)});
    instrument.prune(job.job, job.space);
  }
  // A GPU's memory is for Python alone.
  if (!job.job.has_own_step() && job.job.is_by_engine() && is_planned(job.job) &&
      !ranks.is_on_gpu())
    predict_engine_members(job, *ranks.found.device);
}

/// Rank 0's: bad input touches no result. Local.
Opening open_here(Planning planning, const Instruments& instruments,
                  const std::vector<Started>& started, const FoundEnergyMeter& energy,
                  const JobOptions& options, const JobRanks& ranks, Watchdog& watchdog) {
  Opening opening;
  opening.job = std::make_unique<OpenJob>(std::move(*planning.job));
  OpenJob& job = *opening.job;
  job.instruments = &instruments;
  const std::string energy_text = text_of(energy);
  std::string reason;
  const ExitCode code = guarded(
      [&] {
        forecast(job, started, ranks);
        open_results(job, planning.folders, options,
                     {ranks.topology(), ranks.devices, ranks.placement, energy_text,
                      [&](const std::string& path) { watchdog.set_exit_status_path(path); }});
        log::info(energy.meter ? fmt::format(log_text::energy_measured, energy_text)
                               : fmt::format(log_text::energy_not_measured, energy_text));
        return ExitCode::ok;
      },
      &reason);
  if (!reason.empty() && job.lock) write_end(job, code, reason);
  // Folders that were made for it say the same.
  if (!reason.empty() && !job.lock) write_early_end(options, code, reason);
  opening.start = {static_cast<int>(code), job.choices};
  return opening;
}

/// Says in the log how the steps of our own are timed and data is exchanged here.
void say_conditions(const JobInput& input, const JobRanks& ranks, const GroupTable& groups,
                    const Instruments& instruments, bool is_verbose) {
  if (is_verbose)
    for (const std::vector<int>& members : input.groups)
      log::debug(fmt::format("group: ranks {}", fmt::join(members, ", ")));
  if (groups.devices() != nullptr)
    log::info(fmt::format(log_text::collectives, transports_of(*groups.devices(), input.groups)));
  const int warm_up = steps_until_alike(*ranks.found.device);
  if (instruments.back()->traits().runs_plan && input.measure.asks_for_warmup &&
      input.measure.start_profile_step < warm_up)
    log::warning(fmt::format(log_text::longer_warm_up, warm_up, input.measure.start_profile_step));
}

/// PyTorch brings communicators of its own. Beside it our step takes the library that is loaded.
std::optional<DeviceGroupOptions> device_groups_of(const JobRanks& ranks,
                                                   const Instruments& instruments) {
  const bool has_pytorch = std::ranges::any_of(
      instruments, [](const auto& instrument) { return instrument->traits().loads_pytorch; });
  if (has_pytorch && instruments.size() == 1) return std::nullopt;
  return device_groups(ranks.found,
                       has_pytorch ? nccl::SharedWith::pytorch : nccl::SharedWith::nobody);
}

/// Runs the controller on rank 0 and a worker on every rank. Collective over the world.
class Running {
 public:
  Running(const JobOptions& options, const JobRanks& ranks, const JobInput& input,
          const Instruments& instruments, OpenJob* job, EnergyMeter* energy, Progress* progress,
          Watchdog& watchdog)
      : options_(options),
        ranks_(ranks),
        input_(input),
        instruments_(instruments),
        job_(job),
        energy_(energy),
        progress_(progress),
        watchdog_(watchdog),
        to_workers_(ranks.world.duplicate()),
        to_controller_(ranks.world.duplicate()),
        groups_(ranks.world, ranks.here.node, ranks.topology(), input.groups,
                {.device = device_groups_of(ranks, instruments)}) {}

  ExitCode run() {
    say_conditions(input_, ranks_, groups_, instruments_, options_.verbose);
    const BytesBefore bytes = bytes_before_experiments(ranks_.world, *ranks_.found.device);
    // That was the last that needs every rank.
    watchdog_.begin_search();
    std::thread controller;
    // Without THREAD_MULTIPLE the two halves must not run at once: rank 0 has no slot then, and its
    // worker only takes the QUIT that is already waiting for it.
    if (ranks_.is_first() && ranks_.has_threads) {
      controller = std::thread([&] { control_search(bytes); });
    } else if (ranks_.is_first()) {
      control_search(bytes);
      crash::name_thread(main_thread);
    }
    const message::Quit quit = work();
    if (controller.joinable()) controller.join();
    if (!quit.finalize) watchdog_.leave(quit.exit_code);
    watchdog_.begin_end(quit.exit_code);
    return static_cast<ExitCode>(quit.exit_code);
  }

 private:
  void control_search(const BytesBefore& bytes) {
    crash::name_thread("the controller");
    try {
      MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::controller);
      control(options_, *job_, ranks_.topology(), ranks_.devices, bytes, mailbox, *progress_,
              watchdog_);
    } catch (const std::exception& error) {
      give_up(job_, "controller", error, watchdog_);
    }
  }

  message::Quit work() {
    MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::worker);
    const bool may_hang = std::ranges::any_of(
        instruments_, [](const auto& instrument) { return instrument->traits().may_hang; });
    Worker worker(
        {.model = &input_.model,
         .instruments = &instruments_,
         .measure = input_.measure,
         .seed = reference_seed,
         .topology = &ranks_.topology(),
         .groups = &groups_,
         .device = ranks_.found.device.get(),
         .mailbox = &mailbox,
         .energy = energy_,
         .sample_gpu = gpu_samples(ranks_.found),
         .exits_when_stuck = ranks_.has_threads && (may_hang || groups_.devices() != nullptr)});
    try {
      return worker.run();
    } catch (const std::exception& error) {
      // Here, and not where this would end up: the controller's thread is still running.
      give_up(job_, "worker of rank " + std::to_string(ranks_.topology().world_rank), error,
              watchdog_);
    }
  }

  const JobOptions& options_;
  const JobRanks& ranks_;
  const JobInput& input_;
  const Instruments& instruments_;
  OpenJob* job_;         ///< rank 0's
  EnergyMeter* energy_;  ///< null: nothing is counted
  Progress* progress_;   ///< rank 0's
  Watchdog& watchdog_;
  Communicator to_workers_, to_controller_;
  GroupTable groups_;
};

/// Once every rank is there. Collective over the world.
ExitCode run_on_ranks(const JobOptions& options, const JobRanks& ranks, Watchdog& watchdog) {
  std::unique_ptr<Progress> progress;
  if (ranks.is_first())
    progress = std::make_unique<Progress>(
        Progress::Options{.style = Progress::style_of(options), .began = options.began});
  Planning planning = plan_everywhere(options, ranks);
  const JobInput input = planning.input;
  if (!input.run) return static_cast<ExitCode>(input.exit_code);
  const Instruments instruments = make_instruments(input.instruments);
  const std::vector<Started> started = start_everywhere(instruments, options, ranks);
  const FoundEnergyMeter energy =
      find_energy_meter(powercap_folder(), gpus_of_node(ranks.topology(), ranks.devices));
  Opening opening;
  if (ranks.is_first())
    opening =
        open_here(std::move(planning), instruments, started, energy, options, ranks, watchdog);
  const JobStart start = told_by_first(ranks.world, opening.start, decode_job_start);
  if (std::ranges::any_of(started, &Started::hangs))
    MpiEnvironment::leave_without_finalize(start.exit_code);
  if (start.exit_code != 0) return static_cast<ExitCode>(start.exit_code);
  kernels::adopt_cuda_choices(start.choices);
  ranks.found.device->budget().set_limit_bytes(input.device_memory_bytes);
  ranks.found.device->host_budget().set_limit_bytes(input.host_memory_bytes);
  return Running(options, ranks, input, instruments, opening.job.get(), energy.meter.get(),
                 progress.get(), watchdog)
      .run();
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
  if (!here.is_pretended) watchdog.note_hosts(static_cast<int>(here.topology.hosts.size()));
  const auto ranks = take_devices(world, here, options, thread_multiple);
  return ranks ? run_on_ranks(options, *ranks, watchdog) : ExitCode::no_device;
}

}  // namespace dstune
