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

/// The lanes of a warp meet here; what they bring is kept until all have been at the next
/// rendezvous.
struct Warp {
  std::int64_t rendezvous = 0;
  int arrived = 0;
  std::uint64_t brought[2][warp_size] = {};
};

int& order_number() {
  static int order = 0;
  return order;
}

/// Of the block that runs, the first; null: none.
const char*& access_fault() {
  static const char* fault = nullptr;
  return fault;
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
        states_(static_cast<std::size_t>(grid.threads)) {}

  void run(std::int64_t block, std::int64_t piece) {
    shared_.clear(grid_.shared_bytes);
    access_fault() = nullptr;
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
    const std::int64_t rendezvous = warp.rendezvous;
    std::uint64_t* brought = warp.brought[rendezvous % 2];
    brought[thread % warp_size] = mine;
    if (++warp.arrived == warp_size) {
      warp.arrived = 0;
      ++warp.rendezvous;
    } else {
      wait(thread, {&warp.rendezvous, rendezvous});
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

  struct State {
    Fiber* fiber = nullptr;  ///< in which it began
    Wait wait;
    bool is_done = false;
  };

  /// Kept from launch to launch; what an abandoned block leaves in them is never resumed.
  static std::vector<std::unique_ptr<Fiber>>& fibers() {
    static std::vector<std::unique_ptr<Fiber>> all;
    return all;
  }

  /// Each thread of the block up to its first wait. One that does not wait needs no fiber of its
  /// own: the next begins where it has ended.
  void begin_threads() {
    std::ranges::fill(states_, State{});
    begun_ = 0;
    for (std::size_t used = 0; begun_ < order_.size(); ++used) {
      if (used == fibers().size()) fibers().push_back(std::make_unique<Fiber>());
      Fiber& fiber = *fibers()[used];
      fiber.start([this, &fiber] {
        while (begun_ < order_.size()) {
          const auto number = static_cast<std::size_t>(order_[begun_++]);
          states_[number].fiber = &fiber;
          kernel_(threads_[number]);
          states_[number].is_done = true;
        }
      });
      fiber.resume();
    }
  }

  void run_threads() {
    begin_threads();
    for (bool moved = true; moved;) {
      moved = false;
      for (const std::int64_t number : order_) {
        const State& state = states_[static_cast<std::size_t>(number)];
        if (state.is_done || !state.wait.is_over()) continue;
        moved = true;
        state.fiber->resume();
      }
    }
    if (!shared_.fault().empty()) fail(shared_.fault());
    if (access_fault() != nullptr) fail(access_fault());
    if (!std::ranges::all_of(states_, &State::is_done))
      fail("a barrier or an exchange at which not all threads arrive");
  }

  void fail(const std::string& what) {
    fibers().clear();
    throw std::logic_error(what + ", in block " + std::to_string(threads_[0].block));
  }

  void wait(int thread, Wait until) {
    State& state = states_[static_cast<std::size_t>(thread)];
    state.wait = until;
    state.fiber->give_way();
  }

  const Grid& grid_;
  const std::function<void(EmulatedThread&)>& kernel_;
  std::vector<std::int64_t> order_;
  std::vector<EmulatedThread> threads_;
  std::vector<State> states_;
  std::size_t begun_ = 0;  ///< of order_
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

bool watch_access(const void* place, std::size_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(place) % alignment == 0) return true;
  // Nothing is thrown out of a fiber.
  access_fault() = "memory: moved at once where no such piece can begin";
  return false;
}

void set_emulated_order(int order) {
  order_number() = order;
}

}  // namespace dstune::test
