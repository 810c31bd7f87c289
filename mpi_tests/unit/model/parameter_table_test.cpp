#include "dstune/model/parameter_table.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "choices.hpp"
#include "dstune/base/error.hpp"
#include "golden.hpp"

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

/// "family unit" → all names of the unit, of a model with 32 layers.
std::string names_of_unit(const std::string& input) {
  const std::size_t space = input.find(' ');
  ModelSpec model = preset("llama-7b");
  model.family = from_text<ModelFamily>(input.substr(0, space)).value();
  model.architecture = architecture_of(model.family);
  const ParameterTable table(model);
  const auto [first, last] = table.unit_range(std::stoi(input.substr(space)));
  std::string names;
  for (int index = first; index < last; ++index)
    names += (names.empty() ? "" : " ") + table.all()[static_cast<std::size_t>(index)].name;
  return names;
}

TEST(ParameterTableTest, NamesAsHuggingFace) {
  test::expect_golden(DSTUNE_MODEL_DATA "/parameter_names.txt", [](const std::string& input) {
    return test::answers_to(input, names_of_unit);
  });
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

TEST(FlopsTest, AWindowCountsTheMeanOfPositionsInIt) {
  ModelSpec model = preset("llama-7b");
  const double full = flops_per_token(model, 2048);
  model.attention_window = 2048;
  EXPECT_DOUBLE_EQ(flops_per_token(model, 2048), full);
  model.attention_window = 512;
  model.full_layers = {0, 31};
  // 512 of 2048 positions are on the way up to the window: 512/2 of them on average, then 512.
  const double windowed = (512.0 * 256 + 1536.0 * 512) / 2048;
  EXPECT_DOUBLE_EQ(full - flops_per_token(model, 2048), 12.0 * 30 * 4096 * (1024 - windowed));
}

TEST(FlopsTest, AttentionInBothDirectionsCountsWhole) {
  ModelSpec model = preset("gpt2");
  model.family = ModelFamily::bert;
  model.architecture = architecture_of(model.family);
  // Positions and token types are looked up, the token embedding is the head, too.
  const double multiplied = static_cast<double>(parameter_count(model)) - (1024 + 2) * 768.0;
  EXPECT_DOUBLE_EQ(flops_per_token(model, 512), 6 * multiplied + 12.0 * 12 * 768 * 512);
}

TEST(FlopsTest, APoolerAndItsClassifierCountOnceASequence) {
  ModelSpec model = preset("gpt2");
  model.family = ModelFamily::bert;
  model.architecture = architecture_of(model.family);
  model.architecture.objective = Objective::token_class;
  model.tie_embeddings = false;
  model.labels = 3;
  const double of_tokens = flops_per_token(model, 512);
  model.architecture.objective = Objective::sequence_class;
  const double classifier = 3 * 768.0 + 3;
  const double pooler = 768.0 * 768 + 768;
  EXPECT_DOUBLE_EQ(of_tokens - flops_per_token(model, 512),
                   6 * (classifier - (classifier + pooler) / 512));
}

}  // namespace
}  // namespace dstune
