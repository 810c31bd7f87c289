#pragma once
/// One rank's part: waits for assignments and runs them in its group.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/core/job.hpp"
#include "dstune/device/device.hpp"
#include "dstune/device/energy.hpp"
#include "dstune/device/gpu_state.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/tune/protocol.hpp"

namespace dstune {

/// The facts on the job that every rank knows.
struct WorkerContext {
  const ModelSpec* model;
  const Instruments* instruments;  ///< that have started
  MeasureOptions measure;
  std::int64_t seed = 0;
  const Topology* topology;
  GroupTable* groups;
  Device* device;
  Mailbox* mailbox;
  EnergyMeter* energy = nullptr;  ///< of this rank's node; null: there is none
  /// How this rank's GPU is now; empty on processors, on all ranks or on none.
  std::function<std::optional<GpuState>()> sample_gpu{};
  int controller_rank = 0;
  /// While an experiment runs a thread of its own listens, too. So a rank that is stuck in a
  /// workload or in CUDA still hears that its attempt is aborted, and leaves with the job. Needs
  /// MPI_THREAD_MULTIPLE.
  bool exits_when_stuck = false;
};

class BuiltSteps;
class PeriodicTask;
struct Injection;

class Worker {
 public:
  explicit Worker(const WorkerContext& context);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Until QUIT; returns it. Talks to the controller only, and to the members of its groups.
  message::Quit run();

 private:
  void run_assignment(const message::Assign& assign);
  void run_profiling(const message::Profile& order);
  /// Joins the group, builds, measures and tells; throws what any of it throws.
  void measure_in_group(const message::Assign& assign, const Injection& injection,
                        const Waiter& waiter);
  /// … likewise where the experiment, and others in turns with it, stay built.
  void take_turns(const message::Assign& assign, ProcessGroup& group, const Waiter& waiter);
  struct Entrant;
  std::vector<Entrant> entrants_of(const message::Assign& assign, ProcessGroup& group,
                                   const Waiter& waiter);
  static void take_turn(Entrant& entrant, std::chrono::steady_clock::time_point went_at);
  void report_turns(const message::Assign& assign, std::vector<Entrant>& entrants,
                    std::vector<Measurement> measurements, bool is_leader);
  void tell_progress();
  /// They outlive the measuring, and so do the injection and the waiter.
  [[nodiscard]] MeasureHooks hooks_for(const message::Assign& assign, const Injection& injection,
                                       const Waiter& waiter);
  /// The leader's word on a run that has ended.
  [[nodiscard]] message::Outcome outcome_of(const std::vector<int>& world_ranks,
                                            Measurement measurement,
                                            std::vector<std::string> notes) const;
  [[nodiscard]] bool is_first_of_node(const std::vector<int>& world_ranks) const;
  /// From here on the messages of the order's attempt count, and its waits end with it.
  template <class Order>
  [[nodiscard]] Waiter begin_attempt(const Order& order);
  /// Leaves the group for good and says so. `is_cause`: this rank itself could not go on.
  /// `details`: lines for people beside the reason.
  void leave(const std::vector<int>& world_ranks, Status status, std::string reason, bool is_cause,
             const std::string& details = {});
  [[nodiscard]] RunContext context_of(const message::Assign& assign, ProcessGroup& group,
                                      const Waiter& waiter) const;
  /// Tells whether foreign code of some instrument does not come back.
  [[nodiscard]] bool is_stuck() const;
  /// After a failure: instruments free what the experiment held. The group knows of the failure.
  void clear_instruments();
  /// Throws DeviceError where it was given up.
  void require_device() const;
  /// Takes what has arrived; true where the current attempt is to be aborted.
  bool poll_for_abort();
  /// While it lives another thread listens, too.
  std::unique_ptr<PeriodicTask> listener(const Waiter& waiter);
  /// Ends the process where the job is over without this rank: QUIT came, and nobody finalizes.
  void exit_if_abandoned();
  void send(const Message& message);

  WorkerContext context_;
  std::deque<Message> pending_;  ///< arrived during an experiment, for afterwards
  std::uint64_t attempt_ = 0;    ///< the current one, 0: none
  double drain_timeout_s_ = 0;   ///< that the device may take to drain
  DeviceState device_state_ = DeviceState::drained;  ///< after the last failure
  IncumbentEstimate incumbent_;                      ///< what it is raced against
  bool pretends_lost_device_ = false;
  std::unique_ptr<BuiltSteps> built_;
  // The attempt's, as PROGRESS says it:
  int steps_ = 0, turn_ = 0;
  double slowest_step_s_ = 0;
  std::atomic<bool> go_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> aborted_ = false;
  /// Guards the mailbox, its messages and the incumbent, which a second thread uses that listens.
  std::mutex mailbox_mutex_;
};

}  // namespace dstune
