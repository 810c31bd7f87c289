#include "dstune/model/parameter_table.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

TEST(ParameterTableTest, CountsThePublishedModels) {
  EXPECT_EQ(parameter_count(preset("gpt2")), 124'439'808);
  EXPECT_EQ(parameter_count(preset("gpt2-medium")), 354'823'168);
  EXPECT_EQ(parameter_count(preset("gpt2-large")), 774'030'080);
  EXPECT_EQ(parameter_count(preset("gpt2-xl")), 1'557'611'200);
  EXPECT_EQ(parameter_count(preset("tinyllama-1.1b")), 1'100'048'384);
  EXPECT_EQ(parameter_count(preset("llama-7b")), 6'738'415'616);
  EXPECT_EQ(parameter_count(preset("llama-2-70b")), 68'976'648'192);
  EXPECT_EQ(parameter_count(preset("llama-3-8b")), 8'030'261'248);
}

TEST(ParameterTableTest, LiesLayerByLayerWithoutGaps) {
  for (const char* name : {"gpt2", "llama-3-8b"}) {
    const ModelSpec model = preset(name);
    const ParameterTable table(model);
    ASSERT_EQ(table.num_units(), model.num_layers + 2);
    std::int64_t offset = 0;
    int index = 0;
    for (int unit = 0; unit < table.num_units(); ++unit) {
      const auto [first, last] = table.unit_range(unit);
      EXPECT_EQ(first, index);
      std::int64_t elements = 0;
      for (; index < last; ++index) {
        const Parameter& parameter = table.all()[static_cast<std::size_t>(index)];
        EXPECT_EQ(parameter.unit, unit);
        EXPECT_EQ(parameter.offset, offset);
        EXPECT_EQ(table.find(unit, parameter.role), index);
        offset += parameter.elements();
        elements += parameter.elements();
      }
      EXPECT_EQ(table.unit_elements(unit), elements);
    }
    EXPECT_EQ(index, static_cast<int>(table.all().size()));
    EXPECT_EQ(table.total_elements(), offset);
  }
}

TEST(ParameterTableTest, FindsNoRoleThatAUnitLacks) {
  const ParameterTable llama(preset("llama-7b"));
  EXPECT_EQ(llama.find(0, ParameterRole::position_embedding), -1);
  EXPECT_EQ(llama.find(1, ParameterRole::qkv_bias), -1);
  EXPECT_EQ(ParameterTable(preset("gpt2")).find(13, ParameterRole::head_weight), -1);
  EXPECT_GE(llama.find(33, ParameterRole::head_weight), 0);
}

TEST(ParameterTableTest, ScalesResidualProjectionsOfGpt2Alone) {
  const auto deviation = [](const char* name, ParameterRole role) {
    const ParameterTable table(preset(name));
    return table.all()[static_cast<std::size_t>(table.find(1, role))].standard_deviation;
  };
  using enum ParameterRole;
  EXPECT_DOUBLE_EQ(deviation("gpt2", qkv_weight), 0.02);
  EXPECT_DOUBLE_EQ(deviation("gpt2", projection_weight), 0.02 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(deviation("gpt2", fc_projection_weight), 0.02 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(deviation("llama-7b", projection_weight), 0.02);
  EXPECT_DOUBLE_EQ(deviation("llama-7b", fc_projection_weight), 0.02);
}

TEST(ParameterTableTest, StartsNormsAtOneAndBiasesAtZero) {
  const ParameterTable table(preset("gpt2"));
  for (const Parameter& parameter : table.all()) {
    const bool bias = parameter.name.ends_with(".bias");
    const bool norm = parameter.name.find("ln_") != std::string::npos;
    const InitialValue expected =
        bias ? InitialValue::zero : (norm ? InitialValue::one : InitialValue::normal);
    EXPECT_EQ(parameter.initial, expected) << parameter.name;
  }
}

TEST(ParameterTableTest, NamesAsHuggingFace) {
  const ParameterTable table(preset("gpt2"));
  EXPECT_EQ(table.all().front().name, "wte.weight");
  EXPECT_EQ(table.all()[static_cast<std::size_t>(table.find(4, ParameterRole::qkv_weight))].name,
            "h.3.attn.c_attn.weight");
}

TEST(ParameterTableTest, RefusesAModelWithoutLayers) {
  ModelSpec model = preset("gpt2");
  model.num_layers = 0;
  EXPECT_THROW(ParameterTable{model}, LogicError);
}

TEST(FlopsTest, CountsSixForEachMultipliedParameterAndCausalAttention) {
  // 124,439,808 − 1024·768 positions; 6·12·768·1024 for attention.
  EXPECT_DOUBLE_EQ(flops_per_token(preset("gpt2"), 1024),
                   6.0 * 123'653'376 + 6.0 * 12 * 768 * 1024);
  // The looked-up table of an untied model takes no part.
  EXPECT_DOUBLE_EQ(flops_per_token(preset("llama-7b"), 2048),
                   6.0 * (6'738'415'616.0 - 32000.0 * 4096) + 6.0 * 32 * 4096 * 2048);
}

}  // namespace
}  // namespace dstune
