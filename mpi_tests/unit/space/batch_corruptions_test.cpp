/// Wrong batch sizes, as DeepSpeed judged them (mpi_tests/unit/core/data): what it refuses is
/// refused here, at the key.

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

class BatchCorruptionsTest : public SpaceTest {};

TEST_F(BatchCorruptionsTest, WhatDeepSpeedRefusesIsRefusedAtTheKey) {
  std::ifstream lines(DSTUNE_CORRUPTIONS);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const auto header = json::Value::parse(line);
  default_ranks_ = header["world_size"];
  int refused = 0;
  int derived = 0;
  while (std::getline(lines, line)) {
    const auto corruption = json::Value::parse(line);
    if (corruption["refused"].is_null() || corruption["set"].size() != 1) continue;
    const auto change = corruption["set"].begin();
    const std::string pointer = change.key();
    const json::Value& value = change.value();
    if (pointer != "/train_batch_size" && pointer != "/train_micro_batch_size_per_gpu" &&
        pointer != "/gradient_accumulation_steps")
      continue;
    // Derived here, where DeepSpeed leaves it to the trainer. A list is candidates; 2.0 is written
    // into the answer as 2.
    const bool is_whole = value.is_number_float() && std::trunc(value.get<double>()) == value &&
                          value.get<double>() >= 1 && value.get<double>() < 1e6;
    if (value == "auto" || value.is_null() || (value.is_array() && !value.empty()) || is_whole) {
      ++derived;
      continue;
    }
    json::Value document = header["bases"][corruption["base"].get<std::string>()];
    document[json::Value::json_pointer(pointer)] = value;
    const auto found = problems(document.dump());
    ASSERT_FALSE(found.empty()) << line;
    EXPECT_EQ(found.front().pointer, pointer) << line;
    ++refused;
  }
  EXPECT_GE(refused, 20);
  EXPECT_LE(derived, 9);
}

}  // namespace
}  // namespace dstune
