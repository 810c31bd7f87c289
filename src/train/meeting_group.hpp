#pragma once
/// A group whose members meet before each collective, so that what a member waits for its peers can
/// be told from what the collective takes.

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "dstune/group/process_group.hpp"
#include "dstune/plan/trace.hpp"
#include "trace_clock.hpp"

namespace dstune::train {

class MeetingGroup : public ProcessGroup {
 public:
  /// The group outlives it. `clock`: the trace's.
  explicit MeetingGroup(ProcessGroup& group, TraceClock clock = TraceClock::elapsed)
      : ProcessGroup(group.group_rank(), group.world_ranks()), group_(group), clock_(clock) {}

  /// Meets from now on, in a step whose operations are added to the trace one by one; on every
  /// member at the same place.
  void begin(StepTrace& trace) { trace_ = &trace; }
  /// Takes the waiting out of the operations in which it was.
  void end() {
    for (const auto& [place, waited_s] : waits_) (*trace_)[place].seconds -= waited_s;
    waits_.clear();
    trace_ = nullptr;
  }

  [[nodiscard]] int mpi_communicator() const override { return group_.mpi_communicator(); }
  [[nodiscard]] Waiter watched(const Waiter& waiter) const override {
    return group_.watched(waiter);
  }
  [[nodiscard]] bool is_recordable() const override { return group_.is_recordable(); }
  void all_reduce_average(void* data, std::int64_t count, DType type,
                          const RankRange& among) override {
    meet();
    group_.all_reduce_average(data, count, type, among);
  }
  void all_reduce_sum(void* data, std::int64_t count, DType type) override {
    meet();
    group_.all_reduce_sum(data, count, type);
  }
  void reduce_average(void* data, std::int64_t count, DType type, int root) override {
    meet();
    group_.reduce_average(data, count, type, root);
  }
  void reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank, DType type,
                              const RankRange& among) override {
    meet();
    group_.reduce_scatter_average(out, in, count_per_rank, type, among);
  }
  void all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override {
    meet();
    group_.all_gather(out, in, count_per_rank, type, among);
  }
  void all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override {
    meet();
    group_.all_to_all(out, in, count_per_rank, type, among);
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    meet();
    group_.exchange_into(mine, all);
  }

 private:
  void meet() {
    if (trace_ == nullptr || size() == 1) return;
    const double began_s = seconds_by(clock_);
    group_.exchange(std::array{0.0});
    waits_.emplace_back(trace_->size(), seconds_by(clock_) - began_s);
  }

  ProcessGroup& group_;
  TraceClock clock_;
  StepTrace* trace_ = nullptr;
  std::vector<std::pair<std::size_t, double>> waits_;  ///< the operation's place, seconds
};

}  // namespace dstune::train
