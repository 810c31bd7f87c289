// Files as pip, conda and setuptools leave them, in a folder that stands for the machine.
#include "dstune/space/deepspeed_installation.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "folder_test.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InstallationTest : public test::FolderTest {
 protected:
  InstallationTest() {
    python_.root = folder_;
    python_.variables = {{"PATH", "/opt/bin:/usr/bin"}, {"HOME", "/home/one"}};
  }
  void write(const std::string& path, const std::string& text = "") const {
    fs::permissions(FolderTest::write(path.substr(1), text), fs::perms::owner_all);
  }
  /// A package as pip leaves it.
  void install(const std::string& folder, const std::string& version) const {
    write(folder + "/deepspeed/__init__.py");
    write(folder + "/deepspeed-" + version + ".dist-info/METADATA");
  }
  void make_venv(const std::string& prefix, const std::string& more = "") const {
    write(prefix + "/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n" + more);
    write(prefix + "/bin/python3");
  }
  /// Makes /venv the active environment, with this release in it.
  void activate_venv(const std::string& version = "", const std::string& more = "") {
    make_venv("/venv", more);
    if (!version.empty()) install("/venv/lib/python3.11/site-packages", version);
    python_.variables["VIRTUAL_ENV"] = "/venv";
  }
  /// "0.19.8 folder note"
  [[nodiscard]] std::string found() const {
    const auto found = find_deepspeed(python_);
    if (!found) return "";
    return to_text(found->version) + " " + found->folder +
           (found->note.empty() ? "" : " " + found->note);
  }

  PythonEnvironment python_;
};

TEST_F(InstallationTest, NothingIsFoundWhereNothingIs) {
  EXPECT_EQ(found(), "");
  write("/opt/bin/deepspeed");  // names no interpreter
  EXPECT_EQ(found(), "");
}

TEST_F(InstallationTest, OfTheActiveVenv) {
  activate_venv("0.19.8");
  install("/usr/lib/python3/dist-packages", "0.14.5");
  EXPECT_EQ(found(), "0.19.8 /venv/lib/python3.11/site-packages");
}

TEST_F(InstallationTest, AVenvMaySeeTheSystemsPackagesToo) {
  activate_venv("", "include-system-site-packages = true\n");
  install("/usr/lib/python3/dist-packages", "0.16.9");
  EXPECT_EQ(found(), "0.16.9 /usr/lib/python3/dist-packages");
  install("/home/one/.local/lib/python3.11/site-packages", "0.18.9");
  EXPECT_THAT(found(), testing::StartsWith("0.18.9 /home/one/.local"));
}

TEST_F(InstallationTest, OfConda) {
  write("/conda/bin/python3");
  install("/conda/lib/python3.12/site-packages", "0.17.6");
  python_.variables["CONDA_PREFIX"] = "/conda";
  EXPECT_EQ(found(), "0.17.6 /conda/lib/python3.12/site-packages");
}

// No pyvenv.cfg; the folder's name tells 3.1 from 3.10.
TEST_F(InstallationTest, OfCondaWithAnyMinorVersion) {
  python_.variables["CONDA_PREFIX"] = "/conda";
  for (const std::string minor : {"3.10", "3.11", "3.12", "3.13", "3.14"}) {
    const std::string program = "python" + minor;
    write("/conda/bin/" + program);
    fs::create_symlink(program, python_.root + "/conda/bin/python3");
    // Other versions, whose folders are older or newer.
    install("/conda/lib/python3.1/site-packages", "0.14.5");
    install("/conda/lib/python3.9/site-packages", "0.15.4");
    EXPECT_EQ(found(), "");
    install("/conda/lib/" + program + "/site-packages", "0.17.6");
    EXPECT_EQ(found(), "0.17.6 /conda/lib/" + program + "/site-packages");
    fs::remove_all(python_.root + "/conda");
  }
}

TEST_F(InstallationTest, OfTheInterpreterThatDeepspeedOnThePathNames) {
  write("/usr/bin/python3.11");
  fs::create_symlink("python3.11", python_.root + "/usr/bin/python3");
  install("/usr/local/lib/python3.11/dist-packages", "0.15.4");
  install("/usr/local/lib/python3.9/dist-packages", "0.14.5");
  // The last one is pip's where the path is too long for a first line.
  for (const char* text :
       {"#!/usr/bin/python3\nimport sys\n", "#!/usr/bin/env python3\nimport sys\n",
        "#!/bin/sh\n'''exec' \"/usr/bin/python3\" \"$0\" \"$@\"\n' '''\n"}) {
    write("/opt/bin/deepspeed", text);
    EXPECT_EQ(found(), "0.15.4 /usr/local/lib/python3.11/dist-packages") << text;
  }
}

TEST_F(InstallationTest, OutsideAVenvTheUsersFolderComesFirst) {
  write("/opt/bin/deepspeed", "#!/usr/bin/python3.11\n");
  write("/usr/bin/python3.11");
  install("/usr/lib/python3/dist-packages", "0.16.9");
  install("/home/one/.local/lib/python3.11/site-packages", "0.18.9");
  EXPECT_EQ(found(),
            "0.18.9 /home/one/.local/lib/python3.11/site-packages 0.16.9 in "
            "/usr/lib/python3/dist-packages comes behind it on Python's path");
  python_.variables["PYTHONNOUSERSITE"] = "1";
  EXPECT_EQ(found(), "0.16.9 /usr/lib/python3/dist-packages");
}

TEST_F(InstallationTest, PythonpathComesBeforeAll) {
  activate_venv("0.19.8");
  python_.variables["PYTHONPATH"] = ":/src/DeepSpeed";
  write("/src/DeepSpeed/deepspeed/__init__.py");
  write("/src/DeepSpeed/version.txt", "0.19.9\n");
  EXPECT_THAT(found(), testing::StartsWith("0.19.9 /src/DeepSpeed 0.19.8 in /venv"));
}

TEST_F(InstallationTest, TheInterpreterOfTheJobDecides) {
  activate_venv("0.19.8");
  make_venv("/other");
  install("/other/lib/python3.11/site-packages", "0.16.9");
  for (const char* interpreter : {"/other", "/other/bin/python3"}) {
    python_.interpreter = interpreter;
    EXPECT_EQ(found(), "0.16.9 /other/lib/python3.11/site-packages");
  }
}

TEST_F(InstallationTest, TwoAnswersAreRefusedOnlyWhereTheyDiffer) {
  activate_venv("0.19.8");
  write("/opt/bin/deepspeed", "#!/usr/bin/python3.11\n");
  write("/usr/bin/python3.11");
  install("/usr/lib/python3/dist-packages", "0.19.8+cafe");
  EXPECT_EQ(found(), "0.19.8 /venv/lib/python3.11/site-packages");
  fs::remove_all(python_.root + "/usr/lib");
  install("/usr/lib/python3/dist-packages", "0.16.9");
  EXPECT_THAT(
      [&] { (void)find_deepspeed(python_); },
      testing::ThrowsMessage<Error>(testing::AllOf(
          HasSubstr("0.19.8 in /venv/lib/python3.11/site-packages"),
          HasSubstr("/opt/bin/deepspeed"), HasSubstr("0.16.9 in /usr/lib/python3/dist-packages"))));
}

TEST_F(InstallationTest, ReadsWhatSetuptoolsAndEditableInstallationsLeave) {
  activate_venv();
  const std::string folder = "/venv/lib/python3.11/site-packages";
  const auto expect = [&](const std::string& version) {
    EXPECT_EQ(found(), version + " " + folder);
    fs::remove_all(python_.root + folder);
  };
  write(folder + "/deepspeed-0.14.5-py3.11.egg-info/PKG-INFO");
  expect("0.14.5");
  write("/tree/deepspeed/__init__.py");
  write("/tree/version.txt", "0.19.7\n");
  write(folder + "/deepspeed-0.19.6.dist-info/direct_url.json",
        R"({"url": "file:///tree", "dir_info": {"editable": true}})");
  expect("0.19.7");
  write(folder + "/__editable__.deepspeed-0.19.6.pth", "/tree\n");
  expect("0.19.7");
  write(folder + "/easy-install.pth", "/elsewhere\n/tree\n");
  expect("0.19.7");
  write(folder + "/deepspeed.egg-link", "/tree\n.\n");
  expect("0.19.7");
  // Two installations left these; the package itself says which it is.
  install(folder, "0.19.6");
  install(folder, "0.18.9");
  write(folder + "/deepspeed/git_version_info_installed.py", "version='0.18.9'\ngit_hash='x'\n");
  expect("0.18.9");
  // Another package of a similar name.
  write(folder + "/deepspeed_mii-0.3.3.dist-info/METADATA");
  EXPECT_EQ(found(), "");
}

}  // namespace
}  // namespace dstune
