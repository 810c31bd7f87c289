#include <cmath>

#include "dimensions.hpp"
#include "dstune/core/settings.hpp"

namespace dstune {

namespace {

using json::Value;

Value built_in_template(int stage, std::int64_t hidden_size) {
  Value section = {{"stage", stage}};
  if (stage == 1) {
    section["reduce_bucket_size"] = 500'000'000;
    section["allgather_bucket_size"] = 500'000'000;
  }
  if (stage < 2) return section;
  section["allgather_partitions"] = true;
  section["allgather_bucket_size"] = 500'000'000;
  section["overlap_comm"] = false;
  section["reduce_scatter"] = true;
  section["reduce_bucket_size"] = 500'000'000;
  section["contiguous_gradients"] = false;
  if (stage < 3) return section;
  const auto squared = hidden_size * hidden_size;
  section["reduce_bucket_size"] = squared;
  section["stage3_max_live_parameters"] = 1'000'000'000;
  section["stage3_max_reuse_distance"] = 1'000'000'000;
  section["stage3_prefetch_bucket_size"] = std::llround(0.9 * static_cast<double>(squared));
  section["stage3_param_persistence_threshold"] = 10 * hidden_size;
  section["stage3_gather_16bit_weights_on_model_save"] = false;
  section["sub_group_size"] = 1'000'000'000'000;
  return section;
}

Value default_grid(int stage) {
  const Value buckets = {50'000'000, 500'000'000, 1'000'000'000};
  Value grid = Value::object();
  if (stage >= 2) {
    grid["overlap_comm"] = {true, false};
    grid["reduce_scatter"] = {false, true};
  }
  if (stage >= 1) grid["reduce_bucket_size"] = buckets;
  if (stage == 3) grid["allgather_partitions"] = {true, false};
  if (stage >= 1) grid["allgather_bucket_size"] = buckets;
  if (stage >= 2) grid["contiguous_gradients"] = {false, true};
  return grid;
}

/// A template file as DeepSpeed has them: {"zero_optimization": {...}}; lists are candidates.
Value file_template(const std::string& path, json::Problems& problems) {
  try {
    const auto document = json::Document::read(path);
    const auto root = document.node();
    if (!root.expect_object(problems)) return Value::object();
    root.refuse_unknown_keys(problems, {"zero_optimization"});
    const auto section = root.find("zero_optimization");
    if (!section) {
      problems.add(root.problem("a template has the section \"zero_optimization\": add it"));
      return Value::object();
    }
    if (!section->expect_object(problems)) return Value::object();
    for (const auto& key : section->keys()) {
      const auto node = *section->find(key);
      if (!node.is_array()) read_settings(node, problems);
      for (const auto& element : node.elements())
        read_settings(json::Node(document, element.value(), node.pointer()), problems);
    }
    return section->value();
  } catch (const InputError& error) {
    for (const auto& problem : error.problems()) problems.add(problem);
    return Value::object();
  }
}

}  // namespace

Value full_zero_section(const JobSpec& job, int stage, const Value& written,
                        json::Problems& problems) {
  const auto file = job.templates.find(stage);
  Value section = file == job.templates.end() ? built_in_template(stage, job.model.hidden_size)
                                              : file_template(file->second, problems);
  // A file says itself what is tried.
  if (file == job.templates.end()) {
    const Value grid = default_grid(stage);
    for (const auto& [key, candidates] : grid.items()) section[key] = candidates;
  }
  for (const auto& [key, value] : written.items()) section[key] = value;
  section["stage"] = stage;
  return section;
}

}  // namespace dstune
