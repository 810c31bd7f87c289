/// Against the modules of Hugging Face's models themselves (scripts/tools/huggingface_modules.py).

#include "dstune/model/module_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/json.hpp"

namespace dstune {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;

/// Two layers of a family, or the model of a config.
ModelSpec model_of(const std::string& name) {
  if (name.starts_with('{')) return import_huggingface(json::Document::parse(name, "config.json"));
  ModelSpec model;
  model.family = from_text<ModelFamily>(name).value();
  model.architecture = architecture_of(model.family);
  model.num_layers = 2;
  return model;
}

TEST(ModuleNamesTest, AreThoseOfTransformers) {
  const auto document = json::Document::read(DSTUNE_MODULES);
  ASSERT_EQ(document.root().size(), 17U);
  for (const auto& [family, modules] : document.root().items()) {
    const ModelSpec model = model_of(family);
    Names theirs, ours;
    for (const auto& module : modules) theirs.emplace_back(module.at(0), module.at(1));
    for (const NamedModule& module : named_modules(model))
      ours.emplace_back(module.name, module.class_name);
    EXPECT_EQ(ours, theirs) << family;
  }
}

std::vector<std::string> selected(const LeafModules& leaves) {
  std::vector<std::string> names;
  ModelSpec model = preset("gpt2");
  model.num_layers = 2;
  for (const NamedModule& module : selected_modules(model, leaves)) names.push_back(module.name);
  return names;
}

TEST(ModuleNamesTest, AreSelectedByClassNameAndEnd) {
  using testing::UnorderedElementsAre;
  EXPECT_THAT(selected({}), testing::IsEmpty());
  EXPECT_THAT(selected({"GPT2MLP\n", "", ""}),
              UnorderedElementsAre("transformer.h.0.mlp", "transformer.h.1.mlp"));
  EXPECT_THAT(selected({"torch.nn.modules.sparse.Embedding\n", "", ""}),
              UnorderedElementsAre("transformer.wte", "transformer.wpe"));
  EXPECT_THAT(selected({"transformers.models.gpt2.modeling_gpt2.GPT2Block\n", "", ""}),
              UnorderedElementsAre("transformer.h.0", "transformer.h.1"));
  EXPECT_THAT(selected({"modeling_gpt2.GPT2MLP\n", "", ""}), testing::IsEmpty());
  EXPECT_THAT(selected({"", "h.0\ntransformer.h.1\n", ""}),
              UnorderedElementsAre("transformer.h.1"));
  EXPECT_THAT(selected({"", "", "1.mlp\nln_f\n"}),
              UnorderedElementsAre("transformer.h.1.mlp", "transformer.ln_f"));
  EXPECT_THAT(selected({"GPT2MLP\n", "transformer.h.0.mlp\n", "0.mlp\n"}),
              UnorderedElementsAre("transformer.h.0.mlp", "transformer.h.1.mlp"));
  EXPECT_THAT(selected({"", "\n", ""}), UnorderedElementsAre(""));  // the whole model
}

}  // namespace
}  // namespace dstune
