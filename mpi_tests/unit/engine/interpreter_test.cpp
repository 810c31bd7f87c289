// Who asks for a Python, and what it is started with.
#include "dstune/instrument/engine/interpreter.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace dstune::engine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InterpreterTest : public testing::Test {
 protected:
  InterpreterTest() : folder(fs::temp_directory_path() / ("engine" + std::to_string(getpid()))) {
    fs::create_directories(folder);
  }
  ~InterpreterTest() override { fs::remove_all(folder); }

  std::string space(const std::string& text) {
    std::ofstream(folder / "space.json") << text;
    return folder / "space.json";
  }
  fs::path folder;
};

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

TEST_F(InterpreterTest, ATargetThatMeasuresAsksForPython) {
  const auto python = [&](const std::string& text) {
    const auto request = engine_request(space(text));
    return request ? request->python : "none";
  };
  EXPECT_EQ(python(R"({"dstune": {"target": {"measure": true, "python": "venv"}}})"), "venv");
  EXPECT_EQ(python(R"({"dstune": {"target": {"measure": true}}})"), "");
  EXPECT_EQ(python(R"({"dstune": {"target": {"measure": false}}})"), "none");
  EXPECT_EQ(python(R"({"dstune": {"target": "self"}})"), "none");
  EXPECT_EQ(python(R"({"dstune": {"verify": {"python": "a"}, "target": {"measure": true}}})"), "a");
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
