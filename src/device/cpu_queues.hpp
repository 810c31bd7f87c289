#pragma once
/// The queues of a processor, which has done everything when a call returns.

#include <chrono>
#include <vector>

#include "dstune/device/queues.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune {

class CpuQueues : public Queues {
 public:
  explicit CpuQueues(const kernels::Table& table) : table_(table) {}

  void prepare(const Numbers& numbers, const Waiter& waiter) override;
  void use(int /*queue*/) override {}
  void record(int /*event*/) override {}
  void wait(int /*event*/) override {}
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void finish(int /*event*/) override {}
  void finish_used() override {}
  void finish_all() override {}
  void stamp(int stamp) override { stamps_[static_cast<std::size_t>(stamp)] = Clock::now(); }
  double seconds_between(int first, int second) override;
  [[nodiscard]] void* native() const override { return nullptr; }

 private:
  using Clock = std::chrono::steady_clock;

  const kernels::Table& table_;
  std::vector<Clock::time_point> stamps_;
};

}  // namespace dstune
