#include "dstune/tune/worker.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>

#include "dstune/base/crash.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/train/workload.hpp"
#include "profile/prediction.hpp"
#include "profile/profiler.hpp"
#include "watch/injection.hpp"
#include "watch/waiting.hpp"
#include "worker/built_steps.hpp"

namespace dstune {
namespace {

/// PROGRESS is for people and for the inactivity timeout: no more often than this.
constexpr std::chrono::milliseconds progress_interval{100};

/// For foreign code to free what a failed experiment held.
constexpr std::chrono::seconds end_timeout{60};

/// For a rank that is stuck; what it takes from one that measures can not be measured.
constexpr std::chrono::milliseconds listening_interval{200};

void add_what_devices_say(const DeviceGroups& devices, Measurement& measurement) {
  measurement.peak_memory.communicator_bytes = devices.communicator_bytes();
  const std::string why = devices.not_comparable_reason(measurement.world_ranks);
  if (why.empty()) return;
  measurement.not_comparable = why;
  // The memory that the GPU has less is not one process's then.
  measurement.peak_memory.gpu_bytes = measurement.peak_memory.graph_bytes = 0;
}

}  // namespace

Worker::Worker(const WorkerContext& context)
    : context_(context), built_(std::make_unique<BuiltSteps>(*context.device)) {}

Worker::~Worker() = default;

void Worker::send(const Message& message) {
  const std::lock_guard lock(mailbox_mutex_);
  context_.mailbox->send(context_.controller_rank, encode(message));
}

message::Quit Worker::run() {
  // The default slack of 50 µs would double every short sleep.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  IdleBackoff idle;
  for (;;) {
    Message message;
    if (!pending_.empty()) {
      message = std::move(pending_.front());
      pending_.pop_front();
    } else if (auto received = context_.mailbox->try_receive()) {
      message = decode(received->data);
    } else {
      idle.pause();
      continue;
    }
    idle.reset();
    if (const auto* quit = std::get_if<message::Quit>(&message)) {
      built_->drop_all();  // while the device and the group are there
      return *quit;
    }
    if (const auto* assign = std::get_if<message::Assign>(&message)) {
      run_assignment(*assign);
    } else if (const auto* order = std::get_if<message::Profile>(&message)) {
      run_profiling(*order);
    } else if (const auto* release = std::get_if<message::Release>(&message)) {
      if (release->experiment.empty())
        built_->drop_all();
      else
        built_->drop(release->experiment);
    } else if (const auto* late = std::get_if<message::Abort>(&message)) {
      // The attempt was over here before the ABORT came: the controller waits for this answer.
      send(message::Gone{late->attempt, Status::failed, "had ended"});
    }
    // BAR, GO and STOP of an attempt that is over need no answer.
  }
}

bool Worker::poll_for_abort() {
  const std::lock_guard lock(mailbox_mutex_);
  while (auto received = context_.mailbox->try_receive()) {
    Message message = decode(received->data);
    if (const auto* go = std::get_if<message::Go>(&message)) {
      go_ = go_ || go->attempt == attempt_;
    } else if (const auto* stop = std::get_if<message::Stop>(&message)) {
      stop_ = stop_ || stop->attempt == attempt_;
    } else if (const auto* incumbent = std::get_if<message::Incumbent>(&message);
               incumbent != nullptr && incumbent->attempt == attempt_) {
      incumbent_ = incumbent->incumbent;
    } else if (const auto* abort = std::get_if<message::Abort>(&message);
               abort != nullptr && abort->attempt == attempt_) {
      aborted_ = true;
    } else {
      pending_.push_back(std::move(message));
    }
  }
  return aborted_;
}

/// Null where this thread always comes to look itself: on a processor, in workloads of ours.
std::unique_ptr<PeriodicTask> Worker::listener(const Waiter& waiter) {
  if (!context_.exits_when_stuck && context_.groups->devices() == nullptr) return nullptr;
  return std::make_unique<PeriodicTask>(
      listening_interval, [this, attempt = attempt_, deadline = waiter.deadline()] {
        try {
          if (context_.exits_when_stuck) exit_if_abandoned();
          interrupt_where_over(*context_.groups, attempt, aborted_, deadline);
        } catch (const std::exception& error) {
          // It can not leave this thread, and the other one may be stuck.
          log::set_level(log::Level::error);
          log::error(std::string("internal error while listening: ") + error.what());
          MpiEnvironment::abort(static_cast<int>(ExitCode::internal));
        }
      });
}

void Worker::exit_if_abandoned() {
  poll_for_abort();
  const std::lock_guard lock(mailbox_mutex_);
  for (const Message& message : pending_) {
    const auto* quit = std::get_if<message::Quit>(&message);
    // If everybody finalizes, this rank has ended its experiment in time, and is about to hear.
    if (quit != nullptr && !quit->finalize) MpiEnvironment::leave_without_finalize(quit->exit_code);
  }
}

template <class Order>
Waiter Worker::begin_attempt(const Order& order) {
  attempt_ = order.attempt;
  drain_timeout_s_ = order.drain_timeout_s;
  go_ = false;
  stop_ = false;
  incumbent_ = {};
  aborted_ = false;
  steps_ = turn_ = 0;
  slowest_step_s_ = 0;
  // They may have come together with the order, while the attempt before was running.
  for (const Message& message : pending_) {
    if (const auto* abort = std::get_if<message::Abort>(&message))
      aborted_ = aborted_ || abort->attempt == attempt_;
    if (const auto* incumbent = std::get_if<message::Incumbent>(&message))
      if (incumbent->attempt == attempt_) incumbent_ = incumbent->incumbent;
  }
  return Waiter(
      SteadyClock::now() + to_duration(order.timeout_s), [this] { return poll_for_abort(); },
      context_.topology->share_core);
}

/// Peers may be inside a collective: the controller's ABORT gets them out.
void Worker::leave(const std::vector<int>& world_ranks, Status status, std::string reason,
                   bool is_cause, const std::string& details) {
  // Communicators end only when no recording has their collectives.
  built_->drop_all();
  context_.groups->abandon(world_ranks);
  device_state_ = context_.device->drain(std::chrono::duration<double>(drain_timeout_s_));
  auto loss = message::Loss::nothing;
  if (pretends_lost_device_) loss = message::Loss::device;
  if (device_state_ != DeviceState::drained) {
    context_.groups->give_up_device();
    loss =
        device_state_ == DeviceState::silent ? message::Loss::device_answer : message::Loss::device;
  } else if (is_stuck()) {
    loss = message::Loss::python;
  }
  std::vector<std::string> notes;
  for (const auto& instrument : *context_.instruments)
    for (std::string& note : instrument->take_notes()) notes.push_back(std::move(note));
  reason = printable(reason);
  if (is_cause) reason.insert(0, "rank " + std::to_string(context_.topology->world_rank) + ": ");
  send(message::Gone{attempt_, status, std::move(reason), is_cause, loss, details,
                     std::move(notes)});
}

/// Nobody takes a rank out of the job that lost its device in a profiling.
void Worker::require_device() const {
  if (device_state_ != DeviceState::drained) throw DeviceError("has no device any more");
  if (is_stuck()) throw DeviceError("has no Python any more: it did not come back");
}

void Worker::run_profiling(const message::Profile& order) {
  const Waiter waiter = begin_attempt(order);
  auto listener = this->listener(waiter);
  built_->drop_all();
  try {
    require_device();
    const auto group = context_.groups->join(order.world_ranks, order.attempt, waiter);
    DeviceProfile profile =
        profile_device(order.task, *context_.model, *context_.device, *group, context_.seed, waiter,
                       context_.topology->share_core ? TraceClock::own : TraceClock::elapsed);
    send(message::Profiled{attempt_, std::move(profile),
                           process_resident_bytes() - context_.device->arena().capacity_bytes() -
                               context_.device->host_arena().capacity_bytes(),
                           gpu_bytes_beside_arena(*context_.device),
                           kernels::take_new_cuda_choices()});
  } catch (const std::exception& error) {
    leave(order.world_ranks, Status::failed, error.what(), true);
  }
  listener.reset();
  attempt_ = 0;
}

/// Tells whether no other rank of the group before this one is on its node.
bool Worker::is_first_of_node(const std::vector<int>& world_ranks) const {
  const auto node_of = [this](int rank) {
    return context_.topology->node_of_rank[static_cast<std::size_t>(rank)];
  };
  const int own_rank = context_.topology->world_rank;
  return std::none_of(world_ranks.begin(), world_ranks.end(), [&](int rank) {
    return rank < own_rank && node_of(rank) == node_of(own_rank);
  });
}

MeasureHooks Worker::hooks_for(const message::Assign& assign, const Injection& injection,
                               const Waiter& waiter) {
  MeasureHooks hooks;
  hooks.ready = [this, &injection, &waiter] {
    injection.commit(FaultMoment::ready, waiter);
    send(message::Ready{attempt_});
    waiter.until(
        [this, idle = IdleBackoff()]() mutable {
          if (go_ || (poll_for_abort(), go_)) return true;
          idle.pause();
          return false;
        },
        "GO from the controller");
  };
  hooks.stepped = [this, last_progress = SteadyClock::now()](double step_s) mutable {
    ++steps_;
    slowest_step_s_ = std::max(slowest_step_s_, step_s);
    if (SteadyClock::now() - last_progress >= progress_interval) {
      last_progress = SteadyClock::now();
      tell_progress();
      // A group of one never waits, so this is where it hears of an ABORT.
      if (poll_for_abort()) throw CollectiveError(CollectiveError::Cause::aborted, "aborted");
    }
    return stop_.load();
  };
  hooks.sample_gpu = context_.sample_gpu;
  hooks.has_lost_device = [this] { return pretends_lost_device_ || context_.device->is_lost(); };
  if (is_first_of_node(assign.world_ranks))
    hooks.joules = [this]() -> std::optional<double> {
      return context_.energy == nullptr ? std::nullopt : context_.energy->joules();
    };
  hooks.incumbent = [this] {
    poll_for_abort();
    const std::lock_guard lock(mailbox_mutex_);
    return incumbent_;
  };
  return hooks;
}

void Worker::tell_progress() {
  send(message::Progress{attempt_, steps_, slowest_step_s_, turn_});
}

void Worker::measure_in_group(const message::Assign& assign, const Injection& injection,
                              const Waiter& waiter) {
  require_device();
  const auto group =
      context_.groups->join(assign.world_ranks, assign.attempt, waiter, assign.is_risky);
  if (assign.stays_built) return take_turns(assign, *group, waiter);
  built_->use(nullptr);
  const MemoryFault memory(*context_.device, injection.fault);
  Instrument& instrument = *context_.instruments->at(assign.instrument);
  auto workload = instrument.make(context_of(assign, *group, waiter));
  workload = with_fault(std::move(workload), injection, waiter);
  Measurement measurement =
      measure(*workload, *group, assign.tiny ? assign.tiny->measure : context_.measure,
              hooks_for(assign, injection, waiter));
  std::vector<std::string> notes;
  if (instrument.traits().takes_any_key) {
    // One that hangs while it frees what it holds is this experiment's, not the next one's.
    workload.reset();
    notes = instrument.end(
        measurement.status != Status::ok && measurement.status != Status::raced_out, waiter);
    group->host().exchange(std::array{0.0});
  }
  if (group->group_rank() == 0)
    send(outcome_of(assign.world_ranks, std::move(measurement), std::move(notes)));
}

message::Outcome Worker::outcome_of(const std::vector<int>& world_ranks, Measurement measurement,
                                    std::vector<std::string> notes) const {
  for (const int member : world_ranks) {
    measurement.hosts.push_back(context_.topology->hosts[static_cast<std::size_t>(
        context_.topology->node_of_rank[static_cast<std::size_t>(member)])]);
  }
  measurement.world_ranks = world_ranks;
  if (const DeviceGroups* const devices = context_.groups->devices())
    add_what_devices_say(*devices, measurement);
  return {attempt_, std::move(measurement), std::move(notes), kernels::take_new_cuda_choices()};
}

void Worker::run_assignment(const message::Assign& assign) {
  const crash::ExperimentScope scope;  // its code may be a user's
  const Waiter waiter = begin_attempt(assign);
  kernels::adopt_cuda_choices(assign.choices);
  const Injection injection = find_injection(context_.topology->world_rank, assign.experiment);
  injection.commit(FaultMoment::assigned, waiter);
  pretends_lost_device_ = pretends_lost_device_ || injection.fault == Fault::loses_device;
  auto listener = this->listener(waiter);
  try {
    measure_in_group(assign, injection, waiter);
  } catch (const StepFailure& error) {
    leave(assign.world_ranks, error.status(), error.what(), true, error.details());
  } catch (const CollectiveError& error) {
    const bool at_deadline = error.why() == CollectiveError::Cause::deadline;
    leave(assign.world_ranks, at_deadline ? Status::timed_out : Status::failed, error.what(),
          false);
  } catch (const OutOfMemory& error) {
    // Making the group throws it: a step's comes as a StepFailure.
    leave(assign.world_ranks, Status::out_of_memory, error.what(), true);
  } catch (const std::exception& error) {
    leave(assign.world_ranks, Status::failed, error.what(), true);
  }
  listener.reset();
  clear_instruments();
  attempt_ = 0;
}

RunContext Worker::context_of(const message::Assign& assign, ProcessGroup& group,
                              const Waiter& waiter) const {
  RunContext context;
  context.model = assign.tiny ? &assign.tiny->model : context_.model;
  context.config = &assign.config;
  context.experiment_name = &assign.experiment;
  context.seed = context_.seed;
  context.device = context_.device;
  context.group = &group;
  context.waiter = &waiter;
  context.may_use_threads = context_.exits_when_stuck;
  context.attempt = assign.attempt;
  context.input = &assign.input;
  context.world_ranks = &assign.world_ranks;
  context.topology = context_.topology;
  context.timeout_s = assign.timeout_s;
  context.drain_timeout_s = assign.drain_timeout_s;
  context.has_own_model = assign.tiny.has_value();
  return context;
}

bool Worker::is_stuck() const {
  return std::ranges::any_of(*context_.instruments,
                             [](const auto& instrument) { return instrument->is_stuck(); });
}

void Worker::clear_instruments() {
  const Waiter waiter = Waiter().with_deadline(SteadyClock::now() + end_timeout);
  for (const auto& instrument : *context_.instruments) {
    if (instrument->is_stuck()) continue;
    try {
      for (const std::string& note : instrument->end(true, waiter)) log::warning(note);
    } catch (const std::exception& error) {
      // The next attempt is told where Python is stuck; else it is as good as before.
      log::warning(fmt::format(log_text::after_failure, error.what()));
    }
  }
}

}  // namespace dstune
