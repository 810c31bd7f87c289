#pragma once
/// The answer of a plan: which members fit, the largest micro-batch of each configuration, the
/// fastest member, and what would make others fit. Members are told by their places in
/// DryRun::experiments. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "changes.hpp"
#include "dstune/report/dry_run.hpp"

namespace dstune {

/// Members that differ in the micro-batch alone, by rising size. The accumulation may differ, too,
/// where a group has one global batch: it follows from the size.
struct SizeChain {
  std::vector<std::size_t> members;    ///< at least one
  std::optional<std::size_t> largest;  ///< that fits
  /// Members larger than the second size that does not fit, where none of them fits either.
  std::vector<std::size_t> hopeless;
};

/// Members with one reason, numbers and names apart.
struct SharedReason {
  std::string text;
  std::size_t example = 0;  ///< the smallest of them, as far as sizes are known
  std::uint64_t count = 0;
};

struct PlanAnswer {
  /// The largest that fits first; else in the order of their first members.
  std::vector<SizeChain> chains;
  std::optional<std::size_t> largest;  ///< the largest micro-batch that fits, of all chains
  std::optional<std::size_t> fastest;  ///< of what fits and has a speed
  std::optional<std::size_t> least;    ///< least memory, of what was planned
  std::vector<std::size_t> edge;
  std::uint64_t num_fitting = 0, num_misfits = 0, num_unknown = 0;
  std::vector<SharedReason> misfits, pruned;  ///< the most frequent first
  PlanChanges changes;
};

/// Tells whether the configuration with the largest micro-batch that fits has no larger one.
[[nodiscard]] bool has_no_larger_size(const PlanAnswer& answer);

[[nodiscard]] PlanAnswer answer_of(const DryRun& plan);

}  // namespace dstune
