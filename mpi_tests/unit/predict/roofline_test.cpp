#include "dstune/predict/roofline.hpp"

#include <gtest/gtest.h>

#include "dstune/predict/step_predictor.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

using test::SomeWorkspaces;

constexpr double gib = 0x1p30;

Cluster cluster_of(std::string_view device, std::string_view network = {}) {
  Cluster cluster{.device = *find_device_spec(device)};
  if (!network.empty()) cluster.network = *find_network_spec(network);
  return completed(cluster);
}

Work collective(WorkKind kind, double bytes, std::int64_t ranks = 0, std::int64_t stride = 0) {
  return {kind, DType::bf16, DType::bf16, 0, ranks, stride, static_cast<std::int64_t>(bytes)};
}

/// As nccl-tests counts it.
double bus_bandwidth(const Roofline& roofline, WorkKind kind, double bytes, double ranks) {
  const double travels = (kind == WorkKind::all_reduce ? 2 : 1) * (ranks - 1) / ranks * bytes;
  return travels / roofline.seconds(collective(kind, bytes));
}

TrainingConfig config_of(int stage, Precision precision, std::int64_t micro_batch,
                         std::int64_t sequence) {
  TrainingConfig config;
  config.zero_stage = stage;
  config.precision = precision;
  config.micro_batch = micro_batch;
  config.sequence_length = sequence;
  config.overlap_comm = stage == 3;
  return config;
}

TargetStepTime target_time(const std::string& model, const Cluster& cluster, GroupShape shape,
                           const TrainingConfig& config,
                           TargetAttention attention = TargetAttention::flash) {
  Experiment experiment;
  experiment.shape = shape;
  experiment.config = config;
  place_on(shape, experiment.config);
  const SomeWorkspaces workspaces;
  StepPredictor predictor(preset(model), published_profile(cluster), workspaces,
                          default_policy().predicting, TargetSpec{.attention = attention});
  const auto time = predictor.target_time(experiment);
  EXPECT_TRUE(time.has_value());
  return time.value_or(TargetStepTime{});
}

TEST(Roofline, AllReduceInANodeIsAsPublished) {
  // 8 x H200, all-reduce by size in GB/s: ML Engineering, network/benchmarks.
  const Roofline h200(cluster_of("h200"), {8, 1}, std::nullopt);
  const auto at = [&](double bytes) {
    return bus_bandwidth(h200, WorkKind::all_reduce, bytes, 8) / 1e9;
  };
  EXPECT_NEAR(at(16 * gib), 482, 0.03 * 482);
  EXPECT_NEAR(at(gib), 466, 0.05 * 466);
  EXPECT_NEAR(at(gib / 16), 369, 0.15 * 369);
  EXPECT_NEAR(at(gib / 64), 256, 0.15 * 256);
  EXPECT_NEAR(at(gib / 1024), 74.6, 0.2 * 74.6);
  EXPECT_NEAR(at(gib / 32768), 3.15, 0.2 * 3.15);
  // An H100 has the same links.
  const Roofline h100(cluster_of("h100"), {8, 1}, std::nullopt);
  EXPECT_NEAR(bus_bandwidth(h100, WorkKind::all_reduce, gib, 8) / 1e9, 482, 0.15 * 482);
  const Roofline a100(cluster_of("a100-80gb"), {8, 1}, std::nullopt);
  EXPECT_NEAR(bus_bandwidth(a100, WorkKind::all_reduce, 4 * gib, 8) / 1e9, 235, 0.05 * 235);
}

TEST(Roofline, AllReduceBetweenNodesIsAsPublished) {
  // 4 x 8 x B200 with 8 x 400 Gb/s a node: the same source.
  const Roofline b200(cluster_of("b200", "ib-ndr"), {8, 4}, std::nullopt);
  const auto at = [&](double bytes) {
    return bus_bandwidth(b200, WorkKind::all_reduce, bytes, 32) / 1e9;
  };
  EXPECT_NEAR(at(16 * gib), 377, 0.03 * 377);
  EXPECT_NEAR(at(gib / 4), 283, 0.2 * 283);
  EXPECT_NEAR(at(gib / 16), 198, 0.2 * 198);
  EXPECT_NEAR(at(gib / 128), 50.6, 0.25 * 50.6);
  EXPECT_NEAR(at(gib / 32768), 0.65, 0.3 * 0.65);
}

TEST(Roofline, PartsOfTheGroupUseTheirOwnLinks) {
  const Roofline roofline(cluster_of("a100-80gb", "ib-hdr"), {8, 4}, std::nullopt);
  const auto gather_s = [&](std::int64_t ranks, std::int64_t stride) {
    return roofline.seconds(collective(WorkKind::all_gather, gib, ranks, stride));
  };
  // A node's ranks need no network. One rank of each node has an eighth of it.
  EXPECT_NEAR(gather_s(8, 1), 7.0 / 8 * gib / 235e9, 0.1 * 7.0 / 8 * gib / 235e9);
  EXPECT_NEAR(gather_s(4, 8), 3.0 / 4 * gib / (90e9 / 8), 0.1 * 3.0 / 4 * gib / (90e9 / 8));
  EXPECT_GT(gather_s(4, 8), gather_s(0, 0));
  EXPECT_GT(gather_s(0, 0), 2 * gather_s(8, 1));
  // Between two of MI300X there is one link of seven: 47.7 GB/s, of all 312.9 (ML Engineering).
  const Roofline pair(cluster_of("mi300x"), {2, 1}, std::nullopt);
  EXPECT_NEAR(bus_bandwidth(pair, WorkKind::all_reduce, 4 * gib, 2) / 1e9, 47.7, 0.1 * 47.7);
}

TEST(Roofline, ProductsReachLessWhereTheyAreSmallOrUneven) {
  const Roofline roofline(cluster_of("a100-80gb"), {1, 1}, std::nullopt);
  const auto flops = [&](std::int64_t m, std::int64_t n, std::int64_t k, DType type) {
    const Work work{WorkKind::matmul, type, type, 0, n, k, m};
    return amount(work) / roofline.seconds(work);
  };
  const double large = flops(8192, 8192, 8192, DType::bf16);
  EXPECT_GT(large, 0.5 * 312e12);
  EXPECT_LT(large, 0.87 * 312e12);
  EXPECT_LT(flops(256, 768, 768, DType::bf16), 0.5 * large);
  EXPECT_NEAR(flops(8192, 50257, 8192, DType::bf16), large / 2, 0.05 * large);
  // Without TF32 a product in fp32 is done by the ordinary units.
  EXPECT_LT(flops(8192, 8192, 8192, DType::f32), 19.5e12);
  // One row of tokens is bound by the weights' bytes.
  EXPECT_NEAR(flops(8, 8192, 8192, DType::bf16), 8 * 2039e9 * 0.9, 0.15 * 8 * 2039e9 * 0.9);
}

TEST(Roofline, TheTrainingsKernelsMoveMoreThanOurs) {
  const TargetKernels kernels{.attention = TargetAttention::eager, .num_heads = 16};
  TargetKernels fused = kernels;
  fused.attention = TargetAttention::flash;
  fused.loss = TargetLoss::fused;
  const DType type = DType::bf16;
  Work norm{WorkKind::norm_forward, type, type, 0, 4096, 0, 1024};
  norm.set(WorkFlag::rms);
  // A copy in fp32, the square, its mean, the scaled value, the copy back, the weight.
  EXPECT_EQ(target_bytes(norm, kernels), 1024.0 * 4096 * (6 + 8 + 4 + 8 + 6 + 4));
  EXPECT_LT(target_bytes(norm, fused), target_bytes(norm, kernels) / 5);
  const Work loss{WorkKind::cross_entropy, type, type, 0, 32000, 0, 1024};
  EXPECT_GT(target_bytes(loss, kernels), 3 * target_bytes(loss, fused));
  const Work attention{WorkKind::attention_forward, type, type, 0, 4096, 2048, 1};
  const Roofline eager(cluster_of("a100-80gb"), {1, 1}, kernels);
  const Roofline flash(cluster_of("a100-80gb"), {1, 1}, fused);
  EXPECT_GT(eager.seconds(attention), 2 * flash.seconds(attention));
  const Work update{WorkKind::update, DType::f32, type, 0, 0, 12, 1 << 24};
  TargetKernels list_wise = kernels;
  list_wise.list_wise_optimizer = true;
  EXPECT_GT(target_bytes(update, list_wise), 1.5 * target_bytes(update, kernels));
}

TEST(Roofline, TheHostUpdatesForAllRanksOfItsNode) {
  const Work update{WorkKind::update, DType::f32, DType::f32, 0, 0, 12, 1'000'000'000};
  const Roofline alone(cluster_of("v100-32gb"), {1, 1}, TargetKernels{});
  // 10.3e9 parameters in 6.35 s on the host of a DGX-2: DeepSpeed's tutorial of ZeRO-Offload.
  EXPECT_NEAR(10.28 * alone.seconds(update, true), 6.35, 0.1 * 6.35);
  const Roofline eight(cluster_of("v100-32gb"), {8, 1}, std::nullopt);
  EXPECT_NEAR(eight.seconds(update, true), 8 * alone.seconds(update, true), 1e-6);
  EXPECT_LT(alone.seconds(update), alone.seconds(update, true));
  Work copy{WorkKind::copy, DType::bf16, DType::bf16, 0, 0, 0, 1 << 30};
  copy.set(WorkFlag::to_host);
  EXPECT_NEAR(alone.seconds(copy), 0x1p31 / 12.5e9, 1e-3);
}

TEST(Roofline, NamesWhatIsMissing) {
  EXPECT_NE(roofline_lacks({}, {8, 1}).find("dstune.device.name"), std::string::npos);
  Cluster cluster{.device = DeviceSpec{.name = "X", .memory_bytes = 1}};
  EXPECT_NE(roofline_lacks(cluster, {8, 1}).find("dstune.device.name"), std::string::npos);
  EXPECT_EQ(roofline_lacks(cluster_of("l4"), {8, 1}), "");
  EXPECT_NE(roofline_lacks(cluster_of("l4"), {8, 2}).find("dstune.device.network"),
            std::string::npos);
  EXPECT_EQ(roofline_lacks(cluster_of("l4", "ethernet-25"), {8, 2}), "");
}

TEST(TargetTime, SevenBillionParametersOnEightA100ReachAUsualShare) {
  TrainingConfig config = config_of(3, Precision::bf16, 4, 4096);
  config.recompute = Recompute::block;
  const TargetStepTime time = target_time("llama-7b", cluster_of("a100-80gb"), {8, 1}, config);
  const double tokens = 4.0 * 4096;
  const double flops = 6 * 6.74e9 + 6.0 * 32 * 4096 * 4096;
  const double utilization = flops * tokens / time.seconds / 312e12;
  EXPECT_GT(utilization, 0.25);
  EXPECT_LT(utilization, 0.6);
  EXPECT_LT(time.low_s, time.seconds);
  EXPECT_LE(time.high_s, 2 * time.low_s);
}

TEST(TargetTime, StagesOfGpt2XlAreInThePublishedOrder) {
  // 40, 33 and 13 samples/s on 16 x V100: DeepSpeedExamples, training/autotuning/hf/gpt2-xl.
  std::vector<double> samples_per_s;
  for (const int stage : {1, 2, 3}) {
    TrainingConfig config = config_of(stage, Precision::fp16, 1, 1024);
    const TargetStepTime time =
        target_time("gpt2-xl", cluster_of("v100-32gb"), {16, 1}, config, TargetAttention::eager);
    samples_per_s.push_back(16 / time.seconds);
  }
  // One micro-step reduces as much at stage 2 as at stage 1.
  EXPECT_GE(samples_per_s[0], samples_per_s[1]);
  EXPECT_GT(samples_per_s[1], 1.5 * samples_per_s[2]);
  EXPECT_NEAR(samples_per_s[0], 40, 0.41 * 40);
  EXPECT_NEAR(samples_per_s[1], 33, 0.41 * 33);
  EXPECT_NEAR(samples_per_s[2], 13, 0.41 * 13);
}

TEST(TargetTime, ASlowNetworkCostsEachStageWhatItSends) {
  // Bytes of P parameters that a micro-step sends: 3 at stage 3; 2 at stage 2, and 1 an update;
  // stage 1 sends its 3 in an update alone.
  const Cluster cluster = cluster_of("a100-80gb", "ethernet-25");
  std::array<double, 4> seconds{};
  for (const int stage : {1, 2, 3}) {
    TrainingConfig config = config_of(stage, Precision::bf16, 1, 512);
    config.accumulation_steps = 4;
    seconds.at(stage) = target_time("llama-7b", cluster, {8, 2}, config).seconds;
  }
  EXPECT_NEAR(seconds[3] / seconds[2], 12.0 / 9, 0.15 * 12 / 9);
  EXPECT_NEAR(seconds[3] / seconds[1], 4, 0.25 * 4);
  // Parameters that each node has once more are gathered inside it.
  TrainingConfig config = config_of(3, Precision::bf16, 1, 512);
  config.accumulation_steps = 4;
  config.zero_hpz_partition_size = 8;
  EXPECT_LT(target_time("llama-7b", cluster, {8, 2}, config).seconds, 0.8 * seconds[3]);
}

TEST(TargetTime, FrozenParametersCostNoGradients) {
  Experiment experiment;
  experiment.shape = {8, 2};
  experiment.config = config_of(2, Precision::bf16, 2, 2048);
  const SomeWorkspaces workspaces;
  const auto seconds = [&](const std::optional<Trainable>& trainable) {
    TargetSpec target{.attention = TargetAttention::flash};
    target.trainable = trainable;
    StepPredictor predictor(preset("llama-7b"),
                            published_profile(cluster_of("a100-80gb", "ethernet-25")), workspaces,
                            default_policy().predicting, target);
    return predictor.target_time(experiment).value();
  };
  const Trainable adapters{.names = {}, .rank = 16, .targets = {"all-linear"}};
  const TargetStepTime all = seconds(std::nullopt);
  const TargetStepTime lora = seconds(adapters);
  // A slow network has hardly anything to carry.
  EXPECT_LT(lora.seconds, all.seconds / 10);
  // Stage 3 gathers the frozen parameters in forward and backward, two of three transfers.
  experiment.config = config_of(3, Precision::bf16, 2, 2048);
  const double ratio = seconds(adapters).seconds / seconds(std::nullopt).seconds;
  EXPECT_NEAR(ratio, 2.0 / 3, 0.1);
  // Without the network two of three products are left: forward, and the gradients of inputs.
  experiment.shape = {1, 1};
  experiment.config = config_of(0, Precision::bf16, 2, 2048);
  EXPECT_NEAR(seconds(adapters).device_s / seconds(std::nullopt).device_s, 0.65, 0.08);
  // All parameters by name are all of them.
  const Trainable whole{.names = {"*"}, .rank = 0, .targets = {}};
  EXPECT_EQ(seconds(whole).seconds, seconds(std::nullopt).seconds);
}

TEST(TargetTime, IsNothingWithoutRatesOrATarget) {
  Experiment experiment;
  experiment.shape = {8, 2};
  experiment.config = config_of(2, Precision::bf16, 1, 256);
  const SomeWorkspaces workspaces;
  const auto time_with = [&](const std::optional<DeviceProfile>& profile,
                             const std::optional<TargetSpec>& target) {
    return StepPredictor(preset("gpt2"), profile, workspaces, default_policy().predicting, target)
        .target_time(experiment);
  };
  const DeviceProfile complete = published_profile(cluster_of("h100", "ib-ndr"));
  EXPECT_TRUE(time_with(complete, TargetSpec{}));
  EXPECT_FALSE(time_with(complete, std::nullopt));
  EXPECT_FALSE(time_with(complete, TargetSpec{.framework = TargetFramework::self}));
  EXPECT_FALSE(time_with(published_profile(cluster_of("h100")), TargetSpec{}));
  EXPECT_FALSE(time_with(std::nullopt, TargetSpec{}));
  DeviceProfile measured = complete;
  measured.kernels.push_back({{WorkKind::add, DType::f32, DType::f32, 0, 0, 0, 0}, {{1, 1e-9}}});
  EXPECT_FALSE(time_with(measured, TargetSpec{}));
}

TEST(PublishedProfile, GivesWhatNoCurveTells) {
  DeviceProfile profile = published_profile(cluster_of("a100-80gb", "ib-hdr"));
  EXPECT_FALSE(profile.empty());
  const Work product{WorkKind::matmul, DType::bf16, DType::bf16, 0, 4096, 4096, 4096};
  const Work reduction = collective(WorkKind::all_reduce, gib);
  const Roofline roofline(*profile.cluster, {8, 2}, std::nullopt);
  OperationTimes published(profile, {8, 2});
  EXPECT_EQ(published.seconds(product), roofline.seconds(product));
  EXPECT_EQ(published.seconds(reduction), roofline.seconds(reduction));
  // What was measured wins; a node's links say nothing of the network.
  Work curve = product;
  curve.size = 0;
  profile.kernels.push_back({curve, {{4096, 1.0}}});
  Work links = reduction;
  links.size = 0;
  profile.groups.push_back({.shape = {8, 1}, .collectives = {{links, {{1 << 30, 2.0}}}}});
  OperationTimes both(profile, {8, 2});
  EXPECT_EQ(both.seconds(product), 1);
  EXPECT_EQ(both.seconds(reduction), roofline.seconds(reduction));
  OperationTimes in_node(profile, {8, 1});
  EXPECT_EQ(in_node.seconds(reduction), 2);
}

TEST(PublishedProfile, IsWrittenAndReadAgain) {
  const DeviceProfile profile = published_profile(cluster_of("gh200"));
  const json::Value written = to_json(profile);
  EXPECT_TRUE(written.contains("cluster"));
  const auto document = json::Document::parse(written.dump(), "profile.json");
  EXPECT_EQ(device_profile_from_json(document.node()), profile);
  EXPECT_FALSE(to_json(DeviceProfile{}).contains("cluster"));
}

TEST(Roofline, GemmaTwoIsEagerAndItsCapsMoveBytes) {
  const ModelSpec gemma2 = test::tiny_model(ModelFamily::gemma2);
  const TargetKernels capped = target_kernels(gemma2, TrainingConfig(), TargetSpec());
  EXPECT_EQ(capped.attention, TargetAttention::eager);
  TargetKernels plain = capped;
  plain.caps_scores = plain.caps_logits = false;
  // Six bytes an element of a type's size there and seven back, of scores and of logits.
  const Work scores{WorkKind::attention_forward, DType::bf16, DType::bf16, 0, 64, 32, 2};
  const double more = target_bytes(scores, capped) - target_bytes(scores, plain);
  EXPECT_EQ(more, 6.0 * 2 * static_cast<double>(2 * capped.num_heads * 64 * 64));
  const Work logits{WorkKind::cross_entropy, DType::bf16, DType::bf16, 0, 100, 0, 5};
  EXPECT_EQ(target_bytes(logits, capped) - target_bytes(logits, plain), 13.0 * 2 * 500);
  EXPECT_EQ(
      target_kernels(test::tiny_model(ModelFamily::gemma3_text), TrainingConfig(), TargetSpec())
          .attention,
      TargetAttention::sdpa);
}

}  // namespace
}  // namespace dstune
