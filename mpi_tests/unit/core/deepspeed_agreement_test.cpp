/// The reader against releases of DeepSpeed: data/deepspeed_<version>_corruptions.jsonl holds
/// configs that differ from a valid one in one key or in a pair, and what DeepSpeed said of each.

#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config_cases.hpp"

namespace dstune {
namespace {

/// One line of the data.
struct Case {
  json::Value config;
  std::vector<std::string> pointers;  ///< the keys that are not as in the base
  std::vector<json::Value> values;    ///< theirs
  std::string refused;                ///< "config", "engine" or "step"; empty: accepted
  std::string text;                   ///< the line
  const KnobTable* table = nullptr;
};

json::Value with_value(json::Value config, const std::string& pointer, const json::Value& value) {
  // A value in the way of a section gives way, as in the data's writer.
  for (std::size_t slash = pointer.find('/', 1); slash != pointer.npos;
       slash = pointer.find('/', slash + 1)) {
    json::Value& section = config[json::Value::json_pointer(pointer.substr(0, slash))];
    if (!section.is_object()) section = json::Value::object();
  }
  config[json::Value::json_pointer(pointer)] = value;
  return config;
}

std::vector<Case> read_cases(Version version) {
  std::ifstream file(
      fmt::format(DSTUNE_CORE_DATA "/deepspeed_{}_corruptions.jsonl", to_text(version)));
  std::string line;
  std::getline(file, line);
  const json::Value bases = json::Value::parse(line).at("bases");
  std::vector<Case> cases;
  while (std::getline(file, line)) {
    const json::Value content = json::Value::parse(line);
    Case read;
    read.text = line;
    read.table = &knob_table(version);
    read.config = bases.at(content.at("base").get<std::string>());
    for (const auto& [pointer, value] : content.at("set").items()) {
      read.config = with_value(read.config, pointer, value);
      read.pointers.push_back(pointer);
      read.values.push_back(value);
    }
    if (content.at("refused").is_string()) read.refused = content.at("refused");
    cases.push_back(std::move(read));
  }
  return cases;
}

bool is_at_or_below(std::string_view pointer, std::string_view section) {
  return pointer == section ||
         (pointer.starts_with(section) && pointer.substr(section.size()).starts_with('/'));
}

bool is_about(const Case& said, std::initializer_list<std::string_view> pointers) {
  return std::ranges::any_of(pointers, [&](std::string_view pointer) {
    return is_at_or_below(said.pointers.front(), pointer);
  });
}

/// Sizes of the batch are the space's to judge.
bool is_of_batch(const Case& said) {
  return is_about(said, {"/train_batch_size", "/train_micro_batch_size_per_gpu",
                         "/gradient_accumulation_steps"});
}

std::vector<Problem> problems_of(const Case& said) {
  return read_config(said.config.dump(), *said.table).problems;
}

/// The key, something in it, or the section it stands in.
bool names(const Problem& problem, const Case& said) {
  for (const std::string& pointer : said.pointers) {
    const std::string section = pointer.substr(0, pointer.find('/', 1));
    if (is_at_or_below(problem.pointer, pointer) || is_at_or_below(pointer, problem.pointer) ||
        (said.pointers.size() > 1 && is_at_or_below(problem.pointer, section)))
      return true;
  }
  if (problem.message.find("can not both be enabled") != std::string::npos) return true;
  return problem.pointer == "/scheduler/type" && said.pointers[0].starts_with("/scheduler/params");
}

/// A place where the two may differ, with the reason and the number of lines.
struct Difference {
  const char* why;
  bool (*applies)(const Case&, const std::vector<Problem>&);
  int lines = 0;
};

bool has_message(const std::vector<Problem>& problems, std::string_view words) {
  return std::any_of(problems.begin(), problems.end(), [words](const Problem& problem) {
    return problem.message.find(words) != std::string::npos;
  });
}

/// The value has another type than its row, in a section that DeepSpeed reads without looking.
bool is_unlooked_at(const Case& said, const Problem& problem) {
  const Knob* const knob = said.table->find_knob(problem.pointer);
  if (knob == nullptr || said.table->is_converted(*knob) || knob->model) return false;
  const json::Value& value = said.config.at(json::Value::json_pointer(problem.pointer));
  switch (knob->type) {
    case KnobType::boolean:
      return !value.is_boolean();
    case KnobType::integer:
      return !value.is_number() || value != std::floor(value.get<double>());
    case KnobType::number:
      return !value.is_number();
    case KnobType::text:
      return !value.is_string();
    case KnobType::list:
      return !value.is_array();
    case KnobType::object:
      return !value.is_object();
  }
  return false;
}

std::vector<Difference> refused_here_alone(bool is_old) {
  std::vector<Difference> differences = {
      {"what the step does not do is refused by name",
       [](const Case&, const auto& problems) { return has_message(problems, "not built in"); }},
      {"an offloaded optimizer at stage 0: DeepSpeed reads it, and its step fails on a device",
       [](const Case&, const auto& problems) {
         return has_message(problems, "fails in DeepSpeed at stage 0");
       }},
      {"DeepSpeed takes a value of another type where it does not look, and fails or errs later",
       [](const Case& said, const auto& problems) {
         return is_unlooked_at(said, problems.front());
       }},
      {"integers of more than 64 bits",
       [](const Case& said, const auto&) {
         return said.values.front().is_number() && said.values.front() >= 9223372036854775808U;
       }},
      {"negative clipping, which DeepSpeed takes for none",
       [](const Case& said, const auto&) { return is_about(said, {"/gradient_clipping"}); }},
      {"dividing gradients by 0, which is not noticed where fp16 skips the step",
       [](const Case& said, const auto&) {
         return is_about(said, {"/gradient_predivide_factor"}) && said.values.front() == 0;
       }},
      {"a word that DeepSpeed looks at only where the model has buffers",
       [](const Case& said, const auto&) { return is_about(said, {"/data_types/buffer_dtype"}); }},
      {"objects that programs set, not configs",
       [](const Case& said, const auto&) {
         return is_about(said, {"/tensor_parallel/tp", "/tensor_parallel/tensor_parallel"});
       }},

      {"rates and decays that PyTorch's optimizers refuse and DeepSpeed's fused one trains into "
       "nothing with",
       [](const Case& said, const auto&) {
         return is_about(said, {"/optimizer/params/lr", "/optimizer/params/betas",
                                "/optimizer/params/eps", "/optimizer/params/weight_decay"});
       }},
  };
  if (is_old)
    differences.push_back(
        {"a window of 0 steps, by which later steps divide, and true for a scale: refused from "
         "0.19.6 "
         "on",
         [](const Case& said, const auto& problems) {
           return problems.front().pointer == "/fp16/loss_scale_window" ||
                  (is_about(said, {"/fp16/min_loss_scale"}) && said.values.front() == true);
         }});
  return differences;
}

std::vector<Difference> refused_by_deepspeed_alone() {
  return {
      {"the program may bring its own optimizer",
       [](const Case& said, const auto&) {
         return said.config["optimizer"].value("type", json::Value()).is_null();
       }},
      {"PyTorch wants decays of 0 as 0.0, and says so",
       [](const Case& said, const auto&) {
         return is_about(said, {"/optimizer/params/betas"}) &&
                said.values.front() == json::Value::array({0, 0});
       }},
      {"blocks that do not divide the group: its size is none of the config's",
       [](const Case& said, const auto&) {
         return said.refused == "engine" && is_about(said, {"/zero_optimization/mics_shard_size"});
       }},
      {"inputs that are given by position fail in another type; those by name, as the Trainer's, "
       "do "
       "not",
       [](const Case& said, const auto&) { return is_about(said, {"/fp16/auto_cast"}); }},
      {"\"auto\" is filled in by the user's training before DeepSpeed sees it",
       [](const Case& said, const auto&) {
         return said.refused != "config" && said.values.front() == "auto";
       }},
  };
}

class DeepSpeedAgreementTest : public testing::TestWithParam<Version> {
 protected:
  /// Counts a line under the first difference that applies; false where none does.
  static bool explain(std::vector<Difference>& differences, const Case& said,
                      const std::vector<Problem>& problems) {
    for (Difference& each : differences)
      if (each.applies(said, problems)) {
        ++each.lines;
        return true;
      }
    return false;
  }
  static void tell(const std::vector<Difference>& differences) {
    for (const Difference& each : differences) {
      std::printf("%6d %s\n", each.lines, each.why);
      // The others have fewer lines.
      EXPECT_TRUE(each.lines > 0 || GetParam() != (Version{0, 19, 6})) << each.why;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Releases, DeepSpeedAgreementTest, testing::ValuesIn(recorded_releases),
                         [](const auto& release) { return name_of(release.param); });

TEST_P(DeepSpeedAgreementTest, RefusesWhatDeepSpeedRefusesAndTheKeyIsNamed) {
  auto differences = refused_by_deepspeed_alone();
  int refused = 0;
  for (const Case& said : read_cases(GetParam())) {
    if (said.refused.empty() || is_of_batch(said)) continue;
    const std::vector<Problem> problems = problems_of(said);
    if (problems.empty()) {
      EXPECT_TRUE(explain(differences, said, problems)) << "accepted here: " << said.text;
      continue;
    }
    ++refused;
    const bool is_named = std::any_of(problems.begin(), problems.end(),
                                      [&](const Problem& problem) { return names(problem, said); });
    EXPECT_TRUE(is_named) << problems[0].pointer << ": " << problems[0].message << "\n"
                          << said.text;
  }
  std::printf("%6d refused by both\n", refused);
  tell(differences);
}

TEST_P(DeepSpeedAgreementTest, AcceptsWhatDeepSpeedAccepts) {
  auto differences = refused_here_alone(GetParam() < Version{0, 19, 6});
  int accepted = 0;
  for (const Case& said : read_cases(GetParam())) {
    if (!said.refused.empty() || is_of_batch(said)) continue;
    const std::vector<Problem> problems = problems_of(said);
    if (problems.empty()) {
      ++accepted;
    } else {
      EXPECT_TRUE(explain(differences, said, problems))
          << "refused here: " << problems[0].pointer << ": " << problems[0].message << "\n"
          << said.text;
    }
  }
  std::printf("%6d accepted by both\n", accepted);
  tell(differences);
}

}  // namespace
}  // namespace dstune
