// The main of tests that run in one process: GoogleTest with a watchdog, and exit code 77 where
// every test was skipped.
#include <cstdlib>

#include <gtest/gtest.h>

#include "watchdog.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  dstune::test::Watchdog watchdog("test", [] { std::abort(); });
  testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  tests.listeners().Append(new dstune::test::WatchdogListener(watchdog));
  const int failed = RUN_ALL_TESTS();
  if (failed != 0) return 1;
  const bool any = tests.test_to_run_count() > 0 && !testing::GTEST_FLAG(list_tests);
  const bool all_skipped = any && tests.skipped_test_count() == tests.test_to_run_count();
  return all_skipped ? dstune::test::all_skipped_exit_code : 0;
}
