#include "fiber.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace dstune::test {
namespace {

constexpr std::size_t stack_bytes = 256 * 1024;

}  // namespace

struct Fiber::State {
  ucontext_t outside{};
  ucontext_t inside{};
  std::vector<std::byte> stack = std::vector<std::byte>(stack_bytes);
  std::function<void()> work;
  bool done = true;
  // Of the stack that resume() was called on; the address sanitizer has to be told of every switch.
  const void* outside_stack = nullptr;
  std::size_t outside_stack_bytes = 0;

  void enter() {
    [[maybe_unused]] void* saved = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&saved, stack.data(), stack.size());
#endif
    swapcontext(&outside, &inside);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(saved, nullptr, nullptr);
#endif
  }

  void leave() {
    [[maybe_unused]] void* saved = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&saved, outside_stack, outside_stack_bytes);
#endif
    swapcontext(&inside, &outside);
    arrive(saved);
  }

  void arrive([[maybe_unused]] void* saved) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(saved, &outside_stack, &outside_stack_bytes);
#endif
  }

  // makecontext passes whole numbers.
  static void run(unsigned upper, unsigned lower) {
    const auto address = static_cast<std::uintptr_t>(upper) << 32 | lower;
    auto& state = *reinterpret_cast<State*>(address);
    state.arrive(nullptr);
    // Begun once; work after work, so that a context is made once.
    for (;;) {
      state.work();
      state.done = true;
      state.leave();
    }
  }
};

Fiber::Fiber() : state_(std::make_unique<State>()) {
  State& state = *state_;
  getcontext(&state.inside);
  state.inside.uc_stack.ss_sp = state.stack.data();
  state.inside.uc_stack.ss_size = state.stack.size();
  state.inside.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(&state);
  makecontext(&state.inside, reinterpret_cast<void (*)()>(State::run), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
}

Fiber::~Fiber() = default;

void Fiber::start(std::function<void()> work) {
  state_->work = std::move(work);
  state_->done = false;
}

void Fiber::resume() {
  state_->enter();
}

bool Fiber::is_done() const {
  return state_->done;
}

void Fiber::give_way() {
  state_->leave();
}

}  // namespace dstune::test
