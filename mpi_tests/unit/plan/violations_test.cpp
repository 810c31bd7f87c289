/// Configurations that a model can not be trained with: data/violations.txt. An input names the
/// model, the ranks, and members of the configuration and of the model.
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

}  // namespace
}  // namespace dstune
