// Which Python a job becomes, by file names alone.
#include "dstune/engine/interpreter.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace dstune::engine {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class InterpreterTest : public testing::Test {
 protected:
  InterpreterTest() : folder(fs::temp_directory_path() / ("engine" + std::to_string(getpid()))) {
    fs::create_directories(folder);
  }
  ~InterpreterTest() override { fs::remove_all(folder); }

  std::string program(const std::string& name, const std::string& content = "#!/bin/sh\n") {
    const fs::path path = folder / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }
  std::string space(const std::string& text) {
    std::ofstream(folder / "space.json") << text;
    return folder / "space.json";
  }
  Interpreter find(const std::string& given = "") {
    return find_interpreter(given, folder, [this](const char* name) {
      const auto found = variables.find(name);
      return found != variables.end() ? std::optional(found->second) : std::nullopt;
    });
  }

  fs::path folder;
  std::map<std::string, std::string> variables{{"PATH", "/nowhere"}};
};

TEST_F(InterpreterTest, AnEnvironmentThatIsNamedIsTaken) {
  const std::string python = program("venv/bin/python");
  EXPECT_EQ(find("venv").path, python);
  EXPECT_EQ(find("venv/bin/python").path, python);
  EXPECT_EQ(find((folder / "venv").string()).path, python);
}

TEST_F(InterpreterTest, WhatIsNamedAndIsNoneIsRefusedWithAHint) {
  fs::create_directories(folder / "empty");
  EXPECT_THAT(find("empty").problem, HasSubstr("has no bin/python"));
  EXPECT_THAT(find("missing").problem, HasSubstr("is no program"));
}

TEST_F(InterpreterTest, TheActiveEnvironmentComesBeforeThePath) {
  program("path/python3");
  const std::string launcher = program("tools/bin/python");
  program("path/deepspeed", "#!" + launcher + "\n");
  const std::string conda = program("conda/bin/python");
  const std::string venv = program("venv/bin/python");
  variables["PATH"] = folder / "path";
  variables["CONDA_PREFIX"] = folder / "conda";
  variables["VIRTUAL_ENV"] = folder / "venv";
  EXPECT_EQ(find().path, venv);
  variables.erase("VIRTUAL_ENV");
  EXPECT_EQ(find().path, conda);
  variables.erase("CONDA_PREFIX");
  EXPECT_EQ(find().path, launcher);
  fs::remove(folder / "path/deepspeed");
  EXPECT_EQ(find().path, (folder / "path/python3").string());
}

TEST_F(InterpreterTest, ALauncherMayLeaveItToThePath) {
  program("path/deepspeed", "#!/usr/bin/env python3\n");
  const std::string python = program("path/python3");
  variables["PATH"] = folder / "path";
  EXPECT_EQ(find().path, python);
}

TEST_F(InterpreterTest, WithoutAnyItSaysHowToNameOne) {
  EXPECT_THAT(find().problem, HasSubstr("\"python\""));
}

TEST_F(InterpreterTest, OnlyTheWorkloadDeepspeedAsksForPython) {
  const auto asks = [&](const std::string& text) {
    return engine_request(space(text)).has_value();
  };
  EXPECT_TRUE(asks(R"({"dstune": {"workload": {"type": "deepspeed"}}})"));
  EXPECT_TRUE(asks(R"({"dstune": {"workload": "DeepSpeed"}} // comment)"));
  EXPECT_FALSE(asks(R"({"dstune": {"workload": {"type": "plugin"}}})"));
  EXPECT_FALSE(asks(R"({"dstune": {"workload": "transformer"}})"));
  EXPECT_FALSE(asks(R"({"dstune": {}})"));
  EXPECT_FALSE(asks("{}"));
  EXPECT_FALSE(asks("[1"));
  EXPECT_FALSE(engine_request(folder / "missing.json"));
}

TEST_F(InterpreterTest, VerifyAsksForPythonBesideAnyWorkload) {
  const auto python = [&](const std::string& text, bool verify = false) {
    const auto request = engine_request(space(text), verify);
    return request ? request->python : "none";
  };
  EXPECT_EQ(python(R"({"dstune": {"verify": {"python": "venv"}}})"), "venv");
  EXPECT_EQ(python(R"({"dstune": {"verify": {}}})"), "");
  EXPECT_EQ(python(R"({"dstune": {"model": "gpt2"}})"), "none");
  EXPECT_EQ(python(R"({"dstune": {"model": "gpt2"}})", true), "");
  EXPECT_EQ(python("{}", true), "");
  EXPECT_EQ(python("[1", true), "none");
}

TEST_F(InterpreterTest, ARequestNamesPythonAndItsFolder) {
  const auto request =
      engine_request(space(R"({"dstune": {"workload": {"type": "deepspeed", "python": "venv"}}})"));
  ASSERT_TRUE(request);
  EXPECT_EQ(request->python, "venv");
  EXPECT_EQ(request->folder, folder.string());
}

TEST_F(InterpreterTest, ThePackageIsPartOfTheProgram) {
  ASSERT_NE(module_source("dstune_engine"), nullptr);
  ASSERT_NE(module_source("dstune_engine.main"), nullptr);
  EXPECT_THAT(module_source("dstune_engine.main"), HasSubstr("def run(library, argv)"));
  EXPECT_EQ(module_source("dstune_engine.absent"), nullptr);
  EXPECT_EQ(module_source("os"), nullptr);
}

TEST_F(InterpreterTest, ThePythonsCommandLineHasTheProgramsOwnAtItsEnd) {
  const auto command = python_command("/venv/bin/python", "/lib.so", {"dstune-mpi", "space.json"});
  ASSERT_EQ(command.size(), 6U);
  EXPECT_THAT(command[2], HasSubstr("dstune_engine"));
  EXPECT_EQ(command[1], "-c");
  EXPECT_EQ(command[3], "/lib.so");
  EXPECT_EQ(command.back(), "space.json");
}

}  // namespace
}  // namespace dstune::engine
