#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>
#include <mpi.h>

#include "watchdog.hpp"

namespace dstune::test {

/// Ends every rank with exit code 1, also where MPI itself no longer answers. Local.
[[noreturn]] void end_all_ranks();

/// Makes the ranks of a test program one: at the end of each test they agree whether it failed
/// anywhere, on a communicator that no test can reach. A failure on one rank fails the test on all.
///
/// A rank that failed may have left the others inside a collective of the test. It waits for them a
/// few seconds and then ends the job; a rank that did not fail waits as long as the watchdog lets
/// it.
///
/// Append it after the printer and after WatchdogListener: GoogleTest calls the listeners' end
/// events in reverse order, and the printer must see what was agreed on.
class Agreement : public testing::EmptyTestEventListener {
 public:
  /// Collective over MPI_COMM_WORLD.
  explicit Agreement(Watchdog& watchdog);

  /// Collective over MPI_COMM_WORLD.
  void OnTestEnd(const testing::TestInfo& test) override;

  /// The exit code all ranks leave with: 0, 1, or 77 if every test was skipped on every rank.
  /// Collective over MPI_COMM_WORLD.
  int exit_code(bool failed_here);

  /// Gives the communicator back. Collective over MPI_COMM_WORLD.
  void close();

 private:
  struct Verdict {
    int failed_world_rank;  // the lowest rank that failed, or -1
    bool ran_somewhere;     // not skipped on every rank
  };

  Verdict agree(const std::string& where, bool failed_here, bool ran_here);
  void wait(MPI_Request& request, const std::string& where, bool failed_here);

  Watchdog& watchdog_;
  MPI_Comm private_world_ = MPI_COMM_NULL;
  int world_rank_ = 0;
  int world_size_ = 1;
  std::int64_t tests_ = 0;
  std::int64_t tests_that_ran_ = 0;
};

/// The printer of ranks other than 0: nothing but failures, with the rank. Local.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int world_rank) : world_rank_(world_rank) {}

  void OnTestStart(const testing::TestInfo& test) override;
  void OnTestEnd(const testing::TestInfo& test) override;
  void OnTestPartResult(const testing::TestPartResult& result) override;

 private:
  static constexpr const char* outside_tests = "a set-up or tear-down";

  int world_rank_;
  // Kept here, since GoogleTest holds its lock while it reports a failure: asking it would hang.
  std::string where_ = outside_tests;
};

}  // namespace dstune::test
