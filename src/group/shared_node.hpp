#pragma once
// The shared memory of a node as groups use it, and who may touch whose staging memory when.
//
// Every rank has a segment: a control area and staging memory, written by that rank alone. A rank
// counts its phases in `sequence`, which only ever grows; a phase is published after the rank has
// done with everything it read before. A group's members all go through the same phases. So "has
// published the group's n-th phase" says both that the member's data of that phase is there and
// that it will not look at anybody's older data again.
//
// A rank leaves a group when it joins the next one. It first lets the members it leaves behind
// catch up, so that it never overwrites what they still read. If something failed, that can not be
// waited for, and the late reader notices: the owner's attempt has changed.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/comm/communicator.hpp"
#include "dstune/comm/nodes.hpp"

namespace dstune {

inline constexpr std::size_t max_exchange_numbers = 32;

struct alignas(64) SegmentControl {
  std::atomic<std::uint64_t> attempt;   // whose member the rank is, 0: nobody's
  std::atomic<std::uint64_t> base;      // sequence at which that membership began
  std::atomic<std::uint64_t> sequence;  // phases published since the start of the process
  alignas(64) double numbers[2][max_exchange_numbers];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedNode;

/// One rank's part in one attempt.
class Membership {
 public:
  Membership() = default;
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Phases published here.
  [[nodiscard]] std::uint64_t phases() const { return phases_; }
  void publish();
  /// Waits until a member has published so many phases. Throws CollectiveError.
  void wait_for(int group_rank, std::uint64_t phases, const Waiter& waiter, const char* what) const;
  /// Publishes another one after reading, where what was read since the last wait was really the
  /// group's. Throws CollectiveError.
  void publish_read();
  /// The others need not wait for this rank any more, nor it for them.
  void fail() noexcept;
  /// Nothing failed, and the rank has not joined another attempt since. Throws LogicError.
  void check_usable() const;

  [[nodiscard]] std::byte* staging(int group_rank) const {
    return members_[static_cast<std::size_t>(group_rank)].staging;
  }
  [[nodiscard]] SegmentControl& control(int group_rank) const {
    return *members_[static_cast<std::size_t>(group_rank)].control;
  }

 private:
  friend class SharedNode;
  struct Member {
    SegmentControl* control;
    std::byte* staging;
    std::uint64_t base = 0;
  };
  [[nodiscard]] bool has_published(const Member& member, std::uint64_t phases) const;
  [[nodiscard]] bool is_present(const Member& member) const;
  void rendezvous(const Waiter& waiter);
  void let_others_catch_up(const Waiter& waiter) const;

  std::uint64_t attempt_ = 0;
  int group_rank_ = 0;
  std::vector<Member> members_;
  std::uint64_t phases_ = 0;
  bool failed_ = false;
};

class SharedNode {
 public:
  /// Collective over the node's communicator, which outlives it.
  SharedNode(const Communicator& node, std::size_t staging_bytes);

  [[nodiscard]] std::size_t staging_bytes() const { return staging_bytes_; }
  /// Leaves the attempt before and joins this one. Members only. Throws CollectiveError.
  std::shared_ptr<Membership> join(std::span<const int> local_ranks, int group_rank,
                                   std::uint64_t attempt, const Waiter& waiter);
  /// This rank leaves its attempt at once; members that still wait for it fail. Local.
  void leave() noexcept;
  void abandon() noexcept { window_.abandon(); }

 private:
  [[nodiscard]] SegmentControl* control(int local_rank) const;

  std::size_t staging_bytes_;
  SharedWindow window_;
  std::shared_ptr<Membership> current_;
};

}  // namespace dstune
