#include "sections/names.hpp"

#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

TEST(CanonicalNameTest, WritesValuesAsPythonDoes) {
  const auto config = json::Value::parse(R"({"a__b": 1e-5, "c": null, "d": 9001})");
  EXPECT_EQ(canonical_name(config, {"a__b", "c", "d"}, "", false), "ab1e-05_cNone_d9.0e+03");
}

TEST(FolderSafeTest, KeepsWhatFoldersMayHave) {
  EXPECT_EQ(folder_safe("z1_rbs5.0e+07_gas1"), "z1_rbs5.0e+07_gas1");
  EXPECT_EQ(folder_safe("b[0.9, 0.95]/../x"), "b-0.9--0.95--..-x");
}

TEST(FolderSafeTest, CutsLongNamesApart) {
  const std::string long_name(300, 'a');
  EXPECT_LE(folder_safe(long_name + "b").size(), 200U);
  EXPECT_NE(folder_safe(long_name + "b"), folder_safe(long_name + "c"));
}

class NamesTest : public SpaceTest {
 protected:
  /// The names alone, of members that run and of others.
  std::vector<std::string> names_of(const std::string& keys) {
    std::vector<std::string> found;
    for (const auto& member : members("{\"train_micro_batch_size_per_gpu\": [1], " + keys + "}"))
      found.push_back(member.name);
    return found;
  }
};

TEST_F(NamesTest, ValuesInOffloadSectionsStandWhereTheyAre) {
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 3,
                            "offload_optimizer": {"device": ["none", "cpu"]}})"),
              ElementsAre("z3_tmbspg1_oo_dnone_gas1", "z3_tmbspg1_oo_dcpu_gas1"));
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 3,
                            "offload_param": {"device": "cpu", "pin_memory": [true, false]},
                            "offload_optimizer": {"pin_memory": [true, false], "device": "cpu"}})"),
              ElementsAre("z3_tmbspg1_op_dcpu_pmT_oo_pmT_dcpu_gas1",
                          "z3_tmbspg1_op_dcpu_pmT_oo_pmF_dcpu_gas1",
                          "z3_tmbspg1_op_dcpu_pmF_oo_pmT_dcpu_gas1",
                          "z3_tmbspg1_op_dcpu_pmF_oo_pmF_dcpu_gas1"));
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 3, "offload_optimizer": [null,
                            {"device": "cpu", "pin_memory": true}, {"device": "cpu"}]})"),
              ElementsAre("z3_tmbspg1_oo_None_gas1", "z3_tmbspg1_oo_dcpu_pmT_gas1",
                          "z3_tmbspg1_oo_dcpu_gas1"));
}

TEST_F(NamesTest, ValuesInObjectsStandHoweverDeep) {
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 1}, "optimizer": [
                            {"type": "AdamW", "params": {"lr": 1e-3, "eps": 1e-8}},
                            {"type": "AdamW", "params": {"lr": 2e-3, "eps": 1e-8}}])"),
              ElementsAre("z1_tmbspg1_tAdamW_l0.001_gas1", "z1_tmbspg1_tAdamW_l0.002_gas1"));
}

TEST_F(NamesTest, KeysWithTheSameLettersStandInFull) {
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 1}, "scheduler": {"type": "WarmupLR",
                            "params": {"warmup_min_lr": [0, 1e-6], "warmup_max_lr": [1e-3, 1e-4],
                                       "warmup_num_steps": [5, 6]}})"),
              testing::Contains("z1_tmbspg1_warmup_min_lr=1e-06_warmup_max_lr=0.0001_wns5_gas1"));
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 1}, "bf16": {"enabled": [false, true]},
                            "fp16": {"enabled": [false, true]})"),
              ElementsAre("z1_tmbspg1_bf16.enabled=F_fp16.enabled=F_gas1",
                          "z1_tmbspg1_bf16.enabled=F_fp16.enabled=T_gas1",
                          "z1_tmbspg1_bf16.enabled=T_fp16.enabled=F_gas1",
                          "z1_tmbspg1_bf16.enabled=T_fp16.enabled=T_gas1"));
}

TEST_F(NamesTest, NoLettersAreSharedByAnOffloadSectionAndWhatFollows) {
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 3, "offload_param": [
                            {"device": "cpu"}, {"device": "cpu", "buffer_size": 2097152}]},
                          "aio": [{}, {"block_size": 2097152}])"),
              ElementsAre("z3_tmbspg1_op_dcpu_gas1", "z3_tmbspg1_op_dcpu_block_size=2.1e+06_gas1",
                          "z3_tmbspg1_op_dcpu_buffer_size=2.1e+06_gas1",
                          "z3_tmbspg1_op_dcpu_buffer_size=2.1e+06_block_size=2.1e+06_gas1"));
}

TEST_F(NamesTest, ValuesWithTheSameTextStandInFull) {
  EXPECT_THAT(
      names_of(R"("zero_optimization": {"stage": 1, "reduce_bucket_size": [65000, 65010]})"),
      ElementsAre("z1_tmbspg1_rbs65000_gas1", "z1_tmbspg1_rbs65010_gas1"));
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 1},
                            "gradient_accumulation_steps": [9216, 9217])"),
              ElementsAre("z1_gas9216_tmbspg1", "z1_gas9217_tmbspg1"));
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 1, "overlap_comm": [true, false]},
                            "gradient_accumulation_steps": [9216, 9217])"),
              testing::Contains("z1_tmbspg1_ocF_gas9217"));
  const auto paths = names_of(R"("zero_optimization": {"stage": 3, "offload_optimizer":
                                   {"device": "nvme", "nvme_path": ["/a b", "/a-b", "/a b"]}})");
  EXPECT_EQ(paths[0], "z3_tmbspg1_oo_dnvme_np-a-b_gas1");
  EXPECT_THAT(paths[1], testing::MatchesRegex("z3_tmbspg1_oo_dnvme_np.*_[0-9a-f]+_gas1"));
  EXPECT_EQ(paths[2], paths[0] + "_2");
}

TEST_F(NamesTest, GroupsOfTheSameSizeAreToldApart) {
  EXPECT_THAT(names_of(R"("zero_optimization": {"stage": 1}, "dstune":
                            {"resources": {"num_gpus": [1, 2], "num_nodes": [1, 2]}})"),
              ElementsAre("z1_gas1_tmbspg1_ng1", "z1_gas1_tmbspg1_ng2_nn2",
                          "z1_gas1_tmbspg1_ng2_nn1", "z1_gas1_tmbspg1_ng4"));
}

/// Spaces by chance, of keys whose letters and whose values' texts are often the same.
class ChanceSpace {
 public:
  explicit ChanceSpace(unsigned seed) : random_(seed) {}

  std::string text() {
    json::Value space = json::Value::object();
    space["train_micro_batch_size_per_gpu"] = some({1, 2, 2, 9216, 9217});
    for (int count = 2 + draw(3); count > 0; --count) add_key(space);
    if (draw(4) == 0) space["gradient_accumulation_steps"] = some({1, 2, 1, "auto"});
    if (draw(4) == 0) space["train_batch_size"] = some({8, 16, "auto", 18432, 18434});
    if (draw(4) == 0) space["dstune"]["activation_recompute"] = {"none", "block"};
    if (draw(4) == 0) space["dstune"]["resources"] = {{"num_gpus", {1, 2}}, {"num_nodes", {1, 2}}};
    space["dstune"]["workload"] = {{"type", "synthetic"}, {"step_time_s", 0}};
    return space.dump();
  }

 private:
  struct Key {
    const char* pointer;
    const char* candidates;
  };
  static constexpr Key keys[] = {
      {"/zero_optimization/stage", "[0, 1, 2, 3]"},
      {"/zero_optimization/reduce_bucket_size", "[50000000, 50000001, 5e7, 100, 60000000]"},
      {"/zero_optimization/allgather_bucket_size", "[200000000, 2e8, 3e8]"},
      {"/zero_optimization/overlap_comm", "[true, false]"},
      {"/zero_optimization/round_robin_gradients", "[true, false]"},
      {"/zero_optimization/offload_optimizer/device", "[\"none\", \"cpu\", \"cpu\"]"},
      {"/zero_optimization/offload_optimizer/pin_memory", "[true, false]"},
      {"/zero_optimization/offload_optimizer/nvme_path", "[\"/a/b\", \"/a-b\", \"/a/b\"]"},
      {"/zero_optimization/offload_optimizer",
       R"([null, {"device": "cpu"}, {"device": "cpu", "pin_memory": true}, {}])"},
      {"/zero_optimization/offload_param/device", "[\"none\", \"cpu\"]"},
      {"/zero_optimization/offload_param/pin_memory", "[true, false]"},
      {"/zero_optimization/offload_param",
       R"([{"device": "cpu"}, {"device": "cpu", "buffer_size": 1048576}])"},
      {"/zero_optimization",
       R"([{"stage": 1}, {"stage": 2, "overlap_comm": true}, {"stage": 1.0}, {"stage": 0}, {}])"},
      {"/aio/block_size", "[1048576, 1048577, 1048576.0, 10]"},
      {"/aio/queue_depth", "[8, 16, 8]"},
      {"/aio", R"([{"block_size": 1048576}, {"queue_depth": 8}, {"queue_depth": 8,
                   "block_size": 1048576}, {"queue_depth": 8}])"},
      {"/optimizer/type", "[\"AdamW\", \"Adam\", \"AdamW\"]"},
      {"/optimizer/params/lr", "[1e-3, 0.001, 1e-4]"},
      {"/optimizer/params/betas", "[[0.9, 0.95], [0.9, 0.99], [0.90, 0.95]]"},
      {"/optimizer/params/eps", "[1e-8, 1e-7]"},
      {"/optimizer", R"([{"type": "AdamW", "params": {"lr": 1e-3}},
                         {"type": "AdamW", "params": {"lr": 2e-3}},
                         {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95]}}])"},
      {"/scheduler/params/warmup_min_lr", "[0, 1, 0.5]"},
      {"/scheduler/params/warmup_max_lr", "[0, 1, 1.0]"},
      {"/bf16/enabled", "[false, true]"},
      {"/fp16/enabled", "[false, true, false]"},
      {"/gradient_clipping", "[1, 1.0, 0.5]"},
      {"/csv_monitor/job_name", R"(["a b", "a-b", "True", "a b"])"},
      {"/tensorboard/job_name", R"(["a b", "a-b"])"},
      {"/wall_clock_breakdown", "[true, false]"},
      {"/communication_data_type", R"([null, "fp32", "bf16", null])"}};

  int draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }

  /// Some of the candidates, in any order.
  json::Value some(json::Value candidates) {
    std::shuffle(candidates.begin(), candidates.end(), random_);
    const auto count = static_cast<std::size_t>(1 + draw(static_cast<int>(candidates.size())));
    while (candidates.size() > count) candidates.erase(candidates.size() - 1);
    return candidates;
  }

  void add_key(json::Value& space) {
    const Key& key = keys[draw(std::size(keys))];
    const json::Value::json_pointer place(key.pointer);
    for (auto above = place.parent_pointer(); !above.empty(); above = above.parent_pointer())
      if (space.contains(above) && !space[above].is_object()) return;
    space[place] = some(json::Value::parse(key.candidates));
  }

  std::mt19937 random_;
};

/// Equal where the values are, however their numbers are written.
std::string identity_of(const json::Value& value) {
  if (value.is_number()) return fmt::format("{}", value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string text = value.is_object() ? "{" : "[";
  for (const auto& [key, member] : value.items()) text += key + ":" + identity_of(member) + ",";
  return text + "]";
}

TEST_F(NamesTest, AreEqualExactlyWhereConfigsAre) {
  int num_spaces = 0;
  std::size_t num_members = 0;
  std::size_t num_equal = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    const std::string text = ChanceSpace(seed).text();
    if (!problems(text).empty()) continue;
    const auto read = job(text);
    const SearchSpace space(read);
    if (space.size() > 400) continue;
    ++num_spaces;
    struct Same {
      std::string first;
      int count = 1;
    };
    std::map<std::string, Same> of_config;
    std::set<std::string> firsts;
    for (const auto& member : space.members()) {
      ++num_members;
      Experiment experiment = space.experiment(member);
      for (const std::string& pointer : experiment.written_out) {
        const json::Value::json_pointer place(pointer);
        experiment.ds_config[place.parent_pointer()].erase(place.back());
      }
      const std::string identity =
          fmt::format("{} {} {} {}", identity_of(experiment.ds_config), member.shape.num_gpus,
                      member.shape.num_nodes, to_text(member.config.recompute));
      const auto [same, is_first] = of_config.try_emplace(identity, Same{member.name});
      if (is_first) {
        EXPECT_TRUE(firsts.insert(member.name).second) << member.name << '\n' << text;
        const auto cut = member.name.rfind('_');
        const bool has_counter =
            member.name.find_first_not_of("0123456789", cut + 1) == std::string::npos;
        EXPECT_FALSE(has_counter && firsts.contains(member.name.substr(0, cut)))
            << member.name << '\n'
            << text;
      } else {
        ++num_equal;
        EXPECT_EQ(member.name, fmt::format("{}_{}", same->second.first, ++same->second.count))
            << text;
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(num_spaces, 200);
  EXPECT_GE(num_members, 10'000U);
  EXPECT_GE(num_equal, 1000U);
}

}  // namespace
}  // namespace dstune
