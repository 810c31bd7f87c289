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

#if !defined(__SANITIZE_ADDRESS__)
// swapcontext() makes a system call each time, which is most of what a small kernel would take. The
// compiler's own jumps make none; each of the two has to be in a function of its own.
using Place = void* [5];

[[noreturn, gnu::noinline]] void jump(void** to) {
  __builtin_longjmp(to, 1);
}

[[gnu::noinline]] void leave_for(void** from, void** to) {
  if (__builtin_setjmp(from) == 0) jump(to);
}

[[gnu::noinline]] void begin(void** from, const ucontext_t& context) {
  if (__builtin_setjmp(from) == 0) setcontext(&context);
}
#endif

}  // namespace

struct Fiber::State {
  ucontext_t inside{};
#if defined(__SANITIZE_ADDRESS__)
  ucontext_t outside{};
  // Of the stack that resume() was called on; the sanitizer has to be told of every switch.
  const void* outside_stack = nullptr;
  std::size_t outside_stack_bytes = 0;
#else
  Place outside_place{};
  Place inside_place{};
  bool begun = false;
#endif
  std::vector<std::byte> stack = std::vector<std::byte>(stack_bytes);
  std::function<void()> work;
  bool done = true;
#if defined(__SANITIZE_ADDRESS__)
  void enter() {
    void* saved = nullptr;
    __sanitizer_start_switch_fiber(&saved, stack.data(), stack.size());
    swapcontext(&outside, &inside);
    __sanitizer_finish_switch_fiber(saved, nullptr, nullptr);
  }
  void leave() {
    void* saved = nullptr;
    __sanitizer_start_switch_fiber(&saved, outside_stack, outside_stack_bytes);
    swapcontext(&inside, &outside);
    arrive(saved);
  }
  void arrive(void* saved) {
    __sanitizer_finish_switch_fiber(saved, &outside_stack, &outside_stack_bytes);
  }
#else
  void enter() {
    if (begun) return leave_for(outside_place, inside_place);
    begun = true;
    begin(outside_place, inside);
  }
  void leave() {
    leave_for(inside_place, outside_place);
  }
  void arrive(void* /*saved*/) {}
#endif

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
