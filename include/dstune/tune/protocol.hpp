#pragma once
/// The messages between ranks, as CBOR. Local.
///
/// First rank 0 tells all of them what the job is (JobInput), and what is known (JobStart). Then
/// controller and workers exchange messages. Every message of an experiment carries its attempt's
/// number; receivers drop those of other attempts.
///
/// ASSIGN → READY (every member) → GO → PROGRESS (leader) → OUTCOME (leader). INCUMBENT to the
/// leader says what it is raced against, from its start and again whenever the best improves. STOP
/// to the leader ends the measuring early. ABORT to every member ends everything. A member that
/// could not go on says GONE. QUIT ends a worker. RELEASE, of no attempt, says that nothing stays
/// built any more of an experiment that ASSIGN wanted to stay. Before the first experiment: PROFILE
/// → PROFILED (every member), or GONE.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/profiling_plan.hpp"
#include "dstune/space/workload_spec.hpp"

namespace dstune::message {

/// A tiny model of ours in place of the job's, and how its steps are measured.
struct Tiny {
  ModelSpec model;
  MeasureOptions measure;
};

/// A further finalist of a round, which takes turns with the others on the same ranks.
struct Finalist {
  std::string experiment;  ///< its name
  TrainingConfig config;
  int turn_steps = 1;  ///< steps of a turn
};

struct Assign {
  std::uint64_t attempt = 0;
  std::string experiment;  ///< its name
  TrainingConfig config;
  std::vector<int> world_ranks;    ///< ascending; the first is the leader
  double timeout_s = 0;            ///< after which a member gives up by itself
  RunInput input{};                ///< of the instrument
  std::uint64_t instrument = 0;    ///< that runs it, by its place among the job's
  bool is_risky = false;           ///< an earlier attempt lost a rank, its device, or the job
  double drain_timeout_s = 0;      ///< that its device may take to drain after a failure
  std::optional<Tiny> tiny{};      ///< of what measures the target's time
  kernels::CudaChoices choices{};  ///< of all ranks in this job
  /// It stays built after its run, and goes on where it has stayed; so do the others.
  bool stays_built = false;
  int turn_steps = 1;              ///< its steps of a turn
  double slice_share = 1;          ///< they are timed for this share of a run's slice
  std::vector<Finalist> others{};  ///< that take turns with it
};
/// A message that says nothing but what it is.
struct Signal {
  std::uint64_t attempt = 0;
};
struct Incumbent {
  std::uint64_t attempt = 0;
  IncumbentEstimate incumbent;
};
struct Go : Signal {};
struct Stop : Signal {};
struct Abort : Signal {};
struct Quit {
  int exit_code = 0;
  bool finalize = true;
};

struct Ready : Signal {};
struct Progress {
  std::uint64_t attempt = 0;
  int steps = 0;
  double slowest_step_s = 0;
  int turn = 0;  ///< whose it is: 0 the experiment's, then those of the others
};
/// When a run of several that take turns began and ended: seconds after GO.
struct Span {
  double began_s = 0, ended_s = 0;
};
struct Outcome {
  std::uint64_t attempt = 0;
  Measurement measurement;
  std::vector<std::string> notes{};   ///< what the user is to be told of it
  kernels::CudaChoices choices{};     ///< that this member has made since it told any
  std::vector<Measurement> others{};  ///< of those that took turns with it, in their order
  std::vector<Span> spans{};          ///< … its own before theirs
};
/// A rank that has lost one of these takes no experiment any more.
enum class Loss { nothing, device, device_answer, python };
/// "device lost by": the ranks follow.
[[nodiscard]] const EnumTexts& texts_of(Loss);
/// The member left the attempt and its group; all that it held is free again.
struct Gone {
  std::uint64_t attempt = 0;
  Status status = Status::failed;
  std::string reason;
  bool is_cause = false;  ///< it failed by itself; else because others did, or was told to leave
  Loss loss = Loss::nothing;
  std::string details{};             ///< of the cause, for people: Python's traceback
  std::vector<std::string> notes{};  ///< what the user is to be told of the experiment
};

struct Profile {
  std::uint64_t attempt = 0;
  ProfilingTask task;
  std::vector<int> world_ranks;  ///< ascending
  double timeout_s = 0;          ///< after which a member gives up by itself
  double drain_timeout_s = 0;    ///< as of Assign
};
/// The result of this member's profiling.
struct Profiled {
  std::uint64_t attempt = 0;
  DeviceProfile profile;
  std::int64_t non_arena_bytes = 0;      ///< what its process holds after it, beside the arenas
  std::int64_t gpu_non_arena_bytes = 0;  ///< likewise of its GPU; 0: none, or not known
  kernels::CudaChoices choices{};        ///< as of Outcome
};

/// Gives back what stays built of an experiment; of all where it has no name.
struct Release {
  std::string experiment;
};

}  // namespace dstune::message

namespace dstune {

using Message =
    std::variant<message::Assign, message::Incumbent, message::Go, message::Stop, message::Abort,
                 message::Quit, message::Ready, message::Progress, message::Outcome, message::Gone,
                 message::Profile, message::Profiled, message::Release>;

[[nodiscard]] Bytes encode(const Message& message);
/// Returns the value that is encoded. The value of a Profile is part of the key by which journals
/// know what was measured.
[[nodiscard]] json::Value written(const Message& message);
/// Throws InputError for bytes that are no message.
[[nodiscard]] Message decode(const Bytes& bytes);

/// The input that every rank is told before the first experiment.
struct JobInput {
  /// Not ok: nothing runs, everyone leaves with this code (rank 0 has said why).
  int exit_code = 0;
  bool run = false;
  // Only where something runs:
  ModelSpec model;
  std::vector<WorkloadSpec> instruments;  ///< the last one decides
  MeasureOptions measure;
  std::int64_t device_memory_bytes = 0;
  std::int64_t host_memory_bytes = 0;
  std::vector<std::vector<int>> groups;  ///< those to be made at start-up
};

[[nodiscard]] Bytes encode(const JobInput& input);
/// Throws InputError for bytes that are none.
[[nodiscard]] JobInput decode_job_input(const Bytes& bytes);

/// The news for every rank once the results folder is open.
struct JobStart {
  int exit_code = 0;               ///< as of JobInput
  kernels::CudaChoices choices{};  ///< of earlier jobs
};

[[nodiscard]] Bytes encode(const JobStart& start);
/// Throws InputError for bytes that are none.
[[nodiscard]] JobStart decode_job_start(const Bytes& bytes);

}  // namespace dstune
