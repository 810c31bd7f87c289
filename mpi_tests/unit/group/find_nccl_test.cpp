#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {
namespace {

namespace fs = std::filesystem;

TEST(NcclVersionTest, IsCodedAsItWasAndAsItIs) {
  EXPECT_EQ(version_text(22809), "2.28.9");
  EXPECT_EQ(version_text(21801), "2.18.1");
  EXPECT_EQ(version_text(2708), "2.7.8");
}

/// A variable of the environment for as long as it lives; null: none.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const old = std::getenv(name); old != nullptr) old_ = old;
    if (value == nullptr)
      unsetenv(name);
    else
      setenv(name, value, 1);
  }
  ~Variable() {
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  [[nodiscard]] std::string now() const {
    const char* const value = std::getenv(name_);
    return value == nullptr ? "not set" : value;
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(NcclVersionTest, ServesTwoRanksOfAGpuFrom230OnWhereItIsAskedTo) {
  for (const char* const value : {static_cast<const char*>(nullptr), "0", "1"}) {
    const Variable asked("NCCL_MULTI_RANK_GPU_ENABLE", value);
    EXPECT_EQ(serves_ranks_of_one_gpu(23102), asked.now() == "1");
    EXPECT_EQ(serves_ranks_of_one_gpu(23000), asked.now() == "1");
    EXPECT_FALSE(serves_ranks_of_one_gpu(22909));
    EXPECT_FALSE(serves_ranks_of_one_gpu(0));
  }
}

// NCCL takes variables for all communicators of the process: beside PyTorch they are the user's.
TEST(NcclVersionTest, VariablesAreForAProcessOfItsOwn) {
  for (const SharedWith shared_with : {SharedWith::nobody, SharedWith::pytorch}) {
    for (const char* const before : {static_cast<const char*>(nullptr), "1"}) {
      const Variable blocking("NCCL_COMM_BLOCKING", before);
      const Variable connect("NCCL_RUNTIME_CONNECT", before);
      const Variable registers("NCCL_GRAPH_REGISTER", before);
      set_variables(shared_with);
      EXPECT_EQ(blocking.now(), "not set") << "each communicator is as it was asked to be";
      const std::string others = before != nullptr                   ? before
                                 : shared_with == SharedWith::nobody ? "0"
                                                                     : "not set";
      EXPECT_EQ(connect.now(), others);
      EXPECT_EQ(registers.now(), others);
    }
  }
}

#ifdef DSTUNE_HAS_NCCL

TEST(FindNcclTest, SaysWhichFileIsMissing) {
  const FoundLibrary found = find_library("libnccl_that_nobody_has.so.2");
  EXPECT_EQ(found.library, nullptr);
  EXPECT_NE(found.description.find("libnccl_that_nobody_has.so.2"), std::string::npos)
      << found.description;
}

TEST(FindNcclTest, SaysWhichFileIsNoLibrary) {
  const fs::path path = fs::temp_directory_path() / ("nccl" + std::to_string(getpid()));
  std::ofstream(path) << "not a library";
  const FoundLibrary found = find_library(path.string());
  fs::remove(path);
  EXPECT_EQ(found.library, nullptr);
  EXPECT_NE(found.description.find(path.string()), std::string::npos) << found.description;
}

TEST(FindNcclTest, SaysWhichVersionIsTooOld) {
  const FoundLibrary found = find_library(NCCL_21403);
  EXPECT_EQ(found.library, nullptr);
  EXPECT_EQ(found.description,
            std::string(NCCL_21403) + " is NCCL 2.14.3, and 2.19.1 or newer is needed");
}

TEST(FindNcclTest, SaysWhatALibraryLacks) {
  const FoundLibrary found = find_library(NCCL_22809);
  EXPECT_EQ(found.library, nullptr);
  EXPECT_TRUE(found.description.starts_with(std::string(NCCL_22809) + " lacks ncclGetErrorString"))
      << found.description;
  EXPECT_NE(found.description.find("ncclCommSplit"), std::string::npos);
  EXPECT_EQ(find_library("libm.so.6").description, "libm.so.6 has no ncclGetVersion");
}

// Where this machine has one: that it loads without a driver, and answers what needs none.
TEST(FindNcclTest, LoadsTheMachinesOwn) {
  const FoundLibrary found = find_library();
  if (!found.library) GTEST_SKIP() << found.description;
  EXPECT_GE(found.library->version(), min_version);
  EXPECT_TRUE(found.description.starts_with(version_text(found.library->version()) + " (/"))
      << found.description;
  EXPECT_NE(found.library->error_text(Result::remote_error), "");
}

#else

TEST(FindNcclTest, SaysWhyItWasNotBuilt) {
  EXPECT_EQ(find_library().library, nullptr);
  EXPECT_TRUE(find_library().description.starts_with("not built ("));
}

#endif

}  // namespace
}  // namespace dstune::nccl
