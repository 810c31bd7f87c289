/// Configurations that a model can not be trained with: data/violations.txt. An input names the
/// model, the ranks, and members of the configuration and of the model.
#include <array>

#include <gtest/gtest.h>

#include "choices.hpp"
#include "dstune/base/json.hpp"
#include "golden.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

ModelSpec model_named(const json::Value& given) {
  const auto name = given.at("model").get<std::string>();
  ModelSpec model = name == "gpt2"   ? test::tiny_gpt2()
                    : name == "even" ? test::even_gpt2(4)
                    : name == "wide" ? test::wide_gpt2()
                                     : test::tiny_model(from_text<ModelFamily>(name).value());
  model.hidden_size = given.value("hidden_size", model.hidden_size);
  model.head_size = given.value("head_size", model.head_size);
  model.vocab_size = given.value("vocab_size", model.vocab_size);
  return model;
}

std::string violation_of(const std::string& input) {
  const json::Value given = json::Value::parse(input);
  TrainingConfig config = test::tiny_config(3);
  for_each_member(config, [&]<class Member>(const char* name, Member& member) {
    if (!given.contains(name)) return;
    if constexpr (std::is_enum_v<Member>)
      member = from_text<Member>(given.at(name).get<std::string>()).value();
    else
      given.at(name).get_to(member);
  });
  std::string found = partition_violation(config, given.at("ranks"));
  if (found.empty()) found = model_violation(model_named(given), config, given.at("ranks"));
  return found.empty() ? "none" : found;
}

TEST(ViolationsTest, AreSaid) {
  test::expect_golden(DSTUNE_PLAN_DATA "/violations.txt", [](const std::string& input) {
    return test::answers_to(input, violation_of);
  });
}

/// The number that a message ends with.
std::int64_t number_of(const std::string& message) {
  const std::string words = ": write ";
  const std::size_t at = message.rfind(words);
  return at == std::string::npos ? -1 : std::stoll(message.substr(at + words.size()));
}

// With one buffer fewer DeepSpeed fails, too.
TEST(ViolationsTest, TheBuffersThatAreNamedDo) {
  int named = 0;
  for (int bits = 0; bits < 128; ++bits) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_param = OffloadDevice::nvme;
    config.offload_optimizer = OffloadDevice::cpu;
    config.disk.parameter_buffer_size = 1'100'000;
    config.disk.parameter_buffers = bits % 5;
    config.disk.parameters_in_memory = (bits & 1) != 0 ? 400'000 : 0;
    config.recompute = (bits & 2) != 0 ? Recompute::block : Recompute::none;
    config.stage3_prefetch_bucket_size =
        std::array{0, 1'200'000, 5'000'000, 50'000'000}[bits / 4 % 4];
    config.stage3_max_reuse_distance = (bits & 16) != 0 ? 1'000'000'000 : 0;
    config.accumulation_steps = 1 + bits / 32 % 2;
    const int group_size = 1 + bits / 64;
    const ModelSpec model = test::wide_gpt2();
    const std::string violation = model_violation(model, config, group_size);
    if (violation.empty() || violation.find("runs out of buffers") == std::string::npos) continue;
    ++named;
    const std::int64_t number = number_of(violation);
    EXPECT_GT(number, config.disk.parameter_buffers);
    config.disk.parameter_buffers = number;
    EXPECT_EQ(model_violation(model, config, group_size), "") << violation;
    config.disk.parameter_buffers = number - 1;
    EXPECT_NE(model_violation(model, config, group_size), "") << violation;
  }
  EXPECT_GE(named, 30);
}

TEST(ViolationsTest, TheSizeOfABufferThatIsNamedDoes) {
  TrainingConfig config = test::tiny_config(3);
  config.offload_param = OffloadDevice::nvme;
  config.offload_optimizer = OffloadDevice::cpu;
  config.disk.parameter_buffer_size = 1000;
  config.disk.parameter_buffers = 100;
  config.disk.parameter_buffer_size = number_of(model_violation(test::wide_gpt2(), config, 2));
  EXPECT_EQ(model_violation(test::wide_gpt2(), config, 2), "");
  --config.disk.parameter_buffer_size;
  EXPECT_NE(model_violation(test::wide_gpt2(), config, 2), "");
}

}  // namespace
}  // namespace dstune
