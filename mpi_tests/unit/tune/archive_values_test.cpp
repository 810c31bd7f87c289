#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/error.hpp"
#include "full_values.hpp"

namespace dstune {

DSTUNE_FIELDS(GpuCondition, sm_clock, max_sm_clock, temperature, power, throttled_by)
DSTUNE_FIELDS(PeakMemory, total, categories, process, host, gpu, communicators, graphs)
DSTUNE_FIELDS(Measurement, status, reason, step_times, warmup_steps, skipped_steps, losses, forward,
              backward, update, flops, peak_memory, world_ranks, hosts, rank_forward, energy,
              overhead, gpu, fallbacks, not_comparable, notes)
DSTUNE_FIELDS(GroupShape, num_gpus, num_nodes)
DSTUNE_FIELDS(DiskUse, folder, optimizer_buffers, pipeline_read, pipeline_write, parameter_buffers,
              parameter_buffer_size, parameters_in_memory, block_bytes, queue_depth, threads)
DSTUNE_FIELDS(LeafModules, classes, names, name_suffixes)
DSTUNE_FIELDS(OptimizerConfig, kind, learning_rate, beta1, beta2, epsilon, weight_decay, momentum,
              dampening, nesterov, learning_rate_decay, initial_accumulator, torch_adam)
DSTUNE_FIELDS(LossScale, fixed, initial_power, window, hysteresis, consecutive_hysteresis, minimum)
DSTUNE_FIELDS(DeepSpeedSwitches, fp32_sums_at_stage_2, fp32_sums_are_averaged,
              fp32_sums_stay_on_device, offload_waits_for_copies, immediate_update_frees_gradients,
              stage_0_partitions_bf16, twin_flow_keeps_last_part, parameters_return_by_buffer)
DSTUNE_FIELDS(TrainingConfig, switches, zero_stage, micro_batch, accumulation_steps,
              sequence_length, precision, loss_scale, fp32_gradient_accumulation,
              immediate_grad_update, low_precision_master, low_precision_moments, recompute,
              cpu_checkpointing, synchronize_checkpoint_boundary, reduce_bucket_size, overlap_comm,
              reduce_scatter, contiguous_gradients, use_multi_rank_bucket_allreduce,
              round_robin_gradients, communication_data_type, sums_gradients, aligns_parameters,
              offload_optimizer, offload_ratio, offload_param, disk, sub_group_size,
              prefetch_bucket_size, param_persistence_threshold, model_persistence_threshold,
              max_live_parameters, max_reuse_distance, module_granularity_threshold, leaf_modules,
              memory_efficient_linear, allgather_sequential, use_all_reduce_for_fetch_params,
              zero_hpz_partition_size, mics_shard_size, mics_hierarchical_params_gather,
              ranks_per_node, zero_quantized_weights, zero_quantized_gradients, ranks_per_batch,
              gradient_clipping, computes_gradient_norm, checks_overflow, optimizer)
/// Who wrote which key is of the space that is planned.
inline auto fields(Experiment& value) {
  auto& [name, ds_config, shape, config, written_out] = value;
  return std::tie(name, ds_config, shape, config);
}
DSTUNE_FIELDS(Record, experiment, predicted, attempt, measurement, started, finished, is_alone)
DSTUNE_FIELDS(Repeat, kind, round, measurement, started, finished, is_alone)
/// What each rank is predicted to hold is kept nowhere, nor is what a plan alone shows of the
/// target.
inline auto fields(Prediction& value) {
  auto& [throughput, target_throughput, low, high, peak, host, disk, target, shown, target_host,
         loading, saving, target_disk, target_categories, verdict, because, process, gpu,
         categories, host_categories, ranks] = value;
  return std::tie(throughput, target_throughput, peak, host, disk, target, process, gpu, categories,
                  host_categories);
}
DSTUNE_FIELDS(TimePoint, size, seconds)
DSTUNE_FIELDS(Work, kind, type, out_type, flags, width, depth, size)
/// A curve runs over its work's size.
inline auto fields(TimeCurve& value) {
  auto& [work, points] = value;
  auto& [kind, type, out_type, flags, width, depth, size] = work;
  return std::tie(kind, type, out_type, flags, width, depth, points);
}
DSTUNE_FIELDS(GroupProfile, shape, slowdown, collectives)
DSTUNE_FIELDS(TimeCalibration, scale, costs, is_device_behind_host)
DSTUNE_FIELDS(TargetConstants, time, error, source, machine, num_engines, fit_error,
              scale_deviation, deviations, correlations, host_factor, host_deviation)
DSTUNE_FIELDS(CollectiveWay, latency_s, share)
DSTUNE_FIELDS(DeviceSpec, name, title, others, memory, memory_rate, memory_share, peak_flops,
              product_share, training_share, launch_s, copy_engines, host_rate, node, link_rate,
              all_reduce_rate, gather_rate, host_work, sources)
DSTUNE_FIELDS(NodeSpec, name, title, num_gpus, links, link_share, small, large, host_memory_rate,
              adam_rate, disk_rate, sources)
DSTUNE_FIELDS(NetworkSpec, name, title, others, node_rate, share, small, large, sources)
DSTUNE_FIELDS(Cluster, device, node, network, gpus_per_node, num_nodes, host_memory)
DSTUNE_FIELDS(DeviceProfile, machine, model, concurrent_streams, overlap_slowdown, step_constant,
              interpreter, kernels, groups, target, cluster)
DSTUNE_FIELDS(ProfilingRun, num_layers, config, cost)
/// Of its use of a disk the timing needs the folder and what reading it takes.
inline auto fields(DiskTiming& value) {
  auto& [use, bytes] = value;
  return std::tie(use.folder, use.block_bytes, use.queue_depth, use.threads, bytes);
}
DSTUNE_FIELDS(ProfilingTask, shape, runs, collectives, disk, budget)
DSTUNE_FIELDS(Architecture, norm, block, positions, objective, activation, gated, qkv_bias,
              projection_bias, mlp_bias, query_key_norm, scaled_projections, position_offset,
              token_types, rotary_fraction, norm_spans_heads, embedding_multiplier,
              residual_multiplier, attention_multiplier, logits_scaling, unit_offset_norm,
              scaled_embeddings, attention_softcap, logits_softcap, shared_norm)
DSTUNE_FIELDS(RopeScaling, kind, factor, original_positions, low_freq_factor, high_freq_factor,
              beta_fast, beta_slow, truncate, attention_factor, short_factor, long_factor)
DSTUNE_FIELDS(ModelSpec, name, family, hidden_size, num_layers, num_heads, num_kv_heads, head_size,
              intermediate_size, vocab_size, max_positions, tie_embeddings, norm_epsilon,
              rope_theta, rope, rope_local_theta, initializer_range, dropout, attention_window,
              full_layers, unrotated_layers, labels, architecture)
DSTUNE_FIELDS(WorkloadSpec, kind, step_time, table_path, table, time_scale, options, library_path,
              library_hash, model_config)
DSTUNE_FIELDS(MeasureOptions, start, end, budget, asks)
/// Where nothing runs the code is all that is said.
inline auto fields(JobInput& value) {
  auto& [exit_code, run, model, instruments, measure, device_memory, host_memory, groups] = value;
  return std::tie(exit_code, model, instruments, measure, device_memory, host_memory, groups);
}
DSTUNE_FIELDS(RunInput, ds_config, arguments)
DSTUNE_FIELDS(JobStart, exit_code, choices)
DSTUNE_FIELDS(RankPlace, node, machine, host, cores, host_cores, host_processors, job_cores,
              host_memory, load_beside, kind, gpu, is_left_out, looks_at_gpus, gpus, sees_part,
              named_gpus, given_gpus)
DSTUNE_FIELDS(RankDevice, description, threads, memory, host, backend, gpu, context, library, free,
              place)
DSTUNE_FIELDS(IncumbentEstimate, step, standard_error, spread, degrees_of_freedom)

namespace message {
DSTUNE_FIELDS(Tiny, model, measure)
DSTUNE_FIELDS(Assign, attempt, experiment, config, ranks, timeout, input, instrument, is_risky,
              rest, tiny, choices, stays_built, turn_steps, slice_share, others)
DSTUNE_FIELDS(Finalist, experiment, config, turn_steps)
DSTUNE_FIELDS(Span, began, ended)
DSTUNE_FIELDS(Release, experiment)
DSTUNE_FIELDS(Incumbent, attempt, incumbent)
DSTUNE_FIELDS(Go, attempt)
DSTUNE_FIELDS(Stop, attempt)
DSTUNE_FIELDS(Abort, attempt)
DSTUNE_FIELDS(Quit, exit_code, finalize)
DSTUNE_FIELDS(Ready, attempt)
DSTUNE_FIELDS(Progress, attempt, steps, slowest, turn)
DSTUNE_FIELDS(Outcome, attempt, measurement, notes, choices, others, spans)
DSTUNE_FIELDS(Gone, attempt, status, reason, is_cause, loss, details, notes)
DSTUNE_FIELDS(Profile, attempt, task, ranks, timeout, rest)
DSTUNE_FIELDS(Profiled, attempt, profile, outside, gpu_outside, choices)
}  // namespace message

namespace {

using json::Value;

/// Each leaf of the value is changed alone: what was written of that is read as it was.
template <class T>
void expect_every_member_survives(T whole, const std::function<T(const T&)>& written_and_read) {
  for (int leaf = 0;; ++leaf) {
    T changed = whole;
    test::LeafChange change(leaf);
    change.visit(changed);
    if (!change.is_done()) {
      EXPECT_GT(leaf, 0);
      return;
    }
    EXPECT_FALSE(test::is_same(changed, whole)) << "leaf " << leaf << " is not changed";
    T read = written_and_read(changed);
    EXPECT_TRUE(test::is_same(read, changed)) << "leaf " << leaf << " is lost";
  }
}

template <class T>
T through_text(const T& value) {
  const json::Document document = json::Document::parse(json::write(value).dump(), "text");
  return json::read<T>(document.node());
}
template <class T>
T through_cbor(const T& value) {
  return json::unpack<T>(json::pack(value), "cbor");
}
template <class T>
void expect_every_member_survives(const T& whole) {
  SCOPED_TRACE(typeid(T).name());
  expect_every_member_survives<T>(whole, &through_text<T>);
  expect_every_member_survives<T>(whole, &through_cbor<T>);
}
template <class T>
void expect_message_survives(const T& whole) {
  SCOPED_TRACE(typeid(T).name());
  expect_every_member_survives<T>(
      whole, [](const T& value) { return std::get<T>(decode(encode(Message(value)))); });
}

TEST(ArchiveValuesTest, EveryMemberSurvivesTextAndCbor) {
  expect_every_member_survives(*test::full_measurement().gpu);
  expect_every_member_survives(test::full_measurement());
  expect_every_member_survives(test::full_config());
  expect_every_member_survives(test::full_record());
  expect_every_member_survives(test::full_repeat());
  expect_every_member_survives(test::measured_profile());
  expect_every_member_survives(test::full_model());
  expect_every_member_survives(test::full_device());
}

TEST(ArchiveValuesTest, EveryMemberOfMessagesSurvives) {
  using namespace message;
  expect_message_survives(Assign{9,
                                 "z3",
                                 test::full_config(),
                                 {1, 4, 6},
                                 12.5,
                                 "{\"a\": 1}",
                                 {"--length"},
                                 true,
                                 true,
                                 7.5,
                                 Tiny{test::full_model(), {4, 9, 0.75}},
                                 {{"product", "1 of 3"}},
                                 true,
                                 4,
                                 0.5,
                                 {{"z2", test::full_config(), 3}}});
  expect_message_survives(Release{"z3"});
  expect_message_survives(Incumbent{4, {0.5, 0.01, 0.02, 7.5}});
  expect_message_survives(Go{1});
  expect_message_survives(Stop{2});
  expect_message_survives(Abort{3});
  expect_message_survives(Quit{75, false});
  expect_message_survives(Ready{4});
  expect_message_survives(Progress{5, 6, 0.25, 1});
  expect_message_survives(Outcome{3,
                                  test::full_measurement(),
                                  {"a note"},
                                  {{"product", "1 of 3"}},
                                  {test::full_measurement()},
                                  {{0.25, 0.5}, {0.75, 1.5}}});
  expect_message_survives(
      Gone{4, Status::timed_out, "why", true, Loss::device, "trace", {"a note"}});
  expect_message_survives(Profile{8, test::full_task(), {1, 2}, 60, 1.5});
  expect_message_survives(
      Profiled{8, test::full_profile(), 1 << 20, 3 << 20, {{"product", "1 of 3"}}});
  expect_every_member_survives<JobInput>(
      test::full_input(), [](const JobInput& input) { return decode_job_input(encode(input)); });
  expect_every_member_survives<JobStart>({75, {{"product", "1 of 3"}}}, [](const JobStart& start) {
    return decode_job_start(encode(start));
  });
  JobInput nothing;
  nothing.exit_code = 4;
  EXPECT_EQ(decode_job_input(encode(nothing)).exit_code, 4);
}

/// What a value of type T is refused with; nothing where it is read.
template <class T>
std::vector<Problem> problems_of(const Value& value) {
  try {
    const json::Document document = json::Document::parse(value.dump(1), "value.json");
    (void)json::read<T>(document.node());
    return {};
  } catch (const InputError& error) {
    return error.problems();
  }
}

/// The pointers of all members of objects inside a value, but for those below `free`, which may
/// hold anything.
void add_members(const Value& value, const std::string& pointer, const std::set<std::string>& free,
                 std::vector<std::string>& pointers) {
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) {
    const std::string at = json::append_pointer(pointer, key);
    pointers.push_back(at);
    if (!free.contains(at)) add_members(member, at, free, pointers);
  }
}

struct Strictness {
  std::set<std::string> free{};      ///< may hold anything, and keys of any name
  std::set<std::string> optional{};  ///< may be missing
  bool takes_unknown = false;
};

template <class T>
void expect_strict(const T& whole, const Strictness& strictness) {
  SCOPED_TRACE(typeid(T).name());
  using Pointer = Value::json_pointer;
  const Value value = json::write(whole);
  EXPECT_TRUE(problems_of<T>(value).empty());
  std::vector<std::string> pointers;
  add_members(value, "", strictness.free, pointers);
  for (const std::string& pointer : pointers) {
    SCOPED_TRACE(pointer);
    Value wrong = value;
    Value& member = wrong[Pointer(pointer)];
    const bool was_object = member.is_object();
    if (!strictness.free.contains(pointer)) {
      member = was_object ? Value(7) : Value{{"surprise", 1}};
      const auto problems = problems_of<T>(wrong);
      ASSERT_FALSE(problems.empty()) << "a wrong type is taken";
      EXPECT_EQ(problems.front().pointer, pointer);
      EXPECT_EQ(problems.front().file, "value.json");
      EXPECT_GT(problems.front().line, 1);
    }
    wrong = value;
    wrong[Pointer(pointer).parent_pointer()].erase(Pointer(pointer).back());
    EXPECT_EQ(problems_of<T>(wrong).empty(), strictness.optional.contains(pointer)) << "missing";
    if (!was_object || strictness.free.contains(pointer)) continue;
    wrong = value;
    wrong[Pointer(pointer + "/surprise")] = 1;
    const auto problems = problems_of<T>(wrong);
    EXPECT_EQ(problems.empty(), strictness.takes_unknown) << "unknown";
  }
  Value wrong = value;
  wrong["surprise"] = 1;
  EXPECT_EQ(problems_of<T>(wrong).empty(), strictness.takes_unknown);
}

TEST(ArchiveValuesTest, ReadingIsStrict) {
  expect_strict(test::full_measurement(),
                {.free = {"/peak_memory_bytes/categories", "/overhead_s"},
                 .optional = {"/skipped_steps", "/peak_memory_bytes/host", "/peak_memory_bytes/gpu",
                              "/peak_memory_bytes/communicators", "/peak_memory_bytes/graphs",
                              "/rank_forward_s", "/energy_j", "/gpu", "/not_comparable"}});
  expect_strict(test::full_config(), {});
  expect_strict(test::full_device(), {});
  expect_strict(test::full_profile(), {.free = {"/machine"},
                                       .optional = {"/interpreter_s", "/target", "/target/engines",
                                                    "/target/fit_error"}});
  std::set<std::string> all;
  const Value model = json::write(test::full_model());
  for (const char* section : {"rope", "architecture"})
    for (const auto& [key, value] : model.at(section).items())
      all.insert(std::string("/") + section + "/" + key);
  all.merge(std::set<std::string>{"/attention_window", "/full_layers", "/rope", "/architecture"});
  expect_strict(test::full_model(), {.optional = all});
}

TEST(ArchiveValuesTest, MessagesAreReadStrictly) {
  const Value whole = written(message::Assign{9, "z3", test::full_config(), {1}, 12.5});
  const auto refuses = [&](const char* pointer, const Value& value) {
    Value wrong = whole;
    wrong[Value::json_pointer(pointer)] = value;
    EXPECT_THROW((void)decode(json::to_cbor(wrong)), InputError) << pointer;
  };
  EXPECT_NO_THROW((void)decode(json::to_cbor(whole)));
  refuses("/surprise", 1);
  refuses("/config/surprise", 1);
  refuses("/config/precision", 99);
  refuses("/config/precision", "bf16");
  refuses("/config/overlap_comm", 1);
  refuses("/ranks/0", "one");
  refuses("/kind", 13);
  refuses("/kind", -1);
  refuses("/attempt", -1);
  for (const auto& [key, value] : whole.items()) {
    Value wrong = whole;
    wrong.erase(key);
    EXPECT_THROW((void)decode(json::to_cbor(wrong)), InputError) << key;
  }
}

}  // namespace
}  // namespace dstune
