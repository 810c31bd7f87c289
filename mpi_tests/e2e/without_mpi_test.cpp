// The program where there is no MPI: a plan needs none, and a job says what is missing.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;

const fs::path built = fs::path(binary()).parent_path();
constexpr const char* comm_library = "libdstune-mpi-comm.so";
constexpr const char* no_comm_library =
    "libdstune-mpi-comm.so is not beside the program: build or install it with the program";

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

/// A copy of the program, alone in a folder.
class WithoutMpiTest : public JobTest {
 protected:
  WithoutMpiTest() {
    fs::create_directory(alone_);
    fs::copy_file(binary(), program_);
    write_transformer(job_, transformer_space({1, 2}));
  }

  /// Neither a home nor a path.
  Ended run_alone(std::vector<std::string> args) {
    return job_.run(
        {.ranks = 0, .args = std::move(args), .launcher = {"env", "-i"}, .program = {program_}});
  }

  /// What calls MPI, asking for one that is nowhere.
  void add_library_of_another_mpi() {
    std::ifstream file(built / comm_library, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::size_t changed = 0;
    for (std::size_t at = 0; (at = bytes.find("libmpi", at)) != std::string::npos; ++changed)
      bytes.replace(at, 6, "libnpi");
    EXPECT_GT(changed, 0U);
    std::ofstream(alone_ / comm_library, std::ios::binary) << bytes;
  }

  void expect_refused_job(const std::vector<std::string>& parts) {
    expect_refused(job_, {.ranks = 2, .args = {"space.json"}, .program = {program_}},
                   internal_error, parts);
    const Json end = job_.read_json("autotuning_results/exit_status.json");
    EXPECT_EQ(count_of(end.dump(), parts.front()), 1) << end;
  }

  const fs::path alone_ = job_.folder() / "alone";
  const std::string program_ = (alone_ / "dstune-mpi").string();
};

TEST_F(WithoutMpiTest, APlanHelpAndTheVersionRunInAnEmptyEnvironment) {
  const Ended help = run_alone({"--help"});
  EXPECT_EQ(help.exit_code, done) << help;
  EXPECT_EQ(help.out, run({"--help"}).out);
  const Ended version = run_alone({"--version"});
  EXPECT_EQ(version.exit_code, done) << version;
  EXPECT_EQ(count_of(version.out, std::string("MPI: not found (") + no_comm_library + ")\n"), 1)
      << version;
  const Ended planned = run_alone({"plan", "--format", "json", "space.json"});
  EXPECT_EQ(planned.exit_code, done) << planned;
  EXPECT_EQ(planned.err, "");
  EXPECT_EQ(keys_of(printed(planned)), keys_of(plan()));
}

TEST_F(WithoutMpiTest, OnlyItsOwnLibraryNeedsMpi) {
  for (const char* name : {"dstune-mpi", "libdstune-mpi.so", comm_library}) {
    const Ended listed = job_.run({.ranks = 0, .program = {"ldd", (built / name).string()}});
    EXPECT_EQ(listed.exit_code, done) << listed;
    EXPECT_GT(count_of(listed.out, "libc.so"), 0) << listed;
    EXPECT_EQ(count_of(listed.out, "libmpi") > 0, name == comm_library) << name << '\n' << listed;
  }
}

TEST_F(WithoutMpiTest, AJobSaysThatTheLibraryIsMissing) {
  expect_refused_job({no_comm_library});
  const Ended job = run_alone({"space.json"});
  EXPECT_EQ(job.exit_code, internal_error) << job;
  EXPECT_EQ(count_of(job.err, no_comm_library), 1) << job;
}

TEST_F(WithoutMpiTest, AJobSaysThatMpiIsMissing) {
  add_library_of_another_mpi();
  expect_refused_job(
      {"MPI can not be loaded (libnpi", "install the MPI that the program was built with"});
  const Ended version = run_alone({"--version"});
  EXPECT_EQ(version.exit_code, done) << version;
  EXPECT_EQ(count_of(version.out, "MPI: not found (MPI can not be loaded (libnpi"), 1) << version;
}

TEST_F(WithoutMpiTest, ACheckSaysSoAsWell) {
  const Ended ended = run_alone({"check", "--format", "json"});
  EXPECT_EQ(ended.exit_code, internal_error) << ended;
  EXPECT_EQ(count_of(ended.err, no_comm_library), 1) << ended;
  EXPECT_EQ(count_of(printed(ended).dump(), no_comm_library), 1) << ended;
}

TEST_F(WithoutMpiTest, TheLibraryIsFoundInTheFolderOfAnInstallation) {
  fs::create_directories(job_.folder() / "lib");
  fs::copy_file(built / comm_library, job_.folder() / "lib" / comm_library);
  job_.write("space.json", synthetic_space({2}, {1}));
  const Ended ended = job_.run({.ranks = 2, .args = {"space.json"}, .program = {program_}});
  expect_all_ok(job_, ended, 1);
}

}  // namespace
}  // namespace dstune::e2e
