#pragma once
/// An instrument runs configurations and measures them. A job is a space and an ordered list of
/// instruments, of which the last decides; the others help to forecast it. Every rank has all of
/// them, in the same order.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/space/job_spec.hpp"
#include "dstune/train/workload.hpp"

namespace dstune {

/// Facts that all runs of an instrument have in common.
struct InstrumentTraits {
  std::string_view name;       ///< in metrics.json
  std::string_view source;     ///< of its values, in words
  std::string label{};         ///< of an answer that it decides: "verified", "engine"; else empty
  bool runs_plan = false;      ///< a run does what the StepPlan says: its memory, its operations
  bool alike_steps = false;    ///< all steps of a run do the same
  bool takes_any_key = false;  ///< somebody else's code reads the configuration, and runs it
  bool repeats = true;         ///< times are measured, so that two runs differ
  bool may_hang = false;       ///< a run may not give its rank back
  bool loads_pytorch = false;  ///< into every rank, with communicators of its own
};

/// How long a run may be silent, and its device busy after a failure.
struct RunLimits {
  double inactivity_timeout_s = 0;
  double drain_timeout_s = 0;  ///< 0: nobody waits for the device
};
/// Facts on a run that are known before it begins.
struct RunForecast {
  const JobSpec& job;
  const PlannedExperiment& planned;
  std::optional<double> trial_timeout_s{};  ///< --trial-timeout
  std::optional<double> step_s{};           ///< predicted
  bool is_on_gpus = false;
};

/// The data that the members of a group are sent for a run beside the configuration.
struct RunInput {
  std::string ds_config{};               ///< as JSON
  std::vector<std::string> arguments{};  ///< of the user's script
};

/// The place of a rank, and the limits of start-up.
struct StartContext {
  const Communicator& world;
  int world_rank = 0;
  int local_rank = 0;  ///< on its node
  bool on_gpu = false;
  int device_index = 0;
  int threads = 1;
  bool has_threads = false;      ///< MPI_THREAD_MULTIPLE
  double plugin_timeout_s = 0;   ///< for the constructors of a library
  std::string python_refusal{};  ///< why this rank does not run in Python; empty: it does
  bool is_alone = true;          ///< the job has no other instrument
};
/// The result of starting, the same on every rank.
struct Started {
  std::string violation{};  ///< what is in the way, the lowest rank's words; or nothing
  bool hangs = false;       ///< foreign code did not return: no rank can finalize MPI
};

/// A run on the ranks of a group, as one of them sees it. Everything that it points to outlives the
/// workload.
struct RunContext : WorkloadContext {
  std::uint64_t attempt = 0;
  const RunInput* input = nullptr;
  const std::vector<int>* world_ranks = nullptr;  ///< of the group, ascending
  const Topology* topology = nullptr;
  double timeout_s = 0;        ///< after which members give up
  double drain_timeout_s = 0;  ///< as of RunLimits
  bool has_own_model = false;  ///< `model` is a tiny one, in place of what the instrument trains
};

/// A device may take so long at least to drain after a failure.
inline constexpr double min_drain_timeout_s = 10;

class Instrument {
 public:
  explicit Instrument(WorkloadSpec spec) : spec_(std::move(spec)) {}
  virtual ~Instrument() = default;
  Instrument(const Instrument&) = delete;
  Instrument& operator=(const Instrument&) = delete;

  /// Local.
  [[nodiscard]] virtual InstrumentTraits traits() const = 0;

  // Rank 0's. Local.
  /// The part of a record's key that tells what measured it: another one is not reused.
  [[nodiscard]] virtual json::Value identity(const JobSpec& job,
                                             const Experiment& experiment) const;
  /// How far a plan speaks for its runs.
  [[nodiscard]] virtual Forecasts forecasts(const JobSpec& job) const = 0;
  /// After start(): takes members out of the space that can not run here, with their reasons.
  /// Throws InputError where none can.
  virtual void prune(const JobSpec& /*job*/, PlannedSpace& /*space*/) {}
  [[nodiscard]] virtual RunLimits limits(const RunForecast& forecast) const;
  [[nodiscard]] virtual RunInput input(const JobSpec& job, const Experiment& experiment) const;
  /// A problem of it, at the place where the user asks for it.
  [[nodiscard]] virtual Problem problem(const JobSpec& job, const std::string& message) const;
  /// For environment.json: what it runs in; null where there is nothing to say.
  [[nodiscard]] virtual json::Value environment() const { return nullptr; }

  /// Before the first run: loads foreign code. Collective over the world.
  virtual Started start(const StartContext& /*context*/) { return {}; }
  /// A run. Throws what Workload::build() may throw. Local.
  [[nodiscard]] virtual std::unique_ptr<Workload> make(const RunContext& context) = 0;
  /// Frees what the last run held beside its workload, where there is something. Returns what the
  /// user is to be told of it. `failed`: peers may be gone. Throws Error, CollectiveError. Local
  /// where it failed, else: Members only.
  virtual std::vector<std::string> end(bool /*failed*/, const Waiter& /*waiter*/) { return {}; }
  /// Notes for the user on a run so far; each once. Local.
  [[nodiscard]] virtual std::vector<std::string> take_notes() { return {}; }
  /// Tells whether the rank can run nothing any more, since foreign code does not come back. Local.
  [[nodiscard]] virtual bool is_stuck() const { return false; }

 protected:
  WorkloadSpec spec_;
};

using Instruments = std::vector<std::unique_ptr<Instrument>>;

/// One of each of these kinds. Local.
[[nodiscard]] std::unique_ptr<Instrument> make_instrument(const WorkloadSpec& spec);
[[nodiscard]] Instruments make_instruments(const std::vector<WorkloadSpec>& specs);

/// How far a plan speaks for a job's runs: as it does for the built-in step's where that is among
/// the instruments, else for those of the one that decides. Local.
[[nodiscard]] Forecasts forecasts_of(const JobSpec& job);

/// Completes what the document leaves open of a job's instruments: the user's script, the content
/// of a library. Throws InputError where something is not there. Rank 0's. Local.
void complete_instruments(JobSpec& job);

/// Tells whether challengers are stopped when they have lost to the best. Operations as somebody
/// else's code counts them need not grow with the samples.
[[nodiscard]] bool races(const JobSpec& job, const InstrumentTraits& traits);

}  // namespace dstune
