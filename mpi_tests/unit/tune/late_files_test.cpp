// Files of experiments come some seconds after their end, at the job's end, or with the next job.

#include <chrono>

#include <sys/stat.h>

#include "controller_fixture.hpp"
#include "dstune/base/file.hpp"

namespace dstune {
namespace {

class LateFilesTest : public ControllerTest {
 protected:
  [[nodiscard]] std::string of(const std::string& name, const std::string& file) const {
    return folder_ + "/results/" + name + "/" + file;
  }
  [[nodiscard]] ino_t inode(const std::string& path) const {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 ? found.st_ino : 0;
  }
  const std::string one_ = "z0_gas1_tmbspg1_ng1", two_ = "z0_gas1_tmbspg2_ng1";
};

TEST_F(LateFilesTest, ABurstIsNotHeldUpByThem) {
  FakeWorkers workers({});
  int looks = 0;
  bool has_files = false;
  // On a machine that is late they may come while it runs.
  const auto in_time = SteadyClock::now() + std::chrono::seconds(4);
  (void)run(space(4, {1}), workers, 1, {.watch = [&](const Controller&) {
              ++looks;
              const bool are_there = std::filesystem::exists(folder_ + "/results/" + one_);
              has_files |= are_there && SteadyClock::now() < in_time;
            }});
  EXPECT_GT(looks, 4);
  EXPECT_FALSE(has_files) << "while it ran";
  for (const char* file : {"exp.json", "ds_config.json", "metrics.json"}) {
    EXPECT_TRUE(std::filesystem::exists(of(one_, file))) << file;
    EXPECT_TRUE(std::filesystem::exists(of(two_, file))) << file;
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/exps/" + one_ + ".json"));
}

TEST_F(LateFilesTest, TheNextJobWritesThoseThatLackAndNoOther) {
  const PlannedSpace members = space(2, {1});
  {
    FakeWorkers workers({});
    (void)run(members, workers, 1);
  }
  const ino_t kept = inode(of(two_, "metrics.json"));
  const std::string lost = read_file(of(one_, "metrics.json"));
  std::filesystem::remove_all(folder_ + "/results/" + one_);
  std::filesystem::remove(folder_ + "/exps/" + two_ + ".json");
  FakeWorkers workers({});
  (void)run(members, workers, 1);
  EXPECT_TRUE(workers.ran().empty());
  EXPECT_EQ(read_file(of(one_, "metrics.json")), lost);
  EXPECT_TRUE(std::filesystem::exists(of(one_, "exp.json")));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/exps/" + two_ + ".json"));
  EXPECT_EQ(inode(of(two_, "metrics.json")), kept) << "it was there";
}

}  // namespace
}  // namespace dstune
