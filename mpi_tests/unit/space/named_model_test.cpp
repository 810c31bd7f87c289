/// Models by a file, a folder, a preset's name, and a name of the hub.
#include <filesystem>

#include <gmock/gmock.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NamedModelTest : public SpaceTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "tiny");
    std::filesystem::create_directories(folder_ / "empty");
    std::filesystem::create_directories(folder_ / "owner/known");
    const std::string config =
        R"({"model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": 99})";
    write("tiny/config.json", config);
    write("owner/known/config.json", config);
  }
  /// What is said of a model that the command line names, and of one that the document names.
  std::vector<std::string> of_option(const std::string& name) {
    overrides_.model = name;
    return texts("{}");
  }
  std::vector<std::string> of_document(const std::string& name) {
    overrides_.model.reset();
    return texts(R"({"dstune": {"model": )" + json::Value(name).dump() + "}}");
  }

 private:
  std::vector<std::string> texts(const std::string& document) {
    std::vector<std::string> found;
    for (const Problem& problem : problems(document)) found.push_back(problem.text());
    return found;
  }
};

TEST_F(NamedModelTest, AFolderStandsForItsConfig) {
  overrides_.model = (folder_ / "tiny").string();
  EXPECT_EQ(job("{}").model.hidden_size, 48);
  overrides_.model = (folder_ / "tiny/").string();
  EXPECT_EQ(job("{}").model.hidden_size, 48);
  overrides_.model.reset();
  EXPECT_EQ(job(R"({"dstune": {"model": "tiny"}})").model.hidden_size, 48);
  EXPECT_EQ(job(R"({"dstune": {"model": {"hf_config": "tiny"}}})").model.hidden_size, 48);
  // A folder comes before the hub.
  EXPECT_EQ(job(R"({"dstune": {"model": "owner/known"}})").model.hidden_size, 48);
}

TEST_F(NamedModelTest, AFolderWithoutAConfigSaysSo) {
  EXPECT_THAT(of_document("empty"),
              ElementsAre(AllOf(HasSubstr("/dstune/model: the folder "),
                                HasSubstr("/empty has no config.json: name the one"))));
  EXPECT_THAT(of_option((folder_ / "empty").string()),
              ElementsAre(AllOf(HasSubstr("--model: the folder "), HasSubstr("no config.json"))));
  EXPECT_THAT(of_option("nowhere/"), ElementsAre(HasSubstr("can not read nowhere/")));
  for (const char* const name : {"/nowhere/model", "./model", "../up/model", "a/b/c"})
    EXPECT_THAT(of_option(name), ElementsAre(HasSubstr(std::string("can not read ") + name)));
}

TEST_F(NamedModelTest, ANameOfTheHubSaysHowToGetItsConfig) {
  for (const auto& said :
       {of_option("some-Owner/Model_1.5-7b"), of_document("some-Owner/Model_1.5-7b")})
    EXPECT_THAT(
        said, ElementsAre(AllOf(
                  HasSubstr("neither a preset nor a file"),
                  HasSubstr("\"hf download some-Owner/Model_1.5-7b config.json --local-dir "
                            "Model_1.5-7b\""),
                  HasSubstr("name Model_1.5-7b/config.json"), Not(HasSubstr("take the preset")))));
  EXPECT_THAT(of_option("openai-community/GPT2-medium"),
              ElementsAre(HasSubstr("or take the preset gpt2-medium")));
  // These can be no names of the hub.
  for (const char* const name : {"../up/model", "a/b/c", "./model", "a/", "a b/c", "$HOME/model"})
    EXPECT_THAT(of_option(name), ElementsAre(Not(HasSubstr("hf download")))) << name;
}

TEST_F(NamedModelTest, APresetThatIsMistypedIsNamed) {
  EXPECT_THAT(of_option("gpt2-mediun"), ElementsAre(HasSubstr("did you mean gpt2-medium?")));
  EXPECT_THAT(of_option("LLAMA-3-8b"), ElementsAre(HasSubstr("did you mean llama-3-8b?")));
  EXPECT_THAT(of_option("bert-base"),
              ElementsAre(AllOf(Not(HasSubstr("did you mean")), HasSubstr("there are distilgpt2"),
                                HasSubstr("named by its config.json"))));
  EXPECT_THAT(of_option("gpt2-medium"), IsEmpty());
}

}  // namespace
}  // namespace dstune
