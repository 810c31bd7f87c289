// Where a job tells that it is: on a terminal of its own, which a pseudo-terminal is, and in a
// pipe.
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "job.hpp"
#include "spaces.hpp"
#include "terminal.hpp"

namespace dstune::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using Lines = std::vector<std::string>;

/// The program without a launcher, on a pseudo-terminal whose screen is looked at.
class OnTerminal {
 public:
  OnTerminal(const Job& job, int columns, const std::vector<std::string>& options)
      : screen_(static_cast<std::size_t>(columns), 24) {
    std::vector<std::string> words{binary(), "space.json"};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string folder = job.folder().string();
    winsize size{24, static_cast<unsigned short>(columns), 0, 0};
    pid_ = forkpty(&descriptor_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    // Words of a launcher, and of terminals that break rows, may stand in the test's environment.
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "TMUX", "VTE_VERSION",
          "KONSOLE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "WEZTERM_PANE", "ITERM_SESSION_ID",
          "ALACRITTY_WINDOW_ID"})
      unsetenv(name);
    setenv("TERM", "xterm", 1);
    if (chdir(folder.c_str()) == 0) execv(arguments[0], arguments.data());
    _exit(127);
  }
  ~OnTerminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(descriptor_);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  /// Reads on until the screen names another experiment that runs; false where the program has
  /// ended. A short one may not be drawn at all.
  bool show_another() {
    while (read_some())
      for (const std::string& line : screen_.lines())
        if (line.starts_with("Running: z0_gas1") && line != running_) {
          running_ = line;
          return true;
        }
    return false;
  }
  void resize(int columns) {
    winsize size{24, static_cast<unsigned short>(columns), 0, 0};
    ioctl(descriptor_, TIOCSWINSZ, &size);
    screen_.resize(static_cast<std::size_t>(columns));
  }
  /// Reads to the end and returns the exit code.
  int end() {
    while (read_some()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  [[nodiscard]] const test::Terminal& screen() const { return screen_; }
  [[nodiscard]] const std::string& all() const { return all_; }

 private:
  bool read_some() {
    pollfd waits{descriptor_, POLLIN, 0};
    if (poll(&waits, 1, 60'000) != 1) return false;
    char text[4096];
    const ssize_t size = read(descriptor_, text, sizeof text);
    if (size <= 0) return false;
    screen_.take({text, static_cast<std::size_t>(size)});
    all_.append(text, static_cast<std::size_t>(size));
    return true;
  }

  test::Terminal screen_;
  std::string all_, running_;
  int descriptor_ = -1;
  pid_t pid_ = -1;
};

/// The rows of the block, which begin in this way.
Lines block_of(const test::Terminal& screen) {
  Lines block;
  for (const std::string& line : screen.lines())
    for (const char* begin : {"Search ", "Finals ", "Best so far: ", "Running: "})
      if (line.starts_with(begin) || line.find(" done, ") != line.npos) {
        block.push_back(line);
        break;
      }
  return block;
}

class ProgressTest : public testing::Test {
 protected:
  /// Some thirty steps of 10 ms each.
  void SetUp() override { job_.write("space.json", synthetic_space({1}, sizes_up_to(16), 0.01)); }

  Job job_;
};

TEST_F(ProgressTest, OnATerminalABlockIsRewrittenAndGoes) {
  for (const int columns : {80, 40}) {
    OnTerminal program(job_, columns, {"--overwrite", "--time-limit", "5m"});
    ASSERT_TRUE(program.show_another()) << program.all();
    ASSERT_TRUE(program.show_another()) << program.all();
    const Lines block = block_of(program.screen());
    EXPECT_THAT(block, SizeIs(4)) << "one block: " << testing::PrintToString(block);
    EXPECT_THAT(block[0], ContainsRegex("^Search with "));
    EXPECT_THAT(block[1], ContainsRegex("^[0-9]+ done, 1 running"));
    EXPECT_THAT(block[2], ContainsRegex("^Best so far: [0-9]+ samples/s, "));
    for (const std::string& row : block) EXPECT_LE(row.size(), columns + 2U) << "… has 3 bytes";
    EXPECT_EQ(program.end(), done) << program.all();
    EXPECT_THAT(block_of(program.screen()), SizeIs(0));
    EXPECT_EQ(program.screen().unknown(), "");
    EXPECT_THAT(program.all(), Not(HasSubstr("[3 done")));
  }
}

TEST_F(ProgressTest, AResizeLeavesNothingBehind) {
  OnTerminal program(job_, 80, {"--time-limit", "5m"});
  ASSERT_TRUE(program.show_another()) << program.all();
  program.resize(40);
  ASSERT_TRUE(program.show_another()) << program.all();
  EXPECT_THAT(block_of(program.screen()), SizeIs(4));
  const int wraps = program.screen().num_wraps();
  ASSERT_TRUE(program.show_another()) << program.all();
  EXPECT_EQ(program.screen().num_wraps(), wraps) << "no row of the block is wider than 40 columns";
  program.resize(100);
  EXPECT_EQ(program.end(), done) << program.all();
  EXPECT_THAT(block_of(program.screen()), SizeIs(0));
  int phases = 0;
  for (const std::string& line : program.screen().lines())
    if (line.find("dstune: info: Start") != line.npos) ++phases;
  EXPECT_EQ(phases, 2) << "no message was erased";
}

TEST_F(ProgressTest, UnderMpirunEachLineHasItsTime) {
  const Ended ended = job_.run({.ranks = 1, .args = {"space.json", "--time-limit", "5m"}});
  ASSERT_EQ(ended.exit_code, done) << ended;
  EXPECT_THAT(ended.err, Not(HasSubstr("\033")));
  EXPECT_THAT(ended.err, ContainsRegex("\ndstune: info: [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}[+-]"
                                       "[0-9]{2}:[0-9]{2} \\[2 done, [01] running\\] z0_gas1"));
  EXPECT_THAT(ended.err, ContainsRegex("Search: 16 done, 0 running, [0-9.]+ s of 5 m used; best so "
                                       "far is z0_gas1_tmbspg[0-9]+ on 1 rank: "));
  EXPECT_THAT(ended.err, HasSubstr(" Search with simulated steps: up to 16 experiments.\n"));
}

TEST_F(ProgressTest, NoneHasNoSuchLine) {
  for (const Lines& options : {Lines{"--progress", "none"}, Lines{"--no-progress"},
                               Lines{"--quiet", "--progress", "live"}}) {
    std::vector<std::string> args{"space.json", "--overwrite"};
    args.insert(args.end(), options.begin(), options.end());
    const Ended ended = job_.run({.ranks = 1, .args = args});
    ASSERT_EQ(ended.exit_code, done) << ended;
    EXPECT_THAT(ended.err, Not(HasSubstr("Start: "))) << ended;
    EXPECT_THAT(ended.err, Not(HasSubstr(" done"))) << ended;
  }
  const Ended refused =
      job_.run({.ranks = 0, .args = {"space.json", "--no-progress", "--progress", "live"}});
  EXPECT_EQ(refused.exit_code, usage) << refused;
}

}  // namespace
}  // namespace dstune::e2e
