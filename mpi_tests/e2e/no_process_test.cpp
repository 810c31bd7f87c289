// The program starts no process: it runs under a filter that kills whoever tries.
#include <cstdlib>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int skipped = 77;

/// The exit code of a shell script under the launcher.
int code_of_script(const std::string& script) {
  const std::string command =
      std::string(DSTUNE_E2E_LAUNCHER) + " /bin/sh -c '" + script + "' 2>/dev/null";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class NoProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (code_of_script("exit 0") == skipped) GTEST_SKIP() << "no system call filters here";
  }
  void expect_it_runs(const Json& space) {
    Job job;
    write_transformer(job, space);
    const Ended ended =
        job.run({.ranks = 2, .args = {"space.json"}, .launcher = {DSTUNE_E2E_LAUNCHER}});
    expect_exit(job, ended, 0);
  }
};

TEST_F(NoProcessTest, FilterKillsWhoStartsAProcess) {
  EXPECT_EQ(code_of_script("exit 5"), 5);
  EXPECT_GT(code_of_script("/bin/true; exit 5"), 128) << "fork";
  EXPECT_GT(code_of_script("exec /bin/true"), 128) << "execve";
}

TEST_F(NoProcessTest, TrainsWithoutStartingAny) {
  expect_it_runs(transformer_space({1, 2}));
}

TEST_F(NoProcessTest, RunsSyntheticStepsWithoutStartingAny) {
  expect_it_runs(synthetic_space({1, 2}, {1, 2}, 0.01));
}

}  // namespace
}  // namespace dstune::e2e
