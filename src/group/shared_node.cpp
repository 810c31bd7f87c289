#include "shared_node.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <string>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr std::size_t page_bytes = 4096;
static_assert(sizeof(SegmentControl) <= page_bytes);

}  // namespace

void Membership::publish() {
  ++phases_;
  const Member& own = members_[static_cast<std::size_t>(group_rank_)];
  own.control->sequence.store(own.base + phases_, std::memory_order_release);
}

bool Membership::is_present(const Member& member) const {
  return member.control->attempt.load(std::memory_order_acquire) == attempt_;
}

bool Membership::has_published(const Member& member, std::uint64_t phases) const {
  const auto reached = [&] {
    return member.control->sequence.load(std::memory_order_acquire) >= member.base + phases;
  };
  if (reached()) return true;
  if (is_present(member)) return false;
  // It may have published its last phase and left between the two looks.
  if (reached()) return true;
  throw CollectiveError(CollectiveError::Cause::aborted, "a rank has left the group");
}

void Membership::wait_for(int group_rank, std::uint64_t phases, const Waiter& waiter,
                          const char* what) const {
  const Member& member = members_[static_cast<std::size_t>(group_rank)];
  waiter.until([&] { return has_published(member, phases); }, what);
}

void Membership::publish_read() {
  std::atomic_thread_fence(std::memory_order_acquire);
  for (const Member& member : members_) {
    if (is_present(member)) continue;
    throw CollectiveError(CollectiveError::Cause::aborted, "a rank has left the group");
  }
  publish();
}

void Membership::fail() noexcept {
  failed_ = true;
  SegmentControl& own = control(group_rank_);
  // An attempt that was joined since is not this one's to end.
  std::uint64_t mine = attempt_;
  own.attempt.compare_exchange_strong(mine, 0);
}

void Membership::check_usable() const {
  require(!failed_, "a group is used after it failed");
  require(is_present(members_[static_cast<std::size_t>(group_rank_)]),
          "a group is used after its rank joined another one");
}

void Membership::rendezvous(const Waiter& waiter) {
  SegmentControl& own = control(group_rank_);
  const std::uint64_t base = own.sequence.load(std::memory_order_relaxed);
  own.base.store(base, std::memory_order_relaxed);
  own.attempt.store(attempt_, std::memory_order_seq_cst);
  for (Member& member : members_) {
    waiter.until(
        [&] {
          if (!is_present(member)) return false;
          member.base = member.control->base.load(std::memory_order_acquire);
          return is_present(member);
        },
        "waiting for the ranks of a group");
  }
  publish();
}

void Membership::let_others_catch_up(const Waiter& waiter) const {
  if (failed_) return;
  // They are a phase behind at most; one that is not there after so long is lost.
  constexpr auto timeout = std::chrono::seconds(2);
  const Waiter limited =
      waiter.with_deadline(std::min(waiter.deadline(), Waiter::Clock::now() + timeout));
  const auto has_caught_up = [&](const Member& member) {
    return member.control->sequence.load(std::memory_order_acquire) >= member.base + phases_ ||
           !is_present(member);
  };
  try {
    for (const Member& member : members_) {
      limited.until([&] { return has_caught_up(member); }, "leaving a group");
    }
  } catch (const CollectiveError& error) {
    if (error.why() == CollectiveError::Cause::aborted) throw;
  }
}

SharedNode::SharedNode(const Communicator& node, std::size_t staging_bytes)
    : staging_bytes_(staging_bytes), window_(node, page_bytes + staging_bytes) {
  new (window_.segment(node.rank()).data()) SegmentControl{};
  node.barrier();
}

SegmentControl* SharedNode::control(int local_rank) const {
  return std::launder(reinterpret_cast<SegmentControl*>(window_.segment(local_rank).data()));
}

void SharedNode::leave() noexcept {
  if (current_) current_->fail();
}

std::shared_ptr<Membership> SharedNode::join(std::span<const int> local_ranks, int group_rank,
                                             std::uint64_t attempt, const Waiter& waiter) {
  if (current_) current_->let_others_catch_up(waiter);
  auto joined = std::make_shared<Membership>();
  joined->attempt_ = attempt;
  joined->group_rank_ = group_rank;
  for (const int local_rank : local_ranks) {
    SegmentControl* const segment = control(local_rank);
    joined->members_.push_back({segment, reinterpret_cast<std::byte*>(segment) + page_bytes});
  }
  current_ = joined;
  try {
    joined->rendezvous(waiter);
  } catch (...) {
    joined->fail();
    throw;
  }
  return joined;
}

}  // namespace dstune
