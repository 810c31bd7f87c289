#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_cases.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

TEST(ConfigRulesTest, BothPrecisionsAreRefused) {
  const ReadConfig read = read_config(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})");
  ASSERT_EQ(read.problems.size(), 1U);
  EXPECT_EQ(read.problems[0].pointer, "/fp16/enabled");
  EXPECT_THAT(read.problems[0].message, HasSubstr("can not both be enabled"));
  EXPECT_THAT(refusal(R"({"bf16": {}, "bfloat16": {"enabled": true}})"), HasSubstr("same section"));
  EXPECT_EQ(accepted(R"({"bfloat16": {"enabled": true}, "fp16": {"enabled": false}})").precision,
            Precision::bf16);
}

TEST(ConfigRulesTest, AllgatherBucketsAreEvenAndOtherwiseKept) {
  EXPECT_EQ(refusal(zero_with(R"("stage": 1, "allgather_bucket_size": 5)")),
            "/zero_optimization/allgather_bucket_size: must be even: DeepSpeed refuses odd sizes");
  EXPECT_EQ(accepted(zero_with(R"("allgather_bucket_size": 6)")), TrainingConfig());
  EXPECT_EQ(accepted(zero_with(R"("allgather_bucket_size": 5)")), TrainingConfig());
}

TEST(ConfigRulesTest, TheOptimizerIsOffloadedFromStage1On) {
  const auto offloaded = [](const std::string& members) {
    return accepted(zero_with(members)).offload_optimizer == OffloadDevice::cpu;
  };
  for (const char* stage : {"1", "2", "3"}) {
    const std::string at_stage = std::string("\"stage\": ") + stage;
    EXPECT_TRUE(offloaded(at_stage + R"(, "offload_optimizer": {"device": "cpu"})"));
    EXPECT_TRUE(offloaded(at_stage + R"(, "cpu_offload": true)"));
    EXPECT_FALSE(offloaded(at_stage + R"(, "offload_optimizer": {"device": "none"})"));
    EXPECT_FALSE(offloaded(at_stage + R"(, "offload_optimizer": null)"));
    EXPECT_FALSE(offloaded(at_stage + R"(, "cpu_offload": false)"));
  }
  // There a disk is taken for the host.
  EXPECT_TRUE(offloaded(R"("stage": 2, "offload_optimizer": {"device": "nvme"})"));
  EXPECT_THAT(refusal(zero_with(R"("stage": 0, "offload_optimizer": {"device": "cpu"})")),
              HasSubstr("/offload_optimizer/device: fails in DeepSpeed at stage 0"));
}

TEST(ConfigRulesTest, TwinFlowNeedsDeepSpeedsOwnAdamW) {
  const auto with = [](const std::string& optimizer) {
    return R"({"zero_optimization": {"stage": 3,
                                     "offload_optimizer": {"device": "cpu", "ratio": 0.5}},
               "optimizer": )" +
           optimizer + "}";
  };
  EXPECT_EQ(accepted(with(R"({"type": "AdamW"})")).offload_ratio, 0.5);
  EXPECT_EQ(accepted(with(R"({"type": "Adam", "params": {"weight_decay": 0.1}})")).offload_ratio,
            0.5);
  EXPECT_EQ(accepted(with(R"({"type": "Adam", "params": {"adam_w_mode": false}})")).offload_ratio,
            0.5);
  EXPECT_EQ(accepted(zero_with(R"("stage": 3, "reduce_scatter": false,
                                  "offload_optimizer": {"device": "cpu", "ratio": 0.5})"))
                .offload_ratio,
            0.5);
  EXPECT_THAT(refusal(with(R"({"type": "AdamW", "params": {"torch_adam": true}})")),
              HasSubstr("/offload_optimizer/ratio: below 1 fails in DeepSpeed with torch_adam"));
  EXPECT_THAT(
      refusal(with(R"({"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}})")),
      HasSubstr("/offload_optimizer/ratio: below 1 mixes Adam with AdamW"));
  // It says nothing without an offloaded optimizer.
  EXPECT_EQ(accepted(zero_with(R"("stage": 3, "offload_optimizer": {"ratio": 0.5})")).offload_ratio,
            1);
}

TEST(ConfigRulesTest, ADiskNeedsAFolderAndBuffers) {
  const auto with = [](const std::string& members) {
    return zero_with(R"("stage": 3, "offload_optimizer": {"device": "nvme")" + members + "}");
  };
  EXPECT_THAT(refusal(with("")),
              HasSubstr("/offload_optimizer/device: DeepSpeed refuses nvme without nvme_path"));
  EXPECT_THAT(refusal(with(R"(, "nvme_path": "/local", "buffer_count": 3)")),
              HasSubstr("/offload_optimizer/buffer_count: fewer fail in DeepSpeed"));
  // Where the moments stay on the host fewer do; the plan knows how many.
  EXPECT_EQ(accepted(with(R"(, "nvme_path": "/local", "buffer_count": 2, "ratio": 0.5)"))
                .disk.optimizer_buffers,
            2);
  const TrainingConfig config = accepted(
      R"({"zero_optimization": {"stage": 3, "offload_optimizer":
            {"device": "nvme", "nvme_path": "/local", "buffer_count": 9, "pipeline_read": true}},
          "aio": {"block_size": 2097152, "queue_depth": 16, "intra_op_parallelism": 2}})");
  const DiskUse expected{.folder = "/local",
                         .optimizer_buffers = 9,
                         .pipeline_read = true,
                         .pipeline_write = false,
                         .parameter_buffers = 5,
                         .parameter_buffer_size = 100'000'000,
                         .parameters_in_memory = 1'000'000'000,
                         .block_bytes = 2 << 20,
                         .queue_depth = 16,
                         .threads = 2};
  EXPECT_EQ(config.disk, expected);
  // Said to the host it says nothing.
  EXPECT_EQ(accepted(zero_with(R"("stage": 3, "offload_optimizer":
                                  {"device": "cpu", "nvme_path": "/local", "buffer_count": 1})"))
                .disk,
            DiskUse());
}

TEST(ConfigRulesTest, SwappingIsBuiltInFp32AndTwinFlowForAdam) {
  const auto with = [](const std::string& offload, const std::string& members) {
    return R"({"zero_optimization": {"stage": 3, "offload_optimizer": {)" + offload + "}}, " +
           members + "}";
  };
  const std::string disk = R"("device": "nvme", "nvme_path": "/local")";
  const std::string half = R"("device": "cpu", "ratio": 0.5)";
  const char* low = R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})";
  EXPECT_THAT(refusal(with(disk, low)), HasSubstr("device: nvme fails in DeepSpeed"));
  EXPECT_THAT(refusal(with(half, low)), HasSubstr("ratio: below 1 is not built"));
  for (const auto& [type, buffers] : {std::pair{"Adam", 4}, {"Lion", 4}, {"Adagrad", 3}}) {
    const std::string members = R"("optimizer": {"type": ")" + std::string(type) + R"("})";
    const auto counted = [&](int count) {
      return with(disk + R"(, "buffer_count": )" + std::to_string(count), members);
    };
    EXPECT_TRUE(is_optimizer_on_disk(accepted(counted(buffers)))) << type;
    EXPECT_THAT(refusal(counted(buffers - 1)), HasSubstr("buffer_count: fewer fail")) << type;
    if (type != std::string("Adam")) {
      EXPECT_THAT(refusal(with(half, members)), HasSubstr("ratio: DeepSpeed refuses below 1"));
    }
  }
}

TEST(ConfigRulesTest, ADiskForParametersNeedsAFolder) {
  const auto with = [](const std::string& param, const std::string& optimizer = "null") {
    return zero_with(R"("stage": 3, "offload_param": {"device": "nvme")" + param +
                     R"(}, "offload_optimizer": )" + optimizer);
  };
  EXPECT_THAT(refusal(with("")),
              HasSubstr("/offload_param/device: DeepSpeed refuses nvme without nvme_path"));
  const std::string local = R"(, "nvme_path": "/local")";
  EXPECT_THAT(refusal(with(local, R"({"device": "nvme", "nvme_path": "/Local"})")),
              HasSubstr("/offload_param/nvme_path: another folder than offload_optimizer's"));
  EXPECT_EQ(accepted(with(local, R"({"device": "nvme", "nvme_path": "/local"})")).disk.folder,
            "/local");
  // Said to the host it says nothing.
  const TrainingConfig config =
      accepted(with(local + R"(, "buffer_count": 7, "buffer_size": 1e6, "max_in_cpu": 0)",
                    R"({"device": "cpu", "nvme_path": "/other", "buffer_count": 9})"));
  const DiskUse expected{.folder = "/local",
                         .parameter_buffers = 7,
                         .parameter_buffer_size = 1'000'000,
                         .parameters_in_memory = 0};
  EXPECT_EQ(config.disk, expected);
  EXPECT_TRUE(are_parameters_on_disk(config));
  EXPECT_FALSE(is_optimizer_on_disk(config));
}

TEST(ConfigRulesTest, ParametersAreOffloadedAtStage3) {
  const auto offloaded = [](const std::string& members) {
    return are_parameters_offloaded(accepted(zero_with(members)));
  };
  EXPECT_TRUE(offloaded(R"("stage": 3, "offload_param": {"device": "cpu"})"));
  EXPECT_TRUE(offloaded(R"("stage": 3, "cpu_offload_param": true)"));
  EXPECT_FALSE(offloaded(R"("stage": 3, "offload_param": {"pin_memory": false})"));
  for (const char* stage : {"0", "1", "2"}) {
    const std::string at_stage = R"("stage": )" + std::string(stage);
    EXPECT_FALSE(offloaded(at_stage + R"(, "offload_param": {"device": "cpu"})"));
    EXPECT_FALSE(offloaded(at_stage + R"(, "offload_param": {"device": "nvme"})"));
  }
}

TEST(ConfigRulesTest, OffloadingTurnsContiguousGradientsOnBelowStage3) {
  for (const auto& [stage, kept] : {std::pair{1, true}, std::pair{2, true}, std::pair{3, false}}) {
    const std::string members = "\"stage\": " + std::to_string(stage) +
                                R"(, "contiguous_gradients": false,
                                   "offload_optimizer": {"device": "cpu"})";
    EXPECT_EQ(accepted(zero_with(members)).contiguous_gradients, kept);
  }
}

TEST(ConfigRulesTest, OffloadIsRefusedByNameUnlessItsDeviceIsNone) {
  EXPECT_THAT(refusal(zero_with(R"("offload_param": {"device": "gpu"})")),
              HasSubstr("expected one of none, cpu, nvme, got \"gpu\""));
  EXPECT_EQ(accepted(zero_with(R"("offload_optimizer": {"device": "none", "pin_memory": true},
                                  "offload_param": null)")),
            TrainingConfig());
  EXPECT_THAT(refusal(zero_with(R"("stage": 2, "offload_optimizer": {"ratio": 0.5})")),
              HasSubstr("only stage 3"));
}

TEST(ConfigRulesTest, DeprecatedKeysNameTheirMend) {
  EXPECT_EQ(accepted(zero_with(R"("cpu_offload": false, "cpu_offload_use_pin_memory": true)")),
            TrainingConfig());
  for (const char* section : {"{}", "null"})
    EXPECT_THAT(
        refusal(zero_with(R"("cpu_offload": false, "offload_optimizer": )" + std::string(section))),
        HasSubstr("deprecated name of offload_optimizer"));
  EXPECT_EQ(accepted(zero_with(R"("cpu_offload": "auto", "offload_optimizer": {})")),
            TrainingConfig());
  EXPECT_EQ(accepted(zero_with(R"("stage3_gather_fp16_weights_on_model_save": true)")),
            TrainingConfig());
  EXPECT_THAT(refusal(zero_with(R"("stage3_gather_fp16_weights_on_model_save": true,
                                   "gather_16bit_weights_on_model_save": true)")),
              HasSubstr("deprecated name"));
  EXPECT_THAT(refusal(zero_with(R"("stage": 1, "legacy_stage1": true)")),
              HasSubstr("removed this path"));
}

TEST(ConfigRulesTest, TwoNamesOfOneFieldAreRefused) {
  EXPECT_THAT(refusal(zero_with(R"("prefetch_bucket_size": 1, "stage3_prefetch_bucket_size": 1)")),
              HasSubstr("/prefetch_bucket_size: is another name of stage3_prefetch_bucket_size"));
  EXPECT_EQ(accepted(zero_with(R"("prefetch_bucket_size": 1)")).stage3_prefetch_bucket_size, 1);
}

TEST(ConfigRulesTest, ReduceScatterForbidsScaledReductionsFromStage2On) {
  const auto config = [](int stage, const std::string& scatter) {
    return R"({"prescale_gradients": true, "gradient_predivide_factor": 2,
               "zero_optimization": {"stage": )" +
           std::to_string(stage) + R"(, "reduce_scatter": )" + scatter + "}}";
  };
  EXPECT_EQ(read_config(config(1, "true")).problems.size(), 0U);
  EXPECT_EQ(read_config(config(2, "true")).problems.size(), 2U);
  EXPECT_EQ(read_config(config(3, "true")).problems.size(), 2U);
  EXPECT_EQ(read_config(config(3, "false")).problems.size(), 0U);
}

TEST(ConfigRulesTest, OtherOptimizersAreRefusedByName) {
  EXPECT_EQ(refusal(R"({"optimizer": {"type": "Lamb"}})"),
            "/optimizer/type: \"Lamb\" is not built in dstune-mpi yet: write Adam, AdamW, Lion, "
            "Adagrad or SGD");
  for (const char* type : {"OneBitAdam", "ZeroOneAdam", "OneBitLamb", "MuAdam", "Muon", "RMSprop"})
    EXPECT_THAT(refusal(std::string(R"({"optimizer": {"type": ")") + type + R"("}})"),
                HasSubstr("not built"));
  EXPECT_THAT(refusal(R"({"optimizer": {"params": {"max_grad_norm": 1.0}}})"),
              HasSubstr("write gradient_clipping"));
  EXPECT_THAT(refusal(R"({"optimizer": {"params": {"bias_correction": false}}})"),
              HasSubstr("not built"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": 5}})"), HasSubstr("expected a text"));
}

TEST(ConfigRulesTest, MicsAndHpzExcludeWhatDeepSpeedDoesNotRunWithThem) {
  const auto stage3 = [](const std::string& keys) { return zero_with(R"("stage": 3, )" + keys); };
  const auto is_plain = [](const TrainingConfig& config) {
    return config.mics_shard_size == 0 && config.zero_hpz_partition_size == 1 &&
           !config.mics_hierarchical_params_gather;
  };
  EXPECT_EQ(accepted(stage3(R"("mics_shard_size": 4)")).mics_shard_size, 4);
  EXPECT_EQ(accepted(stage3(R"("zero_hpz_partition_size": 4)")).zero_hpz_partition_size, 4);
  EXPECT_TRUE(is_plain(accepted(stage3(R"("mics_shard_size": 0)"))));
  EXPECT_TRUE(is_plain(accepted(stage3(R"("mics_shard_size": -7)"))));
  EXPECT_TRUE(is_plain(accepted(stage3(R"("zero_hpz_partition_size": 0)"))));
  EXPECT_TRUE(is_plain(accepted(stage3(R"("mics_hierarchical_params_gather": true)"))));
  EXPECT_THAT(refusal(stage3(R"("mics_shard_size": 1)")), HasSubstr("partitions nothing"));
  EXPECT_THAT(refusal(stage3(R"("mics_shard_size": 2, "zero_hpz_partition_size": 2)")),
              HasSubstr("with mics_shard_size is not built"));
  for (const char* offload :
       {R"(, "offload_param": {"device": "cpu"})", R"(, "cpu_offload_param": true)"}) {
    EXPECT_THAT(refusal(stage3(R"("mics_shard_size": 2)" + std::string(offload))),
                HasSubstr("with offload_param"));
    EXPECT_EQ(accepted(stage3(R"("zero_hpz_partition_size": 2)" + std::string(offload)))
                  .zero_hpz_partition_size,
              2);
  }
  EXPECT_THAT(refusal(stage3(R"("zero_hpz_partition_size": 2,
                                "offload_param": {"device": "nvme", "nvme_path": "/nvme"})")),
              HasSubstr("where offload_param.device is nvme"));
}

TEST(ConfigRulesTest, QuantizedReductionsNeedReduceScatter) {
  const auto with = [](const std::string& keys) {
    return zero_with(R"("zero_quantized_gradients": true, "stage": )" + keys);
  };
  EXPECT_TRUE(accepted(with("3")).zero_quantized_gradients);
  EXPECT_THAT(refusal(with(R"(3, "reduce_scatter": false)")), HasSubstr("without reduce_scatter"));
  accepted(with(R"(2, "reduce_scatter": false)"));
  const TrainingConfig mics = accepted(
      with(R"(3, "reduce_scatter": false, "zero_quantized_weights": true, "mics_shard_size": 2)"));
  EXPECT_FALSE(mics.zero_quantized_gradients);
  EXPECT_FALSE(mics.zero_quantized_weights);
}

TEST(ConfigRulesTest, MicsDropsWhatDeepSpeedDoesNotHandOn) {
  const std::string keys =
      R"("stage": 3, "stage3_allgather_sequential": true, "stage3_module_granularity_threshold": 9,
         "stage3_use_all_reduce_for_fetch_params": true, "mics_shard_size": )";
  const TrainingConfig without = accepted(zero_with(keys + "-1"));
  EXPECT_TRUE(without.stage3_allgather_sequential);
  EXPECT_TRUE(without.stage3_use_all_reduce_for_fetch_params);
  EXPECT_EQ(without.stage3_module_granularity_threshold, 9);
  const TrainingConfig with = accepted(zero_with(keys + "2"));
  EXPECT_FALSE(with.stage3_allgather_sequential);
  EXPECT_FALSE(with.stage3_use_all_reduce_for_fetch_params);
  EXPECT_EQ(with.stage3_module_granularity_threshold, 0);
}

TEST(ConfigRulesTest, SchedulersNeedTheirParameters) {
  const auto config = [](const std::string& type, const std::string& params) {
    return R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}";
  };
  EXPECT_THAT(refusal(config("WarmupDecayLR", "")), HasSubstr("needs total_num_steps"));
  EXPECT_EQ(accepted(config("WarmupDecayLR", R"("total_num_steps": "auto")")), TrainingConfig());
  EXPECT_EQ(read_config(config("OneCycle", "")).problems.size(), 2U);
  EXPECT_EQ(accepted(config("WarmupLR", R"("warmup_num_steps": 10)")), TrainingConfig());
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupLR"}})"), HasSubstr("needs the section"));
}

TEST(ConfigRulesTest, SchedulersRefuseWhatTheyDoNotTake) {
  const auto config = [](const std::string& type, const std::string& params) {
    return R"({"scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}}";
  };
  EXPECT_THAT(refusal(config("WarmupLR", R"("cycle_min_lr": 0.1)")),
              HasSubstr("/scheduler/params/cycle_min_lr: WarmupLR does not take it"));
  EXPECT_THAT(refusal(config("WarmupLR", R"("warmup": 1)")), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(config("warmuplr", "")), HasSubstr("expected one of"));
  EXPECT_EQ(accepted(config("StepLR", R"("step_size": 10)")), TrainingConfig());
  EXPECT_THAT(refusal(R"({"bf16": {"enabled": true},
                          "scheduler": {"type": "StepLR", "params": {"step_size": 1}}})"),
              HasSubstr("at stage 0 in fp32 alone"));
}

TEST(ConfigRulesTest, EachOptimizerTakesItsOwnArguments) {
  const auto config = [](const std::string& type, const std::string& params, bool on_host = false) {
    return R"({"optimizer": {"type": ")" + type + R"(", "params": {)" + params +
           R"(}}, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": ")" +
           (on_host ? "cpu" : "none") + R"("}}, "zero_allow_untested_optimizer": true})";
  };
  const auto is_taken = [&](const std::string& type, const std::string& params,
                            bool on_host = false) {
    return read_config(config(type, params, on_host)).problems.empty();
  };
  EXPECT_THAT(refusal(config("AdamW", R"("fused": true)")),
              HasSubstr("/optimizer/params/fused: DeepSpeed's FusedAdam does not take it"));
  EXPECT_TRUE(is_taken("AdamW", R"("fused": true, "torch_adam": true)"));
  EXPECT_FALSE(is_taken("AdamW", R"("set_grad_none": true, "torch_adam": true)"));
  EXPECT_TRUE(is_taken("AdamW", R"("set_grad_none": true)"));
  EXPECT_FALSE(is_taken("AdamW", R"("set_grad_none": true)", true));
  EXPECT_FALSE(is_taken("AdamW", R"("momentum": 0.9)"));
  EXPECT_TRUE(is_taken("SGD", R"("momentum": 0.9, "nesterov": true, "foreach": false)", true));
  EXPECT_FALSE(is_taken("SGD", R"("betas": [0.9, 0.99])"));
  EXPECT_FALSE(is_taken("Lion", R"("eps": 1e-8)"));
  EXPECT_TRUE(is_taken("Lion", R"("set_grad_none": true)"));
  EXPECT_FALSE(is_taken("Lion", R"("set_grad_none": true)", true));
  EXPECT_TRUE(is_taken("Adagrad", R"("lr_decay": 0.1, "initial_accumulator_value": 0.1)"));
  EXPECT_FALSE(is_taken("Adagrad", R"("lr_decay": 0.1)", true));
  EXPECT_FALSE(is_taken("Adagrad", R"("torch_adam": false)"));
}

TEST(ConfigRulesTest, SgdIsPyTorchsAndUntestedWithZero) {
  const auto config = [](const std::string& type, int stage, const std::string& params,
                         const std::string& more = "") {
    return R"({"optimizer": {"type": ")" + type + R"(", "params": {)" + params +
           R"(}}, "zero_optimization": {"stage": )" + std::to_string(stage) + "}" + more + "}";
  };
  EXPECT_EQ(accepted(config("SGD", 0, "")).optimizer.kind, OptimizerKind::sgd);
  EXPECT_THAT(refusal(config("sgd", 0, "")), HasSubstr("write SGD"));
  EXPECT_THAT(refusal(config("SGD", 2, "")), HasSubstr("zero_allow_untested_optimizer"));
  EXPECT_EQ(
      accepted(config("SGD", 2, "", R"(, "zero_allow_untested_optimizer": true)")).optimizer.kind,
      OptimizerKind::sgd);
  EXPECT_THAT(refusal(config("SGD", 0, R"("nesterov": true)")), HasSubstr("needs momentum"));
  EXPECT_THAT(refusal(config("SGD", 0, R"("nesterov": true, "momentum": 0.9, "dampening": 0.1)")),
              HasSubstr("no dampening"));
  EXPECT_TRUE(
      accepted(config("SGD", 0, R"("nesterov": true, "momentum": 0.9)")).optimizer.nesterov);
}

TEST(ConfigRulesTest, TypesOfDataFollowTheMode) {
  const auto config = [](const std::string& types) {
    return R"({"bf16": {"enabled": true}, "data_types": {)" + types + "}}";
  };
  EXPECT_TRUE(read_config(config(R"("param_dtype": "bfloat16")")).problems.empty());
  EXPECT_THAT(refusal(config(R"("param_dtype": "fp32")")), HasSubstr("type of the mode"));
  EXPECT_THAT(refusal(config(R"("grad_accum_dtype": "float")")), HasSubstr("at stage 0"));
}

TEST(ConfigRulesTest, SumsOfGradientsAreOfTheModeOrFp32) {
  const auto config = [](int stage, const std::string& type, const std::string& more = "") {
    return R"({"bf16": {"enabled": true)" + more + R"(}, "data_types": {"grad_accum_dtype": ")" +
           type + R"("}, "zero_optimization": {"stage": )" + std::to_string(stage) + "}}";
  };
  for (const int stage : {1, 3}) {
    EXPECT_TRUE(accepted(config(stage, "fp32")).fp32_gradient_accumulation);
    EXPECT_FALSE(accepted(config(stage, "bf16")).fp32_gradient_accumulation);
    EXPECT_THAT(refusal(config(stage, "fp16")), HasSubstr("not built"));
  }
  const std::string on_host = R"(, "offload_optimizer": {"device": "cpu"}}})";
  const auto offloaded = [&](int stage) {
    const std::string whole = config(stage, "fp32");
    return whole.substr(0, whole.size() - 2) + on_host;
  };
  EXPECT_TRUE(accepted(offloaded(1)).fp32_gradient_accumulation);
  EXPECT_TRUE(accepted(offloaded(3)).fp32_gradient_accumulation);
  EXPECT_FALSE(accepted(config(2, "fp32")).fp32_gradient_accumulation);
  EXPECT_FALSE(accepted(R"({"data_types": {"grad_accum_dtype": "fp32"},
                            "zero_optimization": {"stage": 3}})")
                   .fp32_gradient_accumulation);
  // It says something to BF16_Optimizer alone.
  const std::string immediate = R"(, "immediate_grad_update": true)";
  EXPECT_TRUE(accepted(config(1, "fp32", immediate)).immediate_grad_update);
  EXPECT_FALSE(accepted(config(1, "bf16", immediate)).immediate_grad_update);
  EXPECT_FALSE(accepted(config(2, "fp32", immediate)).immediate_grad_update);
}

TEST(ConfigRulesTest, MasterWeightsOf16BitsNeedTheirPartners) {
  const auto bf16 = [](int stage, const std::string& keys, const std::string& zero = "",
                       const std::string& optimizer = "") {
    return R"({"bf16": {"enabled": true, )" + keys + R"(}, "zero_optimization": {"stage": )" +
           std::to_string(stage) + zero + "}" + optimizer + "}";
  };
  const std::string on_host = R"(, "offload_optimizer": {"device": "cpu"})";
  const std::string master = R"("bf16_master_weights_and_grads": true)";
  const std::string states = R"(, "bf16_optimizer_states": true)";
  const std::string torch_adam =
      R"(, "optimizer": {"type": "AdamW", "params": {"torch_adam": true}})";
  EXPECT_THAT(refusal(bf16(0, master)), HasSubstr("needs ZeRO stage"));
  EXPECT_THAT(refusal(bf16(1, master)), HasSubstr("bf16_optimizer_states"));
  EXPECT_THAT(refusal(bf16(1, R"("bf16_optimizer_states": true)")), HasSubstr("needs bf16_master"));
  EXPECT_THAT(refusal(bf16(1, master, on_host, torch_adam)), HasSubstr("DeepSpeed's Adam"));
  TrainingConfig config = accepted(bf16(3, master, on_host));
  EXPECT_TRUE(config.low_precision_master);
  EXPECT_FALSE(config.low_precision_moments);
  for (const std::string& zero : {std::string(), on_host}) {
    config = accepted(bf16(2, master + states, zero));
    EXPECT_TRUE(config.low_precision_master && config.low_precision_moments);
  }
  EXPECT_TRUE(accepted(bf16(2, master, on_host,
                            R"(, "optimizer": {"params": {"fp32_optimizer_states": false}})"))
                  .low_precision_moments);
  const auto fp16 = [](const std::string& zero) {
    return R"({"fp16": {"enabled": true, "fp16_master_weights_and_grads": true},
               "zero_optimization": {"stage": 2)" +
           zero + "}}";
  };
  EXPECT_THAT(refusal(fp16("")), HasSubstr("offloaded to the host"));
  EXPECT_TRUE(accepted(fp16(on_host)).low_precision_master);
}

TEST(ConfigRulesTest, SectionsWantWhatDeepSpeedTakesOutOfThem) {
  EXPECT_THAT(refusal(R"({"amp": {"opt_level": "O1"}})"), HasSubstr("needs enabled"));
  EXPECT_EQ(accepted(R"({"amp": {"enabled": false, "opt_level": "O1"}})"), TrainingConfig());
  EXPECT_THAT(refusal(R"({"compression_training": {"row_pruning": {}}})"),
              HasSubstr("needs different_groups"));
}

TEST(ConfigRulesTest, ContiguousCheckpointsNeedTheirPartners) {
  EXPECT_THAT(refusal(R"({"activation_checkpointing": {"contiguous_memory_optimization": true}})"),
              HasSubstr("needs partition_activations and number_checkpoints"));
  EXPECT_EQ(accepted(R"({"activation_checkpointing": {"contiguous_memory_optimization": true,
                         "partition_activations": true, "number_checkpoints": 4}})"),
            TrainingConfig());
}

TEST(ConfigRulesTest, DynamicLossScalesNeedAWindow) {
  const auto on = [](const std::string& members) {
    return R"({"fp16": {"enabled": true, )" + members + "}}";
  };
  EXPECT_THAT(refusal(on(R"("loss_scale_window": 0)")), HasSubstr("must be above 0"));
  EXPECT_THAT(refusal(on(R"("min_loss_scale": 0)")), HasSubstr("must be above 0"));
  EXPECT_THAT(refusal(on(R"("initial_scale_power": 64)")), HasSubstr("at most 63"));
  EXPECT_EQ(accepted(on(R"("initial_scale_power": 63)")).loss_scale.initial_power, 63);
  // As in DeepSpeed, the others are not looked at where they say nothing.
  const std::string broken = R"("loss_scale_window": 0, "min_loss_scale": 0)";
  EXPECT_EQ(accepted(on(broken + R"(, "loss_scale": 128)")).loss_scale, (LossScale{.fixed = 128}));
  EXPECT_EQ(accepted(R"({"fp16": {)" + broken + "}}"), TrainingConfig());
}

}  // namespace
}  // namespace dstune
