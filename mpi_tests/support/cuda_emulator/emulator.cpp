#include "emulator.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "fiber.hpp"

namespace dstune::test {
namespace {

using kernels::cuda::Grid;
using kernels::cuda::warp_size;

/// The lanes of a warp meet here; what they bring is kept until all have been at the next meeting.
struct Warp {
  std::int64_t meeting = 0;
  int arrived = 0;
  std::uint64_t brought[2][warp_size] = {};
};

int& order_number() {
  static int order = 0;
  return order;
}

std::vector<std::int64_t> order_of(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (order_number() > 0) {
    std::mt19937 random(static_cast<unsigned>(order_number()));
    std::shuffle(numbers.begin(), numbers.end(), random);
  }
  return numbers;
}

}  // namespace

class EmulatedBlock {
 public:
  EmulatedBlock(const Grid& grid, const std::function<void(EmulatedThread&)>& kernel)
      : grid_(grid),
        kernel_(kernel),
        order_(order_of(grid.threads)),
        threads_(static_cast<std::size_t>(grid.threads)),
        waits_(static_cast<std::size_t>(grid.threads)) {
    while (fibers().size() < threads_.size()) fibers().push_back(std::make_unique<Fiber>());
  }

  void run(std::int64_t block, std::int64_t piece) {
    shared_.clear(grid_.shared_bytes);
    warps_.assign(threads_.size() / warp_size, {});
    arrived_ = 0;
    for (int number = 0; number < grid_.threads; ++number) {
      EmulatedThread& thread = threads_[static_cast<std::size_t>(number)];
      thread.thread = number;
      thread.threads = grid_.threads;
      thread.block = block;
      thread.blocks = grid_.blocks;
      thread.piece = piece;
      thread.pieces = grid_.pieces;
      thread.shared = &shared_;
      thread.owner_ = this;
      waits_[static_cast<std::size_t>(number)] = {};
      fiber(number).start([this, &thread] { kernel_(thread); });
    }
    run_threads();
  }

  void sync(int thread) {
    ++arrived_;
    if (arrived_ == grid_.threads) {
      arrived_ = 0;
      shared_.pass_barrier();
      return;
    }
    wait(thread, {&shared_.epoch(), shared_.epoch()});
  }

  const std::uint64_t* exchange(int thread, std::uint64_t mine) {
    Warp& warp = warps_[static_cast<std::size_t>(thread / warp_size)];
    const std::int64_t meeting = warp.meeting;
    std::uint64_t* brought = warp.brought[meeting % 2];
    brought[thread % warp_size] = mine;
    if (++warp.arrived == warp_size) {
      warp.arrived = 0;
      ++warp.meeting;
    } else {
      wait(thread, {&warp.meeting, meeting});
    }
    return brought;
  }

 private:
  /// Until the counter is no longer what it was.
  struct Wait {
    const std::int64_t* counter = nullptr;
    std::int64_t value = 0;
    [[nodiscard]] bool is_over() const { return counter == nullptr || *counter != value; }
  };

  /// Kept from launch to launch; what an abandoned block leaves in them is never resumed.
  static std::vector<std::unique_ptr<Fiber>>& fibers() {
    static std::vector<std::unique_ptr<Fiber>> all;
    return all;
  }
  static Fiber& fiber(int number) { return *fibers()[static_cast<std::size_t>(number)]; }

  void run_threads() {
    std::size_t left = threads_.size();
    while (left > 0) {
      bool moved = false;
      for (const std::int64_t number : order_) {
        Fiber& one = fiber(static_cast<int>(number));
        if (one.is_done() || !waits_[static_cast<std::size_t>(number)].is_over()) continue;
        moved = true;
        one.resume();
        if (one.is_done()) --left;
      }
      if (!moved) break;
    }
    if (!shared_.fault().empty()) fail(shared_.fault());
    if (left > 0) fail("a barrier or an exchange at which not all threads arrive");
  }

  void fail(const std::string& what) {
    fibers().clear();
    throw std::logic_error(what + ", in block " + std::to_string(threads_[0].block));
  }

  void wait(int thread, Wait until) {
    waits_[static_cast<std::size_t>(thread)] = until;
    fiber(thread).give_way();
  }

  const Grid& grid_;
  const std::function<void(EmulatedThread&)>& kernel_;
  std::vector<std::int64_t> order_;
  std::vector<EmulatedThread> threads_;
  std::vector<Wait> waits_;
  SharedMemory shared_;
  std::vector<Warp> warps_;
  int arrived_ = 0;
};

void EmulatedThread::sync() {
  owner_->sync(thread);
}
const std::uint64_t* EmulatedThread::exchange(std::uint64_t mine) {
  return owner_->exchange(thread, mine);
}

void launch(const Grid& grid, const std::function<void(EmulatedThread&)>& kernel) {
  if (const char* problem = kernels::cuda::problem_of(grid)) throw std::logic_error(problem);
  EmulatedBlock block(grid, kernel);
  for (const std::int64_t number : order_of(grid.blocks * grid.pieces))
    block.run(number % grid.blocks, number / grid.blocks);
}

void set_emulated_order(int order) {
  order_number() = order;
}

}  // namespace dstune::test
