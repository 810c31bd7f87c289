#pragma once
/// The room for members after runs have run out of memory although the plan had room for them: what
/// is not started, and where the limit is looked for. Local.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dstune/core/policy.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune {

/// Members need what the plan says, corrected by what others took. All share a factor. The sizes of
/// a member's own configuration differ in the micro-batch alone, and the line through the two
/// largest corrects the member. If nobody says what runs took, the need is the plan's figure. The
/// limit lies between the needs of members that ran and of those that ran out, on groups of the
/// same shape.
class MemoryRoom {
 public:
  /// The space outlives it. All its planned members have a prediction of memory.
  explicit MemoryRoom(const PlannedSpace& space,
                      const Policy::Memory& policy = default_policy().memory);

  void begin(std::size_t member) { running_.insert(member); }
  /// Any number of times of a member, in any order.
  void observe(std::size_t member, const Observation& observation);
  /// Tells whether anything was learnt by which members are refused, or tried later.
  [[nodiscard]] bool knows() const { return !limits_.empty(); }
  /// Says why a member is not started; empty if nothing speaks against it. It is asked again after
  /// each observation: one that took more and ran may have shown that the plan errs.
  [[nodiscard]] std::string refusal(std::size_t member) const;
  /// Tells whether a smaller size of the member's configuration is to be tried first. The member is
  /// then above the middle between two sizes: one that ran, or needs no more than that, and one
  /// that did not, or needs as much. A running size that may run out counts as if it had.
  [[nodiscard]] bool is_beyond_middle(std::size_t member) const;
  /// The sizes of a member's configuration above those that ran, by rising size.
  [[nodiscard]] std::vector<std::size_t> sizes_above(std::size_t member) const;

 private:
  /// A size that ran, and what it took; 0: nobody says.
  struct Size {
    std::int64_t micro_batch = 0;
    double planned_bytes = 0, bytes = 0;
  };
  /// Members that differ in the micro-batch alone.
  struct Chain {
    std::vector<std::size_t> members;  ///< by rising size
    std::int64_t ran = 0, ran_out = INT64_MAX;
    std::vector<Size> sizes;  ///< that say what they took, rising
  };
  /// The expected need of a member; the real one is within the factor `doubt` of it.
  struct Need {
    double bytes = 0, doubt = 1;
  };
  /// The limit of groups of one shape.
  struct Limit {
    double ran_bytes = 0;                                            ///< so much was there
    double ran_out_bytes = std::numeric_limits<double>::infinity();  ///< likely to be too much …
    double surely_out_bytes = ran_out_bytes;                         ///< … and surely
    std::size_t ran_out = 0;                                         ///< the member that says so
    bool is_of_device = false;                                       ///< or the device does
    bool has_run_out = false;                                        ///< a member
  };
  [[nodiscard]] double planned_bytes(std::size_t member) const { return planned_bytes_[member]; }
  [[nodiscard]] const Chain& chain_of(std::size_t member) const {
    return chains_[chain_of_[member]];
  }
  [[nodiscard]] Need need_of(std::size_t member) const;
  [[nodiscard]] double factor_of_others(std::size_t member) const;
  void learn_factors();
  void learn_limits();
  void learn_limit_of_device();

  const PlannedSpace* space_;
  const Policy::Memory* policy_;
  std::vector<Chain> chains_;
  static constexpr std::uint32_t no_chain = UINT32_MAX;
  std::vector<std::uint32_t> chain_of_;  ///< of each member
  std::vector<double> planned_bytes_;    ///< of each member, on its device
  std::set<std::size_t> running_;
  std::set<std::size_t> ran_, ran_out_;
  std::unordered_map<std::size_t, double> took_bytes_;   ///< of those that ran and say so
  std::map<std::pair<int, Recompute>, double> factors_;  ///< by stage and recompute
  double factor_ = 1;                                    ///< of all
  double most_planned_bytes_ = 0;
  std::map<GroupShape, Limit> limits_;
};

}  // namespace dstune
