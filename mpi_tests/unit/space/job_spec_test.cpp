#include "dstune/space/job_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;

class ReadJobTest : public SpaceTest {};

TEST_F(ReadJobTest, DefaultsAreTheDocumentedOnes) {
  default_ranks_ = 4;
  const auto read = job("{}");
  EXPECT_EQ(read.tuning.tuner_type, "race");
  EXPECT_EQ(read.tuning.metric, Metric::throughput);
  EXPECT_FALSE(read.tuning.overwrite);
  EXPECT_EQ(read.tuning.results_dir, "autotuning_results");
  EXPECT_EQ(read.tuning.exps_dir, "autotuning_exps");
  EXPECT_FALSE(read.tuning.num_trials || read.tuning.early_stopping);
  EXPECT_EQ(read.instruments.back().kind, WorkloadKind::transformer);
  EXPECT_EQ(read.sequence_length, 1024);
  EXPECT_THAT(read.shapes, ElementsAre(GroupShape{4, 1}));
  EXPECT_THAT(read.recompute, ElementsAre(Recompute::none));
  EXPECT_FALSE(read.device_memory_bytes);
  EXPECT_THAT(read.warnings, testing::IsEmpty());
}

TEST_F(ReadJobTest, ARefusalNamesTheRealLack) {
  const GroupShape two_nodes{1, 2};
  EXPECT_THAT(Machine{{2}}.refusal(two_nodes),
              AllOf(HasSubstr("the job has one node (2 ranks)"),
                    HasSubstr("ask for 2 nodes with 1 rank on each (Slurm --nodes=2 "
                              "--ntasks-per-node=1, PBS select=2:mpiprocs=1"),
                    HasSubstr("or write num_nodes 1"), Not(HasSubstr("-np"))));
  EXPECT_THAT(Machine{{1}}.refusal({4, 2}),
              AllOf(HasSubstr("with 4 ranks on each"), HasSubstr("or take smaller groups")));
  EXPECT_THAT((Machine{{2, 2}}.refusal({4, 1})),
              AllOf(HasSubstr("no node of the job has more than 2 (2 + 2 ranks on 2 nodes)"),
                    HasSubstr("mpirun -np 8 --map-by ppr:4:node"), HasSubstr("num_gpus 2")));
  EXPECT_THAT((Machine{{4, 2}}.refusal({3, 2})), HasSubstr("place 3 on each"));
  EXPECT_THAT((Machine{std::vector<int>(64, 4)}.refusal({8, 1})),
              HasSubstr("4 ranks a node, 256 in all on 64 nodes"));
}

TEST_F(ReadJobTest, ARefusalSaysWhoLeavesNoMoreRanks) {
  using Limit = Machine::Limit;
  EXPECT_THAT((Machine{{3}, Limit::coordinator}.refusal({4, 1})),
              AllOf(HasSubstr("3 ranks on one node beside rank 0, which only coordinates"),
                    HasSubstr("mpirun -np 5 --map-by ppr:5:node")));
  EXPECT_THAT((Machine{{3}, Limit::filter}.refusal({4, 1})), HasSubstr("--exclude leave 3 ranks"));
  EXPECT_THAT((Machine{{8}, Limit::plan}.refusal({4, 4})),
              AllOf(HasSubstr("the plan is for 8 ranks on one node"), HasSubstr("raise"),
                    Not(HasSubstr("--hostfile"))));
}

TEST_F(ReadJobTest, VerifyMeasuresTheTargetUnlessItIsToldNotTo) {
  EXPECT_FALSE(job("{}").measures_target());
  overrides_.verify = true;
  const std::string command = R"("training_command": "train.py $CONFIG")";
  EXPECT_TRUE(job(R"({"dstune": {)" + command + "}}").measures_target());
  EXPECT_FALSE(
      job(R"({"dstune": {)" + command + R"(, "target": {"measure": false}}})").measures_target());
  EXPECT_FALSE(job(R"({"dstune": {)" + command + R"(, "target": "self"}})").measures_target());
  EXPECT_TRUE(job(R"({"dstune": {)" + command + "}}").is_by_engine());
}

TEST_F(ReadJobTest, ATargetThatMeasuresHasAnEngineOfItsOwn) {
  const auto read = job(R"({"dstune": {"target": {"measure": true, "python": "venv"}}})");
  EXPECT_TRUE(read.measures_target());
  ASSERT_EQ(read.instruments.size(), 2U);
  EXPECT_EQ(read.engine(), &read.instruments.front()) << "it does not decide";
  EXPECT_EQ(read.engine()->options["python"], "venv");
  EXPECT_FALSE(read.is_by_engine());
}

TEST_F(ReadJobTest, ReadsTheWholeOfBothSections) {
  const auto read = job(R"({
    "dstune": {"model": {"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 2,
                         "vocab_size": 512, "max_positions": 128},
      "sequence_length": 32, "precision": "BF16", "resources": {"num_nodes": [1, 2], "num_gpus": [2, 4]},
      "activation_recompute": ["block", "Selective", "none"], "device_memory": "2GiB",
      "target": {"framework": "huggingface", "attention": "flash", "checkpointing": "deepspeed"},
      "trial_budget_s": 2.5,
      "training_command": "train.py $CONFIG", "workload": {"type": "synthetic", "step_time_s": 0.5}},
    "autotuning": {"enabled": true, "fast": true, "results_dir": "out", "exps_dir": "/abs/exps",
      "overwrite": true, "metric": "FLOPS_per_gpu", "metric_path": null, "start_profile_step": 2,
      "end_profile_step": 7, "tuner_type": "random", "tuner_early_stopping": 0,
      "tuner_num_trials": 12, "arg_mappings": {"gradient_accumulation_steps ": " --gas"},
      "max_train_batch_size": 64, "min_train_batch_size": 2,
      "max_train_micro_batch_size_per_gpu": 16, "min_train_micro_batch_size_per_gpu": 1,
      "num_tuning_micro_batch_sizes": 4, "mp_size": 1,
      "model_info": {"profile": true, "num_params": 5}, "model_info_path": "x"}})");
  EXPECT_EQ(read.model.hidden_size, 64);
  EXPECT_EQ(read.sequence_length, 32);
  EXPECT_EQ(read.precision, Precision::bf16);
  EXPECT_THAT(read.shapes,
              ElementsAre(GroupShape{2, 1}, GroupShape{4, 1}, GroupShape{2, 2}, GroupShape{4, 2}));
  EXPECT_THAT(read.recompute, ElementsAre(Recompute::block, Recompute::selective, Recompute::none));
  EXPECT_EQ(read.device_memory_bytes, std::int64_t{2} << 30);
  EXPECT_EQ(read.target.attention, TargetAttention::flash);
  EXPECT_EQ(read.target.checkpointing, TargetCheckpointing::deepspeed);
  EXPECT_EQ(read.tuning.measure.trial_budget_s, 2.5);
  EXPECT_EQ(read.tuning.measure.start_profile_step, 2);
  EXPECT_TRUE(read.tuning.measure.asks_for_warmup);
  EXPECT_EQ(read.tuning.measure.end_profile_step, 7);
  EXPECT_EQ(read.training_command->text, "train.py $CONFIG");
  EXPECT_EQ(read.instruments.back().kind, WorkloadKind::synthetic);
  EXPECT_EQ(read.instruments.back().step_time_s, 0.5);
  EXPECT_EQ(read.tuning.results_dir, (folder_ / "out").string());
  EXPECT_EQ(read.tuning.exps_dir, "/abs/exps");
  EXPECT_TRUE(read.tuning.overwrite);
  EXPECT_EQ(read.tuning.metric, Metric::flops);
  EXPECT_EQ(read.tuning.tuner_type, "random");
  EXPECT_EQ(read.tuning.early_stopping, 0);
  EXPECT_EQ(read.tuning.num_trials, 12);
  EXPECT_THAT(read.tuning.arg_mappings, ElementsAre(std::pair<std::string, std::string>(
                                            "gradient_accumulation_steps", "--gas")));
  EXPECT_EQ(read.tuning.max_train_batch_size, 64);
  EXPECT_EQ(read.tuning.num_tuning_micro_batch_sizes, 4);
  EXPECT_THAT(read.warnings,
              ElementsAre("autotuning.mp_size: has no effect: every rank computes the whole model "
                          "here",
                          "autotuning.model_info, autotuning.model_info_path: has no effect: the "
                          "job's model tells its content"));
}

TEST_F(ReadJobTest, AProblemOfTheEngineIsWhereItIsAskedFor) {
  // A model of this name is a preset, of which no random tokens can be trained.
  const auto place = [&](const std::string& section) {
    const auto found = problems(R"({"dstune": {"sequence_length": 8)" + section + "}}");
    if (found.size() != 1) return std::to_string(found.size()) + " problems";
    EXPECT_THAT(found.front().message, HasSubstr("has nothing to train"));
    return found.front().file.ends_with("space.json") ? found.front().pointer
                                                      : found.front().file + found.front().pointer;
  };
  EXPECT_EQ(place(R"(, "workload": {"type": "deepspeed"})"), "/dstune/workload");
  EXPECT_EQ(place(R"(, "verify": {})"), "/dstune/verify");
  overrides_.verify = true;
  EXPECT_EQ(place(""), "--verify");
  EXPECT_EQ(place(R"(, "verify": {})"), "/dstune/verify");

  overrides_.verify_script = (folder_ / "absent.py").string();
  const auto found = problems("{}");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().text(), "--verify=" + *overrides_.verify_script + ": the script " +
                                      *overrides_.verify_script +
                                      " does not exist: name a file that does");
}

constexpr const char* automatic_sections =
    R"("bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 1})";

TEST_F(ReadJobTest, AutomaticPrecisionIsTheCommandLinesTheDocumentsOrTheModels) {
  const auto precision = [&](const std::string& dstune) {
    const std::string text = "{" + dstune + automatic_sections + "}";
    const JobSpec read = job(text);
    EXPECT_THAT(read.assumptions.front(), HasSubstr("\"auto\" precision is"));
    const auto found = members(text);
    EXPECT_EQ(found.front().experiment.ds_config["bf16"]["enabled"], "auto");
    return found.front().config.precision;
  };
  write("config.json", R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2,
                           "torch_dtype": "float16"})");
  const std::string model = R"("model": {"hf_config": "config.json"})";
  EXPECT_EQ(precision("\"dstune\": {" + model + "}, "), Precision::fp16);
  const std::string both = "\"dstune\": {\"precision\": \"bf16\", " + model + "}, ";
  EXPECT_EQ(precision(both), Precision::bf16);
  overrides_.precision = Precision::fp32;
  EXPECT_EQ(precision(both), Precision::fp32);
}

TEST_F(ReadJobTest, PrecisionNeedsItsSection) {
  overrides_.precision = Precision::bf16;
  const auto found = problems(R"({"fp16": {"enabled": "auto"}})");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].message, HasSubstr("add \"bf16\": {\"enabled\": \"auto\"}"));
}

// transformers 4.57, integrations/deepspeed.py, with GPT-2's width.
TEST_F(ReadJobTest, AutomaticSizesAreTheTrainersWhereItTrains) {
  const std::string rest = R"("gradient_clipping": "auto", "zero_optimization": {"stage": 3,
      "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto"}})";
  const auto config_of = [&](const std::string& target) {
    return SearchSpace(job(R"({"dstune": {"model": "gpt2")" + target + "}, " + rest))
        .members()
        .front()
        .config;
  };
  const TrainingConfig config = config_of("");
  EXPECT_EQ(config.reduce_bucket_size, 768 * 768);
  EXPECT_EQ(config.stage3_prefetch_bucket_size, 530841);
  EXPECT_EQ(config.stage3_param_persistence_threshold, 7680);
  EXPECT_EQ(config.gradient_clipping, 1.0);
  const TrainingConfig own = config_of(R"(, "target": "self")");
  EXPECT_EQ(own.reduce_bucket_size, TrainingConfig().reduce_bucket_size);
  EXPECT_EQ(own.stage3_prefetch_bucket_size, TrainingConfig().stage3_prefetch_bucket_size);
  EXPECT_EQ(own.gradient_clipping, TrainingConfig().gradient_clipping);
}

TEST_F(ReadJobTest, TheCommandLineWins) {
  overrides_.tuner_type = "random";
  overrides_.metric = Metric::latency;
  overrides_.num_trials = 3;
  overrides_.early_stopping = 4;
  overrides_.seed = 9;
  overrides_.results_dir = "r";
  overrides_.exps_dir = "e";
  overrides_.overwrite = true;
  overrides_.model = "gpt2-medium";
  const auto read = job(R"({"dstune": {"model": "gpt2"}, "autotuning": {"tuner_type": "gridsearch",
      "metric": "flops", "tuner_num_trials": 50, "results_dir": "x"}})");
  EXPECT_EQ(read.tuning.tuner_type, "random");
  EXPECT_EQ(read.tuning.metric, Metric::latency);
  EXPECT_EQ(read.tuning.num_trials, 3);
  EXPECT_EQ(read.tuning.early_stopping, 4);
  EXPECT_EQ(read.tuning.seed, 9);
  EXPECT_EQ(read.tuning.results_dir, "r");
  EXPECT_EQ(read.tuning.exps_dir, "e");
  EXPECT_TRUE(read.tuning.overwrite);
  EXPECT_EQ(read.model.hidden_size, 1024);
  EXPECT_EQ(job(R"({"autotuning": {"tuner_type": "race"}})").tuning.tuner_type, "random");
  EXPECT_EQ(problems(R"({"autotuning": {"tuner_type": "rice"}})").size(), 1U);
  overrides_.tuner_type.reset();
  overrides_.full = true;
  EXPECT_FALSE(job("{}").tuning.fast);
}

TEST_F(ReadJobTest, TunersAreNamed) {
  for (const char* type : {"gridsearch", "random", "model_based", "race"}) {
    const auto read = job(std::string(R"({"autotuning": {"tuner_type": ")") + type + R"("}})");
    EXPECT_EQ(read.tuning.tuner_type, type);
    EXPECT_THAT(read.warnings, testing::Not(testing::Contains(HasSubstr("tuner"))));
  }
}

TEST_F(ReadJobTest, HjsonFilesAreRead) {
  const std::string text =
      "# a space\ntrain_micro_batch_size_per_gpu: [1, 2]\nautotuning: {\n  tuner_type: random\n"
      "  tuner_num_trials: 12\n}\ndstune: {\n  workload: synthetic\n  sequence_length: 32 # "
      "short\n}";
  const auto read = read_job(write("space.hjson", text), {}, std::nullopt, 1);
  EXPECT_EQ(read.tuning.tuner_type, "random");
  EXPECT_EQ(read.tuning.num_trials, 12);
  EXPECT_EQ(read.instruments.back().kind, WorkloadKind::synthetic);
  EXPECT_EQ(read.sequence_length, 32);
  EXPECT_THAT(
      [&] { read_job(write("bad.hjson", text + "\nautotuning: {}"), {}, std::nullopt, 1); },
      ThrowsMessage<InputError>(HasSubstr("bad.hjson:11: /autotuning: the key is given twice")));
}

TEST_F(ReadJobTest, EveryRankWhereResourcesAreAbsent) {
  machine_ = Machine{{4, 4}};
  EXPECT_THAT(job("{}").shapes, ElementsAre(GroupShape{4, 2}));
  EXPECT_THAT(job(R"({"dstune": {"resources": {"num_gpus": 2}}})").shapes,
              ElementsAre(GroupShape{2, 1}));
  EXPECT_THAT(job(R"({"dstune": {"resources": {"num_nodes": 1}}})").shapes,
              ElementsAre(GroupShape{4, 1}));
  machine_ = Machine{{4, 3}};
  const auto uneven = job("{}");
  EXPECT_THAT(uneven.shapes, ElementsAre(GroupShape{3, 2}));
  EXPECT_THAT(uneven.warnings, testing::Contains(HasSubstr("6 of 7 ranks")));
}

TEST_F(ReadJobTest, ModelsComeFromFilesPresetsOrTheDocument) {
  write("tiny.json", R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2,
                         "n_positions": 64, "vocab_size": 100})");
  const auto from_file = job(R"({"dstune": {"model": {"hf_config": "tiny.json"}}})");
  EXPECT_EQ(from_file.model.hidden_size, 32);
  EXPECT_EQ(from_file.sequence_length, 64);
  EXPECT_EQ(job(R"({"dstune": {"model": "tiny.json"}})").model.hidden_size, 32);
  EXPECT_EQ(job(R"({"dstune": {"model": "gpt2-medium"}})").model.hidden_size, 1024);
  overrides_.model = (folder_ / "tiny.json").string();
  EXPECT_EQ(job(R"({"dstune": {"model": "gpt2"}})").model.hidden_size, 32);
  overrides_.model.reset();

  const auto missing = problems(R"({"dstune": {"model": {"hf_config": "none.json"}}})");
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing[0].file, (folder_ / "none.json").string());
  EXPECT_THAT(places(R"({"dstune": {"model": "tiny.json", "sequence_length": 65}})"),
              ElementsAre("1 /dstune/sequence_length"));
}

TEST_F(ReadJobTest, AModelIsNeededOnlyWhereSomethingIsTrained) {
  const auto path = write("space.json", "{\"dstune\": {}}");
  EXPECT_THAT([&] { read_job(path, {}, std::nullopt, 1); },
              ThrowsMessage<InputError>(HasSubstr("--model")));
  write("space.json", R"({"dstune": {"workload": {"type": "synthetic"}}})");
  EXPECT_EQ(read_job(path, {}, std::nullopt, 1).model, preset("gpt2"));
}

TEST_F(ReadJobTest, ReplayTablesAreRead) {
  write("table.json", R"({"z0_gas1_tmbspg1": {"step_time_s": 0.5, "peak_memory_bytes": 100},
                          "b": {"step_times_s": [1, 2], "status": "ok"},
                          "c": {"status": "out_of_memory"}})");
  const auto read = job(
      R"({"dstune": {"workload": {"type": "replay", "table": "table.json", "time_scale": 1}}})");
  EXPECT_EQ(read.instruments.back().kind, WorkloadKind::replay);
  EXPECT_EQ(read.instruments.back().time_scale, 1);
  EXPECT_EQ(read.instruments.back().table["b"]["step_times_s"][1], 2);
  EXPECT_EQ(read.instruments.back().table_path, (folder_ / "table.json").string());

  write("table.json",
        "{\"a\": {\"step_time_s\": -1},\n\"b\": {\"status\": \"odd\"},\n\"c\": {\"time\": 1},\n"
        "\"d\": 4, \"e\": {\"step_times_s\": []}}");
  EXPECT_THAT(places(R"({"dstune": {"workload": {"type": "replay", "table": "table.json"}}})"),
              testing::UnorderedElementsAre("1 /a/step_time_s", "2 /b/status", "3 /c", "3 /c/time",
                                            "4 /d", "4 /e/step_times_s"));
}

TEST_F(ReadJobTest, PluginsAreLookedAtAndKeepTheirOptions) {
  std::filesystem::copy_file(DSTUNE_EXAMPLE_PLUGIN, folder_ / "libmine.so");
  const auto read = job(R"({"dstune": {"workload": {"type": "plugin", "library": "./libmine.so",
                            "layers": [1, 2], "note": null}}})");
  EXPECT_EQ(read.instruments.back().kind, WorkloadKind::plugin);
  EXPECT_EQ(read.instruments.back().library_path, (folder_ / "libmine.so").string());
  EXPECT_EQ(read.instruments.back().options["layers"][1], 2);
  EXPECT_TRUE(read.instruments.back().options.contains("note"));

  write("libtext.so", "no library");
  const auto found = problems(
      "{\"dstune\": {\"workload\": {\"type\": \"plugin\",\n\"library\": \"libtext.so\"}}}");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pointer, "/dstune/workload/library");
  EXPECT_EQ(found[0].line, 2);
  EXPECT_THAT(found[0].message, HasSubstr("not an ELF file"));
}

TEST_F(ReadJobTest, UnknownTopLevelKeysPass) {
  EXPECT_EQ(job(R"({"my_script": {"a": [1, 2]}, "autotuning": {}})").ds_config.dump(),
            R"({"my_script":{"a":[1,2]}})");
}

TEST_F(ReadJobTest, ExperimentsNeedNoSpace) {
  overrides_.experiment_files = {"a.json"};
  const auto read = job(R"({"zero_optimization": {"stage": [7]}})");
  EXPECT_THAT(read.experiment_files, ElementsAre("a.json"));
  EXPECT_EQ(read.tuning.tuner_type, "gridsearch") << "all of them run";
}

TEST_F(ReadJobTest, ASequenceMayBeLongerThanTheAttentionWindow) {
  write("mistral.json", R"({"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 99,
    "max_position_embeddings": 4096, "sliding_window": 1500})");
  const auto read = job(R"({"dstune": {"model": "mistral.json", "sequence_length": 4096}})");
  EXPECT_EQ(read.sequence_length, 4096);
  EXPECT_EQ(read.model.window_of(1, read.sequence_length), 1500);
}

}  // namespace
}  // namespace dstune
