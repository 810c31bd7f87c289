// Environments as venv, conda and a system leave them, by file names alone.
#include "dstune/core/user_python.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "folder_test.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class UserPythonTest : public test::FolderTest {
 protected:
  UserPythonTest() { environment_.variables = {{"PATH", "/nowhere"}}; }

  [[nodiscard]] std::string in_folder(const std::string& name) const { return folder_ / name; }
  std::string program(const std::string& name, const std::string& content = "#!/bin/sh\n") {
    const std::string path = write(name, content);
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  void link(const std::string& name, const std::string& leads_to) {
    fs::create_directories((folder_ / name).parent_path());
    fs::create_symlink(leads_to, folder_ / name);
  }
  FoundPython find(const std::string& given = "") {
    environment_.interpreter = given.empty() ? "" : in_folder(given);
    return find_python(environment_);
  }

  PythonEnvironment environment_;
};

TEST_F(UserPythonTest, AnEnvironmentThatIsNamedIsTaken) {
  const std::string python = program("venv/bin/python");
  EXPECT_EQ(find("venv").path, python);
  EXPECT_EQ(find("venv/").path, python);
  EXPECT_EQ(find("venv/bin/python").path, python);
  EXPECT_EQ(find("other/../venv").path, python);
}

TEST_F(UserPythonTest, WhatIsNamedAndIsNoneIsRefusedWithAHint) {
  fs::create_directories(folder_ / "empty");
  EXPECT_THAT(find("empty").problem, HasSubstr("has no bin/python"));
  EXPECT_THAT(find("missing").problem, HasSubstr("is no program"));
  std::ofstream(folder_ / "text") << "no program\n";
  EXPECT_THAT(find("text").problem, HasSubstr("is no program"));
}

TEST_F(UserPythonTest, LibrariesOfNvidiasPackagesAreThoseOfThePythonOfTheJob) {
  program("venv/bin/python3.11");
  link("venv/bin/python", "python3.11");
  std::ofstream(folder_ / "venv/pyvenv.cfg") << "version = 3.11.2\n";
  const std::string packages = "venv/lib/python3.11/site-packages/nvidia";
  for (const char* name : {"/cudnn/lib", "/nccl/lib", "/cublas/include"})
    fs::create_directories(folder_ / (packages + name));
  fs::create_directories(folder_ / "venv/lib/python3.12/site-packages/nvidia/other/lib");
  fs::create_directories(folder_ / "more/nvidia/cu13/lib");
  environment_.variables["VIRTUAL_ENV"] = in_folder("venv");
  environment_.variables["PYTHONPATH"] = in_folder("more");
  EXPECT_THAT(
      nvidia_library_folders(environment_),
      testing::ElementsAre(in_folder("more/nvidia/cu13/lib"), in_folder(packages + "/cudnn/lib"),
                           in_folder(packages + "/nccl/lib")));
  environment_.variables.clear();
  environment_.variables["PATH"] = "/nowhere";
  EXPECT_THAT(nvidia_library_folders(environment_), testing::IsEmpty());
}

TEST_F(UserPythonTest, LibrariesForGpusAreThoseOfThePythonThenOfTheEnvironmentThenOfTheSystem) {
  const std::string packages = "/venv/lib/python3.11/site-packages/nvidia/cudnn/lib";
  program("venv/bin/python3.11");
  std::ofstream(folder_ / "venv/pyvenv.cfg") << "version = 3.11.2\n";
  for (const std::string& name :
       {packages, std::string("/apps/cuda/lib64"), std::string("/apps/nccl/lib"),
        std::string("/usr/local/cuda/lib64"), std::string("/relative/lib")})
    fs::create_directories(folder_ / name.substr(1));
  link("venv/bin/python", "python3.11");
  environment_.root = folder_;
  environment_.variables["VIRTUAL_ENV"] = "/venv";
  environment_.variables["CUDA_HOME"] = "/apps/cuda";
  environment_.variables["CUDA_PATH"] = "/apps/cuda";
  environment_.variables["CUDNN_ROOT"] = "relative";
  environment_.variables["NCCL_HOME"] = "/apps/nccl";
  EXPECT_THAT(gpu_library_folders(environment_),
              testing::ElementsAre(packages, "/apps/cuda/lib64", "/apps/nccl/lib",
                                   "/usr/local/cuda/lib64"));
  environment_.variables = {{"PATH", "/nowhere"}};
  EXPECT_THAT(gpu_library_folders(environment_), testing::ElementsAre("/usr/local/cuda/lib64"));
}

TEST_F(UserPythonTest, TheActiveEnvironmentComesBeforeThePath) {
  const std::string on_path = program("path/python3");
  const std::string launcher = program("tools/bin/python");
  program("path/deepspeed", "#!" + launcher + "\n");
  const std::string conda = program("conda/bin/python");
  const std::string venv = program("venv/bin/python");
  environment_.variables["PATH"] = in_folder("path");
  environment_.variables["CONDA_PREFIX"] = in_folder("conda");
  environment_.variables["VIRTUAL_ENV"] = in_folder("venv");
  EXPECT_EQ(find().path, venv);
  // An environment that was deleted.
  environment_.variables["VIRTUAL_ENV"] = in_folder("deleted");
  EXPECT_EQ(find().path, conda);
  environment_.variables.erase("VIRTUAL_ENV");
  EXPECT_EQ(find().path, conda);
  environment_.variables.erase("CONDA_PREFIX");
  EXPECT_EQ(find().path, launcher);
  fs::remove(folder_ / "path/deepspeed");
  EXPECT_EQ(find().path, on_path);
}

TEST_F(UserPythonTest, CondasPrefixHasNoFileOfAVenv) {
  program("conda/bin/python3.13");
  link("conda/bin/python3", "python3.13");
  environment_.variables["CONDA_PREFIX"] = in_folder("conda");
  EXPECT_EQ(find().path, in_folder("conda/bin/python3"));
  const auto python = active_python(environment_);
  ASSERT_TRUE(python);
  EXPECT_EQ(python->prefix, in_folder("conda"));
  EXPECT_EQ(python->program, "python3.13");
}

TEST_F(UserPythonTest, LinksLeadToTheNameThatHasTheVersion) {
  program("usr/bin/python3.10");
  link("usr/bin/python3", "python3.10");
  // Links as venv and virtualenv leave them.
  link("venv/bin/python3", in_folder("usr/bin/python3"));
  link("venv/bin/python", "python3");
  const UserPython python = python_at(environment_, in_folder("venv"));
  EXPECT_EQ(python.path, in_folder("venv/bin/python"));
  EXPECT_EQ(python.prefix, in_folder("venv"));
  EXPECT_EQ(python.program, "python3.10");
  EXPECT_EQ(python_minor(python.program), "3.10");
  EXPECT_EQ(python_minor("3.14.0rc2"), "3.14");
  EXPECT_EQ(python_minor("python3"), "");
}

TEST_F(UserPythonTest, LinksInACircleEnd) {
  link("venv/bin/python", "python3");
  link("venv/bin/python3", "python");
  EXPECT_EQ(python_at(environment_, in_folder("venv")).path, "");
}

TEST_F(UserPythonTest, ALauncherMayLeaveItToThePath) {
  const std::string python = program("path/python3");
  environment_.variables["PATH"] = in_folder("path");
  for (const char* line : {"#!/usr/bin/env python3\n", "#!/usr/bin/env -S python3 -u\n"}) {
    program("path/deepspeed", line);
    const auto found = python_of_script(environment_, in_folder("path/deepspeed"));
    ASSERT_TRUE(found) << line;
    EXPECT_EQ(found->path, python);
  }
}

TEST_F(UserPythonTest, ALauncherNamesItsPythonInTheSecondLineWhereThePathIsLong) {
  const std::string python = program("tools/bin/python3.12");
  const auto expect_found = [&](const std::string& launcher) {
    const auto found = python_of_script(environment_, program("launcher", launcher));
    ASSERT_TRUE(found) << launcher;
    EXPECT_EQ(found->path, python);
  };
  expect_found("#!/bin/sh\n'''exec' \"" + python + "\" \"$0\" \"$@\"\n' '''\n");
  expect_found("#!/bin/sh\n'''exec' " + python + " \"$0\" \"$@\"\n' '''\n");
}

TEST_F(UserPythonTest, AScriptOfAnotherProgramNamesNone) {
  for (const char* text : {"", "\n", "#!\n", "#!/bin/sh\n", "#!/usr/bin/env\n",
                           "#!/usr/bin/env -S\n", "#!/nowhere/bin/python3\n", "#!python3\n"})
    EXPECT_FALSE(python_of_script(environment_, program("launcher", text))) << text;
  EXPECT_FALSE(python_of_script(environment_, in_folder("missing")));
}

TEST_F(UserPythonTest, WithoutAnyItSaysHowToNameOne) {
  EXPECT_THAT(find().problem, HasSubstr("\"python\""));
}

}  // namespace
}  // namespace dstune
