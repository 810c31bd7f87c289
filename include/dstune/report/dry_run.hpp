#pragma once
/// Prints for --dry-run: the plan as an answer and a table for people and as JSON (docs/fields.md),
/// and a plan's memory: stacked categories over the operations of a step. Local.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/model_profile.hpp"

namespace dstune {

/// The model and the machine that a plan is for, as its first lines name them. An empty text, or 0,
/// is not known; a source says in words where the figure beside it is from.
struct PlanHead {
  std::string model{};          ///< its title: "LLaMA-7B-like"
  std::int64_t parameters = 0;  ///< of the whole model
  int layers = 0;
  bool is_on_gpus = false;   ///< else on processors
  GroupShape machine{0, 0};  ///< ranks of a node, and nodes
  std::string machine_source{};
  std::string device{};                ///< its title: "NVIDIA A100 SXM4 80GB"
  std::string device_memory_source{};  ///< of DryRun::device_memory_bytes
  std::string network{}, network_source{};
  std::int64_t host_memory_bytes = 0;  ///< of a node; 0: nothing is judged by it
  std::string host_memory_source{};
  std::string optimizer{};  ///< its name and whose it is: "AdamW of PyTorch, not fused"
};

/// The place that a figure of a plan is from: a file, an option, a publication.
struct PlanSource {
  std::string what, source;
};

/// Members in the order in which they would run. Counts are over the whole product.
struct DryRun {
  std::vector<PlannedExperiment> experiments;
  std::uint64_t total = 0, planned = 0, infeasible = 0, pruned = 0;
  PruneCounts prune_counts{};                    ///< add up to `pruned`
  std::int64_t device_memory_bytes = 0;          ///< what a rank may use; 0: not known
  std::optional<double> expected_s{};            ///< of all planned members
  std::string deepspeed{}, deepspeed_version{};  ///< the one that will train, in words and alone
  std::vector<std::string> from_command{};       ///< what the training command says, in words
  std::vector<std::string> assumptions{};        ///< what the document leaves open, in words
  /// For a picture below each planned member, where all is told; none where nothing is planned.
  std::function<std::optional<MemoryTimeline>(const Experiment&)> timeline = {};
  PlanHead head{};
  std::optional<ModelProfile> model_profile{};  ///< nothing where the model is not known
  std::vector<PlanSource> sources{};
  /// The reason why members have no speed; and why nobody knows whether they fit. Without a full
  /// stop; empty: none that is known.
  std::string no_speed{}, no_verdict{};
  bool runs_here = true;  ///< members may run on this machine, too: their memory here is told
  /// Judges a configuration that need not be a member, by `config` and `shape` alone; nothing where
  /// it can not be planned. Called for a few tens of experiments at most. Empty: members alone are
  /// compared.
  std::function<std::optional<Prediction>(const Experiment&)> what_if = {};
};

struct DryRunStyle {
  std::size_t width = 0;  ///< characters of a line; 0: as long as need be, one line a member
  bool verbose = false;   ///< all, and the memory of each category, and how it comes and goes
  bool all = false;       ///< the table of the members, too
};

/// The head and the answer, in at most 15 lines before they are wrapped: the largest micro-batch
/// that fits, the fastest member, what would make more fit, and how long tuning takes. With
/// `style.all` a table stands between them, in which the sizes of a configuration end behind the
/// second that does not fit.
std::string dry_run_text(const DryRun& plan, const DryRunStyle& style = {});

/// The whole plan for programs: docs/plan.schema.json and docs/fields.md have its members. All keys
/// are always there; null is what nobody knows.
json::Value dry_run_json(const DryRun& plan);

/// Bars of letters, one line for each stretch of operations at its fullest. `width`: characters of
/// a line, 0 for 100; `indent`: blanks before each.
std::string memory_text(const MemoryTimeline& timeline, std::size_t width, std::size_t indent = 0);

}  // namespace dstune
