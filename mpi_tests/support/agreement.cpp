#include "agreement.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <sstream>
#include <string_view>
#include <thread>

#include <unistd.h>

namespace dstune::test {
namespace {

// Opens the message of a failure that happened on another rank, which prints it itself.
constexpr std::string_view elsewhere = "failed on rank ";

}  // namespace

void end_all_ranks() {
  // MPI_Abort is itself a call into a library that may be stuck: the alarm needs no one.
  std::signal(SIGALRM, SIG_DFL);
  alarm(10);
  int thread_level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&thread_level);
  if (thread_level == MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

Agreement::Agreement(Watchdog& watchdog) : watchdog_(watchdog) {
  MPI_Comm_dup(MPI_COMM_WORLD, &private_world_);
  MPI_Comm_rank(private_world_, &world_rank_);
  MPI_Comm_size(private_world_, &world_size_);
}

void Agreement::OnTestEnd(const testing::TestInfo& test) {
  const bool failed_here = test.result()->Failed();
  const bool ran_here = !test.result()->Skipped();
  const Verdict verdict = agree(full_name(test), failed_here, ran_here);
  ++tests_;
  if (verdict.ran_somewhere) ++tests_that_ran_;
  if (verdict.failed_world_rank >= 0 && !failed_here) {
    ADD_FAILURE() << elsewhere << verdict.failed_world_rank;
  }
}

int Agreement::exit_code(bool failed_here) {
  const Verdict verdict = agree("the end of all tests", failed_here, true);
  if (verdict.failed_world_rank >= 0) return 1;
  return tests_ > 0 && tests_that_ran_ == 0 ? all_skipped_exit_code : 0;
}

void Agreement::close() {
  MPI_Comm_free(&private_world_);
}

Agreement::Verdict Agreement::agree(const std::string& where, bool failed_here, bool ran_here) {
  watchdog_.wait_for_others(where + ", waiting for the other ranks at its end");
  const auto name = static_cast<std::int64_t>(std::hash<std::string>{}(where) >> 1);
  // All by maximum: the lowest rank that failed, whether any ran, and the name from both sides.
  const std::array<std::int64_t, 4> mine{failed_here ? world_size_ - world_rank_ : 0,
                                         ran_here ? 1 : 0, name, -name};
  std::array<std::int64_t, 4> all{};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(mine.data(), all.data(), static_cast<int>(mine.size()), MPI_INT64_T, MPI_MAX,
                 private_world_, &request);
  wait(request, where, failed_here);
  if (all[2] != -all[3]) {
    std::fprintf(stderr, "[  FAILED  ] rank %d: %s, and other ranks are at another test\n",
                 world_rank_, where.c_str());
    std::fflush(nullptr);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    end_all_ranks();
  }
  return {all[0] > 0 ? world_size_ - static_cast<int>(all[0]) : -1, all[1] > 0};
}

void Agreement::wait(MPI_Request& request, const std::string& where, bool failed_here) {
  using Clock = std::chrono::steady_clock;
  const double limit_s = test_limit_s();
  const double inactivity_timeout_s =
      limit_s > 0 ? std::min(10.0, limit_s / 2) : std::numeric_limits<double>::infinity();
  const Clock::time_point began = Clock::now();
  int done = 0;
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  while (done == 0) {
    const std::chrono::duration<double> waited = Clock::now() - began;
    if (failed_here && waited.count() > inactivity_timeout_s) {
      std::fprintf(stderr,
                   "[  FAILED  ] rank %d: %s failed here, and other ranks did not come to its end "
                   "within %g s\n",
                   world_rank_, where.c_str(), inactivity_timeout_s);
      std::fflush(nullptr);
      end_all_ranks();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
}

void FailurePrinter::OnTestStart(const testing::TestInfo& test) {
  where_ = full_name(test);
}

void FailurePrinter::OnTestEnd(const testing::TestInfo&) {
  where_ = outside_tests;
}

void FailurePrinter::OnTestPartResult(const testing::TestPartResult& result) {
  const std::string message = result.message();
  if (!result.failed() || message.find(elsewhere) != std::string::npos) return;
  // A launcher's terminal passes on line by line, with those of other ranks in between: each says
  // whose it is.
  const std::string whose = "[ rank " + std::to_string(world_rank_) + "   ] ";
  std::string text = whose + (result.file_name() == nullptr ? "unknown file" : result.file_name()) +
                     ":" + std::to_string(result.line_number()) + ": failure in " + where_ + "\n";
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) text += whose + line + "\n";
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace dstune::test
