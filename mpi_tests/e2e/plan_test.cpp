// Plans for machines that are not here: by a GPU's name, by counts, by a measured profile.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;

class PlanTest : public JobTest {
 protected:
  void SetUp() override {
    for (const auto& entry : fs::directory_iterator(fs::path(DSTUNE_E2E_SPACES) / "plan"))
      fs::copy_file(entry.path(), job_.folder() / entry.path().filename());
  }
  Ended plan(std::vector<std::string> args) {
    args.insert(args.begin(), "plan");
    return job_.run({.ranks = 0, .args = std::move(args)});
  }
  Json plan_json(std::vector<std::string> args) {
    args.insert(args.end(), {"--format", "json"});
    return printed(plan(std::move(args)));
  }
};

TEST_F(PlanTest, AnswersAreShort) {
  const std::vector<std::vector<std::string>> questions{
      {"--model", "llama-7b", "--device", "a100-80gb", "full.json"},
      {"--model", "qwen2-32b.json", "--device", "a100-80gb", "--gpus-per-node", "4",
       "--host-memory", "1TiB", "offload.json"},
      {"--model", "llama-3-70b", "--device", "l40s", "--gpus-per-node", "4", "lora.json"}};
  for (const auto& words : questions) {
    const Ended ended = plan(words);
    EXPECT_EQ(ended.exit_code, done) << ended;
    EXPECT_LE(count_of(ended.out, "\n"), 16) << ended;  // an empty line stands between
    EXPECT_THAT(ended.out, HasSubstr(" parameters, ")) << ended;
    EXPECT_THAT(ended.out, HasSubstr("samples/s")) << ended;
  }
}

TEST_F(PlanTest, TakesNothingOfThisMachineForAnother) {
  const Ended refused =
      plan({"--model", "llama-7b", "--gpus-per-node", "8", "--nodes", "1", "full.json"});
  EXPECT_EQ(refused.exit_code, bad_input) << refused;
  EXPECT_THAT(refused.err, HasSubstr("/dstune/device_memory: the memory of a GPU"));
  EXPECT_THAT(refused.err, HasSubstr("--device"));

  const auto offloading = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--model", "qwen2-32b.json", "--device", "a100-80gb",
                                   "--gpus-per-node", "2", "offload.json"});
    return plan_json(options);
  };
  const Json unknown = offloading({});
  EXPECT_TRUE(unknown["head"]["host_memory_bytes"].is_null());
  const Json small = offloading({"--host-memory", "64GiB"});
  const auto count = [](const Json& shown, const std::string& verdict) {
    return std::ranges::count_if(shown["experiments"], [&](const Json& one) {
      return one["predicted"]["verdict"] == verdict;
    });
  };
  EXPECT_GT(count(unknown, "fits"), 0);
  EXPECT_EQ(count(small, "fits") + count(small, "edge"), 0);
  for (const Json& one : unknown["experiments"])
    EXPECT_GT(one["predicted"]["target_host_memory_bytes"].get<std::int64_t>(), 0) << one["name"];
}

/// It is made by one process, and the job will have four on this host.
TEST_F(PlanTest, RanksOfThisHostShareItsMemory) {
  const auto bytes = [&](int ranks) {
    const std::string name = fmt::format("{}.json", ranks);
    job_.write(name, {{"train_micro_batch_size_per_gpu", 1},
                      {"dstune", {{"model", "gpt2"}, {"resources", {{"num_gpus", ranks}}}}}});
    return plan_json({name})["head"]["device_memory_bytes"].get<double>();
  };
  const double alone = bytes(1);
  EXPECT_GT(alone, 0);
  EXPECT_NEAR(bytes(4) / alone, 0.25, 0.01);
}

TEST_F(PlanTest, WarnsOfAPrecisionThatTheDeviceHasNoUnitsFor) {
  for (const char* precision : {"bf16", "fp16"})
    job_.write(fmt::format("{}.json", precision), {{precision, {{"enabled", true}}}});
  const auto warned = [&](const std::string& device, const std::string& space) {
    return plan({"--model", "llama-7b", "--device", device, space}).err;
  };
  EXPECT_THAT(warned("v100-32gb", "bf16.json"), HasSubstr("V100 SXM 32GB has no units"));
  EXPECT_THAT(warned("v100-32gb", "fp16.json"), Not(HasSubstr("has no units")));
  EXPECT_THAT(warned("a10", "bf16.json"), Not(HasSubstr("has no units")));
}

TEST_F(PlanTest, NamesWhatIsMissingForSpeeds) {
  job_.write_text("hosts", "one slots=8\ntwo slots=8\n");
  const auto no_speed = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--model", "llama-7b", "--hostfile", "hosts", "full.json"});
    return plan_json(options)["answer"]["no_speed"];
  };
  EXPECT_THAT(no_speed({"--device", "h100"}).get<std::string>(), HasSubstr("--network"));
  EXPECT_TRUE(no_speed({"--device", "h100", "--network", "ib-ndr"}).is_null());
}

/// A model of DeepSpeed's autotuning tutorial, and the micro-batch that it publishes.
struct Published {
  std::string model, precision;
  int stage, tokens, micro_batch;
};

TEST_F(PlanTest, LargestSizesAreWithinAFactorOfTwoOfPublishedOnes) {
  const auto write_bert = [&](const std::string& name, int hidden, int layers, int heads) {
    job_.write(name, {{"model_type", "bert"},
                      {"architectures", {"BertForMaskedLM"}},
                      {"hidden_size", hidden},
                      {"num_hidden_layers", layers},
                      {"num_attention_heads", heads},
                      {"intermediate_size", 4 * hidden},
                      {"vocab_size", 30522},
                      {"max_position_embeddings", 512},
                      {"type_vocab_size", 2},
                      {"hidden_act", "gelu"}});
  };
  write_bert("bert-large.json", 1024, 24, 16);
  write_bert("bert-base.json", 768, 12, 12);
  const std::vector<Published> table = {
      {"gpt2", "fp16", 1, 1024, 15},           {"gpt2-medium", "fp16", 1, 1024, 6},
      {"gpt2-large", "fp16", 1, 1024, 3},      {"gpt2-xl", "fp16", 1, 1024, 1},
      {"bert-large.json", "fp32", 1, 128, 93}, {"bert-base.json", "fp32", 0, 128, 235}};
  for (const Published& one : table) {
    job_.write("tutorial.json",
               {{"dstune", {{"sequence_length", one.tokens}, {"target", {{"attention", "eager"}}}}},
                {"fp16", {{"enabled", one.precision == "fp16"}}},
                {"train_micro_batch_size_per_gpu", "auto"},
                {"optimizer", {{"type", "AdamW"}}},
                {"zero_optimization", {{"stage", one.stage}}}});
    const Json shown = plan_json(
        {"--model", one.model, "--device", "v100-32gb", "--gpus-per-node", "16", "tutorial.json"});
    const int most = shown["answer"]["largest_micro_batch"]["micro_batch"];
    EXPECT_GE(2 * most, one.micro_batch) << one.model;
    EXPECT_LE(most, 2 * one.micro_batch) << one.model;
  }
}

TEST_F(PlanTest, OptionsOfPlansAreRefusedInJobs) {
  const Ended ended = job_.run({.ranks = 1, .args = {"--device", "h100", "full.json"}});
  EXPECT_EQ(ended.exit_code, usage) << ended;
  EXPECT_THAT(ended.err, HasSubstr("a job trains where it runs"));
}

TEST_F(PlanTest, AMeasuredProfileStandsForItsMachine) {
  ranks_ = 2;
  Json space = transformer_space({2});
  space["train_micro_batch_size_per_gpu"] = {1, 2};
  write_transformer(job_, space);
  const Ended ran = run({"--profile-out", "machine.json"});
  ASSERT_EQ(ran.exit_code, done) << ran;
  const Json profile = job_.read_json("machine.json");
  EXPECT_EQ(profile["cluster"]["gpus_per_node"], 2);
  EXPECT_GT(profile["cluster"]["device"]["memory_bytes"].get<std::int64_t>(), 0);

  const Json shown = plan_json({"--profile", "machine.json", "space.json"});
  EXPECT_FALSE(shown["head"]["is_on_gpus"]);
  EXPECT_EQ(shown["head"]["device_memory_bytes"], profile["cluster"]["device"]["memory_bytes"]);
  EXPECT_EQ(shown["head"]["num_gpus_per_node"], 2);
  for (const Json& one : shown["experiments"]) {
    EXPECT_EQ(one["predicted"]["verdict"], "fits");
    EXPECT_GT(one["predicted"]["target_throughput"].get<double>(), 0) << one;
    EXPECT_LT(one["predicted"]["throughput_low"].get<double>(),
              one["predicted"]["throughput_high"].get<double>());
  }

  // Constants that tiny engines told have no error of their own. Speeds are a band all the same.
  Json told = profile;
  Json& target = told["target"];
  for (const char* precision : {"fp32", "bf16", "fp16"}) target["scale"][precision] = 1.5;
  for (const char* cost :
       {"optimizer_step", "module_call", "gradient_hook", "gathering_hook", "sub_group",
        "offload_copy", "all_reduce_call", "reduce_call", "reduce_scatter_call", "all_gather_call",
        "all_gather_ahead", "all_to_all_call", "communicated_byte"})
    target["costs_s"][cost] = 1e-5;
  target.update(Json{{"device_behind_host", false},
                     {"error", 0},
                     {"source", "a test"},
                     {"machine", "here"},
                     {"engines", 9},
                     {"fit_error", 0.03}});
  job_.write("told.json", told);
  for (const Json& one : plan_json({"--profile", "told.json", "space.json"})["experiments"])
    EXPECT_LT(one["predicted"]["throughput_low"].get<double>(),
              0.95 * one["predicted"]["throughput_high"].get<double>());
  told["kernels"][0]["points"][0][1] = 1e300;
  job_.write("absurd.json", told);
  const Ended refused = plan({"--profile", "absurd.json", "space.json"});
  EXPECT_EQ(refused.exit_code, bad_input) << refused;
  EXPECT_THAT(refused.err, HasSubstr("/kernels/0/points/0/1: 1e+300 s can not have been measured"));

  // Our own step is the training: its memory decides.
  Json own = space;
  own["dstune"]["target"] = "self";
  job_.write("own.json", own);
  const Ended self = plan({"--profile", "machine.json", "own.json"});
  EXPECT_THAT(self.out, HasSubstr("The largest micro-batch that fits is 2"));
  EXPECT_THAT(self.out, Not(HasSubstr("is not known")));
  EXPECT_THAT(
      plan({"--device", "h100", "own.json"}).out,
      HasSubstr("fit is not known: dstune.target is \"self\", and the memory of the built-in"));

  // The job's folder has the same times, for this machine.
  const auto speeds = [](const Json& plan) {
    std::vector<double> all;
    for (const Json& one : plan["experiments"])
      all.push_back(one["predicted"]["target_throughput"]);
    return all;
  };
  const Json again = plan_json({"space.json"});
  EXPECT_EQ(speeds(again), speeds(shown));
  EXPECT_THAT(again["sources"].dump(), HasSubstr("journal.jsonl"));
  // It measured nothing of samples that are twice as long.
  space["dstune"]["sequence_length"] = 2 * space["dstune"]["sequence_length"].get<int>();
  write_transformer(job_, space);
  EXPECT_THAT(plan_json({"space.json"})["sources"].dump(), Not(HasSubstr("journal.jsonl")));
  // A journal that jobs would refuse is not read for times.
  std::ofstream(job_.folder() / results / "journal.jsonl") << "damaged\nmore\n";
  EXPECT_THAT(plan_json({"space.json"})["sources"].dump(), Not(HasSubstr("journal.jsonl")));
}

/// Threads that never rest, until its end.
class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    for (int each = 0; each < count; ++each)
      threads_.emplace_back([this] {
        while (!is_over_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~BusyThreads() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

 private:
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;
};

/// Pairs of members of which both plans say the same; a share.
double share_in_order(const std::vector<double>& one, const std::vector<double>& other) {
  int same = 0, all = 0;
  for (std::size_t first = 0; first < one.size(); ++first)
    for (std::size_t second = first + 1; second < one.size(); ++second, ++all)
      same += (one[first] < one[second]) == (other[first] < other[second]) ? 1 : 0;
  return static_cast<double>(same) / all;
}

TEST_F(PlanTest, TheLoadOfOthersDoesNotChangeTheOrder) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Json space = transformer_space({cores});
  space["train_micro_batch_size_per_gpu"] = {1, 2, 4};
  space["dstune"]["activation_recompute"] = {"none", "block"};
  write_transformer(job_, space);
  const auto speeds = [&] {
    std::vector<double> all;
    const Json shown = plan_json({"space.json"});
    for (const Json& one : shown["experiments"])
      if (one["status"] == "planned") all.push_back(one["predicted"]["target_throughput"]);
    return all;
  };
  const std::vector<double> quiet = speeds();
  const BusyThreads busy(4 * cores);
  const std::vector<double> loaded = speeds();
  ASSERT_EQ(loaded.size(), quiet.size());
  ASSERT_GT(quiet.size(), 5U);
  EXPECT_GT(share_in_order(quiet, loaded), 0.9);
}

}  // namespace
}  // namespace dstune::e2e
