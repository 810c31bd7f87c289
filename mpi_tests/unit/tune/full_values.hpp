#pragma once
/// Values whose every member differs from its default, for tests of how values are written and
/// read.

#include "dstune/base/text.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/tune/protocol.hpp"
#include "start/rank_devices.hpp"
#include "value_fields.hpp"

namespace dstune::test {

/// But those that earlier releases do not know, so that what is written can be compared with
/// theirs.
inline TrainingConfig full_config() {
  TrainingConfig config;
  for_each_written_member(config, [](const char*, auto& member) { change(member); });
  return config;
}

inline Measurement full_measurement() {
  Measurement measurement;
  measurement.status = Status::raced_out;
  measurement.reason = "slower than \"z1\" by 3 %";
  measurement.step_times_s = {0.75, 0.1, 1.0 / 3, 2};
  measurement.warmup_steps = 1;
  measurement.skipped_steps = {0, 2};
  measurement.losses = {10.5, std::numeric_limits<double>::quiet_NaN(), 1e-300};
  measurement.forward_s = 0.0251;
  measurement.backward_s = 1.0 / 7;
  measurement.update_s = 0.004;
  measurement.flops_per_step = 1.5e18;
  measurement.peak_memory = {
      (std::int64_t{1} << 53) + 1, {{"parameters", 70}, {"gradients", 30}}, 5, 40, 900, 70, 6};
  measurement.world_ranks = {2, 3};
  measurement.hosts = {"node1", "node2"};
  measurement.rank_forward_s = {0.025, 0.0251};
  measurement.energy_j = 12.25;
  measurement.overhead_s = {{"build", 0.001}, {"wait", 2.5e-5}};
  measurement.gpu = GpuCondition{1410, 1980, 61, 412.5, "power cap, heat"};
  measurement.not_comparable = "ranks 0 and 1 share a GPU";
  return measurement;
}

inline std::chrono::system_clock::time_point some_time(int second) {
  return *parse_time("2026-01-02T03:04:05.678901Z") + std::chrono::seconds(second);
}

inline Experiment full_experiment() {
  Experiment experiment;
  experiment.name = "z1_gas2_tmbspg4";
  experiment.ds_config = {{"train_batch_size", 16},
                          {"zero_optimization", {{"stage", 1}, {"reduce_bucket_size", 5e7}}},
                          {"note", nullptr}};
  experiment.shape = {2, 3};
  experiment.config = full_config();
  return experiment;
}

/// As far as it is written: what a rank is predicted to hold is not.
inline Prediction full_prediction() {
  Prediction predicted;
  predicted.throughput = 33.25;
  predicted.peak_memory_bytes = 1001;
  predicted.host_memory_bytes = 302;
  predicted.disk_bytes = 7003;
  predicted.target_memory_bytes = 2004;
  predicted.process_memory_bytes = 5105;
  predicted.gpu_memory_bytes = 6006;
  predicted.categories = {{"parameters", 600}, {"activations", 401}};
  predicted.host_categories = {{"optimizer", 302}};
  return predicted;
}

inline Record full_record() {
  return {.experiment = full_experiment(),
          .predicted = full_prediction(),
          .attempt = 2,
          .measurement = full_measurement(),
          .started_at = some_time(1),
          .finished_at = some_time(2),
          .is_alone = true};
}

inline Repeat full_repeat() {
  return {.kind = RepeatKind::spread,
          .round = 3,
          .measurement = full_measurement(),
          .started_at = some_time(3),
          .finished_at = some_time(4),
          .is_alone = true};
}

inline Work full_work(WorkKind kind = WorkKind::matmul) {
  Work work{.kind = kind, .type = DType::bf16, .out_type = DType::i8, .width = 768, .depth = 3072};
  work.set(WorkFlag::transpose_b);
  work.set(WorkFlag::silu);
  return work;
}

inline DeviceProfile full_profile() {
  DeviceProfile profile;
  profile.machine = {{"backend", "cpu"}, {"devices", {"one", "two"}}};
  profile.model = "tiny";
  profile.concurrent_streams = true;
  profile.overlap_slowdown = 0.125;
  profile.step_constant_s = 1e-5;
  profile.kernels = {{full_work(), {{100, 0.5}, {200, 2.0 / 3}}}, {Work{}, {{7, 1}}}};
  profile.groups = {{{2, 3}, 1.25, {{full_work(WorkKind::all_gather), {{100, 0.5}}}}},
                    {{4, 1}, 1.5, {}}};
  return profile;
}

/// Of a job that has measured the target's constants, too.
inline DeviceProfile measured_profile() {
  DeviceProfile profile = full_profile();
  profile.target = TargetConstants{{{1, 2, 3}, {}, true}, 0.03, "runs", "a machine", 7, 0.04};
  for (std::size_t each = 0; each < num_overheads; ++each)
    profile.target->time.costs_s[each] = 1e-3 * static_cast<double>(each + 1);
  profile.target->scale_deviation = 0.25;
  profile.target->deviations_s = profile.target->time.costs_s;
  profile.target->correlations.resize(num_overheads * (num_overheads + 1) / 2, -0.5);
  profile.cluster = Cluster{.device = *find_device_spec("a100-80gb"),
                            .node = *find_node_spec("mi300x"),
                            .network = *find_network_spec("ib-hdr"),
                            .gpus_per_node = 4,
                            .num_nodes = 3,
                            .host_memory_bytes = std::int64_t{1} << 40};
  return profile;
}

inline ProfilingTask full_task() {
  ProfilingTask task;
  task.shape = {2, 3};
  task.runs = {{5, full_config(), 1.5}, {6, TrainingConfig{}, 0.25}};
  task.collectives = {full_work(WorkKind::all_gather), full_work(WorkKind::exchange)};
  task.collectives[0].size = 123456;
  task.disk.use.folder = "/local";
  task.disk.use.block_bytes = 4096;
  task.disk.use.queue_depth = 2;
  task.disk.use.threads = 3;
  task.disk.bytes = {1, 2};
  task.budget_s = 0.75;
  return task;
}

inline ModelSpec full_model() {
  ModelSpec model = preset("llama-3-8b");
  model.full_layers = {1, 4};
  model.attention_window = 128;
  model.architecture.norm = NormKind::layer;
  model.architecture.token_types = 2;
  model.rope = {.kind = RopeKind::longrope, .factor = 4, .short_factor = {1, 1.5}};
  return model;
}

inline JobInput full_input() {
  return {.exit_code = 3,
          .run = true,
          .model = full_model(),
          .instruments = {{.kind = WorkloadKind::plugin,
                           .step_time_s = 0.5,
                           .table_path = "table.json",
                           .table = {{"z1", {{"step_time_s", 1}}}},
                           .time_scale = 0.25,
                           .options = {{"type", "plugin"}, {"layers", {1, 2.5}}, {"note", nullptr}},
                           .library_path = "/there/libmine.so",
                           .library_hash = "0123",
                           .model_config = "{}"},
                          {WorkloadKind::deepspeed,
                           0.25,
                           "other.json",
                           {{"z2", nullptr}},
                           0.75,
                           {{"script", "/there/train.py"}},
                           "/there/other.so",
                           "4567",
                           "{}"}},
          .measure = {4, 9, 0.75},
          .device_memory_bytes = 1'000'001,
          .host_memory_bytes = 2'000'002,
          .groups = {{0, 1}, {2}}};
}

inline RankDevice full_device() {
  return {.description = "H200",
          .threads = 4,
          .memory_bytes = 100,
          .host_bytes = 200,
          .backend = BackendKind::cuda,
          .gpu = "GPU-0123",
          .context_bytes = 3,
          .library_bytes = 4,
          .free_bytes = 90,
          .place = {.node = 3,
                    .machine = 2,
                    .host = "node3",
                    .cores = {4, 6},
                    .host_cores = 64,
                    .host_processors = 128,
                    .job_cores = 32.5,
                    .host_memory_bytes = 1000,
                    .load_beside = 1.5,
                    .kind = "NVIDIA H200",
                    .gpu = "GPU-0123",
                    .is_left_out = true,
                    .looks_at_gpus = true,
                    .gpus = {"GPU-0123", "GPU-4567"},
                    .sees_part = true,
                    .named_gpus = 2,
                    .given_gpus = 4}};
}

}  // namespace dstune::test
