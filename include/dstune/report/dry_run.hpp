#pragma once
/// Prints for --dry-run: the plan as a table for people and as JSON (fields in docs/files.md), and
/// pictures of a plan's memory. A picture shows stacked categories over the operations of a step.
/// Local.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/experiment.hpp"

namespace dstune {

/// Members in the order in which they would run. Counts are over the whole product.
struct DryRun {
  std::vector<PlannedExperiment> experiments;
  std::uint64_t total = 0, planned = 0, infeasible = 0, pruned = 0;
  std::int64_t device_memory_bytes = 0;          ///< what a rank may use
  std::optional<double> expected_s{};            ///< of all planned members
  std::string deepspeed{}, deepspeed_version{};  ///< the one that will train, in words and alone
  std::vector<std::string> from_command{};       ///< what the training command says, in words
  std::vector<std::string> assumptions{};        ///< what the document leaves open, in words
  /// For a picture below each planned member, where all is told; none where nothing is planned.
  std::function<std::optional<MemoryTimeline>(const Experiment&)> timeline = {};
};

struct DryRunStyle {
  std::size_t width = 0;  ///< characters of a line; 0: as long as need be, one line a member
  bool verbose = false;   ///< the memory of each category, too, and how it comes and goes
};

std::string dry_run_text(const DryRun& plan, const DryRunStyle& style = {});

/// {experiments: [{name, num_gpus, status, reason, predicted, ds_config}], counts,
/// expected_duration_s (or null), deepspeed_version, from_command, assumptions}. `predicted`:
/// throughput, peak_memory_bytes, target_memory_bytes, categories (of the fullest rank; they add up
/// to its peak), ranks: [{ranks: [first, last], peak_memory_bytes, categories}] for group ranks
/// that plan alike; all null of a pruned member.
json::Value dry_run_json(const DryRun& plan);

/// Bars of letters, one line for each stretch of operations at its fullest. `width`: characters of
/// a line, 0 for 100; `indent`: blanks before each.
std::string memory_text(const MemoryTimeline& timeline, std::size_t width, std::size_t indent = 0);

/// A standalone SVG in the colours of the reader's scheme, light or dark. `name`: the experiment's.
std::string memory_svg(const MemoryTimeline& timeline, const std::string& name);

}  // namespace dstune
