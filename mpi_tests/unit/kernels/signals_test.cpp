// Signals while oneDNN computes. Its `gemm:jit`, which serves products whose rows of A lie further
// apart than they are long, may run with its stack pointer in the heap: a handler writes there.
#include "dstune/base/signals.hpp"

#include <atomic>
#include <cmath>
#include <csignal>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {
namespace {

constexpr int num_signals = 5000;
constexpr std::int64_t rows = 96, columns = 80, depth = 64, stride = 192;

// Of a child process.
std::atomic<int> num_taken = 0;

extern "C" void count_in_handler(int /*number*/) {
  ++num_taken;
}

/// A product whose rows of A are 64 long and 192 apart, again and again.
class Products {
 public:
  Products() {
    for (std::size_t i = 0; i < a_.size(); ++i) a_[i] = static_cast<float>(i % 7);
    for (std::size_t i = 0; i < b_.size(); ++i) b_[i] = static_cast<float>(i % 5);
  }
  void run() {
    cpu_table().matmul(shape_, a_.data(), b_.data(), nullptr, c_.data(), workspace_.data());
    // Small blocks come and go beside the kernel's buffers, as they do in a step.
    churn_.emplace_back(64 + churn_.size());
    if (churn_.size() > 50) churn_.clear();
  }
  /// Whole numbers, so that sums are exact.
  [[nodiscard]] bool is_right() const {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < depth; ++k)
          sum += static_cast<double>(a_[static_cast<std::size_t>(i * stride + k)]) *
                 static_cast<double>(b_[static_cast<std::size_t>(k * columns + j)]);
        if (std::abs(sum - static_cast<double>(c_[static_cast<std::size_t>(i * columns + j)])) >
            0.5)
          return false;
      }
    return true;
  }

 private:
  MatmulShape shape_{.m = rows, .n = columns, .k = depth, .stride_a = stride};
  std::vector<float> a_ = std::vector<float>(rows * stride);
  std::vector<float> b_ = std::vector<float>(depth * columns);
  std::vector<float> c_ = std::vector<float>(rows * columns);
  std::vector<char> workspace_ = std::vector<char>(cpu_table().matmul_workspace_bytes(shape_) + 1);
  std::vector<std::vector<char>> churn_;
};

/// Computes until so many signals were sent and taken, each after the one before. 0: all is right.
template <class Send>
int compute_under_signals(Send send) {
  Products products;
  const std::thread::native_handle_type computing = pthread_self();
  std::thread sender([&] {
    for (int sent = 0; sent < num_signals; ++sent) {
      send(computing);
      while (num_taken <= sent) std::this_thread::yield();
    }
  });
  do products.run();
  while (num_taken < num_signals);
  sender.join();
  return products.is_right() ? 0 : 1;
}

/// As main() does it: every thread blocks the signals, and one asks for them.
int compute_while_one_thread_takes_signals() {
  block_stop_signals();
  std::thread taker([] {
    while (num_taken < num_signals)
      if (take_stop_signal(std::chrono::milliseconds(200)) != 0) ++num_taken;
  });
  const int failed = compute_under_signals([](pthread_t) { kill(getpid(), SIGUSR1); });
  taker.join();
  return failed;
}

int compute_with_a_handler() {
  struct sigaction action = {};
  action.sa_handler = count_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  return compute_under_signals([](pthread_t computing) { pthread_kill(computing, SIGUSR1); });
}

// In a child of one thread: no thread may be older than the mask.
TEST(SignalsTest, LeaveProductsAlone) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  EXPECT_EXIT(_exit(compute_while_one_thread_takes_signals()), testing::ExitedWithCode(0), "");
}

// Shows that a machine has the fault at all: it ends by SIGABRT or SIGSEGV on those with AVX-512.
TEST(SignalsTest, DISABLED_AHandlerCorruptsTheHeap) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  EXPECT_EXIT(
      _exit(compute_with_a_handler()), [](int status) { return WIFSIGNALED(status); }, "");
}

}  // namespace
}  // namespace dstune::kernels
