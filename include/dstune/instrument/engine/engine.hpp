#pragma once
/// DeepSpeed's own engine as a workload: Python runs the user's training in this process, and the
/// program steps it over the channel. One object a rank.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/instrument/engine/channel.hpp"
#include "dstune/space/workload_spec.hpp"
#include "dstune/train/workload.hpp"

namespace dstune::engine {

/// The place of a rank, for Python.
struct RankPlace {
  int world_rank = 0;
  int local_rank = 0;  ///< on its node, of the job
  bool on_gpu = false;
  int device_index = 0;
  int threads = 1;
};

/// The packages that Python loaded.
struct Loaded {
  std::map<std::string, std::string> versions;  ///< "torch" → "2.15.0"
  std::map<std::string, std::string> paths;     ///< "torch" → its folder
  std::string script_hash;                      ///< of the user's script and modules; empty: none
  /// Operators that a configuration may need and that would have to be compiled first → how.
  std::map<std::string, std::string> missing_operators;
  std::int64_t resident_bytes = 0;  ///< of the process, before any experiment
};

/// The facts on an experiment that it needs beside a workload's context.
struct Assignment {
  std::uint64_t attempt = 0;
  std::vector<std::string> arguments{};  ///< of the user's script
  int group_local_rank = 0;              ///< on its node, of the group
  int group_local_size = 1;
  int group_node = 0;  ///< among the nodes of the group
  int group_nodes = 1;
  std::string leader_host{};  ///< as the group's hosts name it
  double timeout_s = 0;
  double drain_timeout_s = 0;  ///< that Python may take to come back from what was aborted
  bool trains_model = false;   ///< the model of the context, by random tokens
  /// The sizes of a model of ours, in place of what the workload trains; null: there is none.
  json::Value own_model{};
};

class Engine {
 public:
  /// The channel outlives it.
  Engine(Channel& channel, RankPlace place) : channel_(channel), place_(place) {}

  /// Ports on which this process listens now, which are MPI's. Before prepare(). Local.
  [[nodiscard]] std::vector<int> listening_ports(const Waiter& waiter);

  /// Loads what the workload needs; may take minutes. `foreign_ports`: of all ranks; connections to
  /// them are none of Python's. Throws PythonError: what is missing, and how
  /// to get it; CollectiveError at the waiter's end. Local.
  const Loaded& prepare(const WorkloadSpec& workload, const std::vector<int>& foreign_ports,
                        const Waiter& waiter);
  [[nodiscard]] const Loaded& loaded() const { return loaded_; }
  /// Operators that DeepSpeed would load for each configuration and that are not built
  /// here, or that it does not have for this device: those are not in missing_operators. The
  /// objects optimizer and zero_optimization decide. After prepare(). Throws as prepare(). Local.
  [[nodiscard]] std::vector<std::vector<std::string>> lacking_operators(
      const std::vector<json::Value>& configs, const Waiter& waiter);
  /// Sets the bytes that the process holds by now without any experiment of the engine.
  void note_resident_bytes(std::int64_t bytes) { loaded_.resident_bytes = bytes; }

  /// Makes the workload of an experiment, one at a time; it ends with end(). The context's config
  /// and group outlive the workload. Local.
  std::unique_ptr<Workload> make_workload(const WorkloadContext& context, Assignment assignment);

  /// Notes for the user on the experiment so far, and on its failure; each once. Local.
  [[nodiscard]] std::vector<std::string> take_notes();

  /// Frees all that the last experiment held, where there was one. Returns what the user is to be
  /// told of it. Throws PythonError, CollectiveError. `failed`: peers may be gone. Local where it
  /// failed, else: Members only.
  std::vector<std::string> end(bool failed, const Waiter& waiter);

  /// Tells whether Python does not come back: the rank can not run anything any more.
  [[nodiscard]] bool is_stuck() const { return channel_.is_stuck(); }
  [[nodiscard]] Channel& channel() { return channel_; }

 private:
  friend class EngineWorkload;
  Channel& channel_;
  RankPlace place_;
  Loaded loaded_;
  bool has_begun_ = false;
  double drain_timeout_s_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace dstune::engine
