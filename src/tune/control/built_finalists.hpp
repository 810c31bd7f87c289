#pragma once
/// Which finalists stay built from one of their runs to the next, by the memory that they need at
/// once. Rank 0's account of it. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/schedule/scheduler.hpp"

namespace dstune {

/// The bytes of a rank that what is built may take.
struct RankBytes {
  std::int64_t device = 0;
  std::int64_t host = 0;
};

class BuiltFinalists {
 public:
  /// `limit`: nothing where runs do not stay built. The others outlive it.
  BuiltFinalists(const Scoreboard& scoreboard, const SlotPool& slots,
                 std::optional<RankBytes> limit)
      : scoreboard_(scoreboard), slots_(slots), limit_(limit) {}

  /// Decides on the finalists of a round, members in any order. Of those that do not fit at once
  /// the ones that are built already stay, then the first; there is room beside them to build each
  /// of the rest for its run. Finalists of earlier rounds stay where they still fit.
  void choose(const std::vector<std::size_t>& finalists);
  /// Nothing stays built: ranks have given it back, or will.
  void clear() { staying_.clear(); }
  /// … from now on: memory does not hold what was planned.
  void give_up() {
    is_given_up_ = true;
    clear();
  }

  [[nodiscard]] bool is_wanted() const { return limit_.has_value(); }
  [[nodiscard]] bool is_given_up() const { return is_given_up_; }
  [[nodiscard]] bool stays(std::size_t member) const { return staying_.contains(member); }
  /// The needs of a run of this member, with all that stays built beside it.
  [[nodiscard]] Needs needs_beside(std::size_t member) const;

 private:
  /// Bytes of a rank, on its device, its host and a disk.
  struct Taken {
    std::int64_t device = 0, host = 0, disk = 0;
  };
  [[nodiscard]] Taken taken_by(std::size_t member) const;
  [[nodiscard]] bool fit(const std::vector<std::size_t>& finalists) const;

  const Scoreboard& scoreboard_;
  const SlotPool& slots_;
  std::optional<RankBytes> limit_;
  bool is_given_up_ = false;
  std::set<std::size_t> staying_;
};

}  // namespace dstune
