#include <algorithm>

#include <fmt/format.h>

#include "dimensions.hpp"
#include "dstune/core/knobs.hpp"

namespace dstune {

namespace {

bool is_default(const json::Value& value, const Knob& knob) {
  return value.is_null() || value == "auto" || value == json::Value::parse(knob.fallback);
}

/// Keys that are there and do not move the search, by why.
class EffectNotes {
 public:
  void read(const json::Node& node) {
    const Knob* const knob = find_knob(node.pointer());
    if (knob != nullptr && knob->type == KnobType::object && knob->effect == KnobEffect::inert &&
        !has_effect_below(node)) {
      inert_.push_back(node.pointer().substr(1));
      return;
    }
    if (node.is_object()) {
      for (const auto& key : node.keys()) read(*node.find(key));
      return;
    }
    if (knob == nullptr) return;
    if (knob->effect == KnobEffect::inert) inert_.push_back(node.pointer().substr(1));
    const bool is_single = node.is_array() && node.value().size() == 1;
    const json::Value& value = is_single ? node.value().front() : node.value();
    if (knob->effect == KnobEffect::not_built && !is_default(value, *knob))
      not_built_.push_back(node.pointer().substr(1));
  }

  void add_to(std::vector<std::string>& warnings) const {
    if (!not_built_.empty())
      warnings.push_back(fmt::format(
          "kept in the answer, without effect on the search, since the step measured here does not "
          "act on them yet: {}",
          fmt::join(not_built_, ", ")));
    if (!inert_.empty())
      warnings.push_back(fmt::format("kept in the answer, without effect on a step's time: {}",
                                     fmt::join(inert_, ", ")));
  }

 private:
  static bool has_effect_below(const json::Node& node) {
    for (const auto& key : node.keys()) {
      const json::Node member = *node.find(key);
      const Knob* const knob = find_knob(member.pointer());
      if (knob != nullptr && knob->effect != KnobEffect::inert) return true;
      if (has_effect_below(member)) return true;
    }
    return false;
  }

  std::vector<std::string> inert_, not_built_;
};

/// Of a key of a section.
json::Value candidates_of(const json::Node& root, const char* section, const char* key) {
  const auto above = root.find(section);
  const auto found = above && above->is_object() ? above->find(key) : std::nullopt;
  if (!found) return json::Value::array();
  return found->is_array() ? found->value() : json::Value::array({found->value()});
}
json::Value candidates_of(const json::Node& root, const char* key) {
  return candidates_of(root, "zero_optimization", key);
}

bool has(const json::Value& candidates, const json::Value& value) {
  return std::find(candidates.begin(), candidates.end(), value) != candidates.end();
}
bool has_true(const json::Value& candidates) {
  return has(candidates, true);
}

/// Where DeepSpeed itself does not average (get_param_gradient_attribute in stage_1_and_2.py).
bool has_unreduced_sums(const JobSpec& job, const json::Node& root) {
  if (!has(candidates_of(root, "data_types", "grad_accum_dtype"), "fp32")) return false;
  const json::Value stages = candidates_of(root, "stage");
  const bool has_stage1 = !root.find("zero_optimization") || has(stages, 1) || has(stages, "all");
  const json::Value devices = candidates_of(root, "offload_optimizer");
  const bool offloads = std::any_of(devices.begin(), devices.end(),
                                    [](const json::Value& each) { return !each.is_null(); });
  const bool is_group = std::any_of(job.shapes.begin(), job.shapes.end(),
                                    [](const GroupShape& shape) { return shape.size() > 1; });
  return is_group && has_stage1 && (offloads || has_true(candidates_of(root, "fp16", "enabled")));
}

/// What ZeRO++'s quantisation changes but times.
void add_quantization(const JobSpec& job, const json::Node& root,
                      std::vector<std::string>& warnings) {
  if (has_true(candidates_of(root, "zero_quantized_weights"))) {
    warnings.push_back(
        "zero_optimization.zero_quantized_weights: stage 3 with it computes with weights of 8 "
        "bits, so its losses are others than without");
  }
  const bool has_nodes = std::any_of(job.shapes.begin(), job.shapes.end(),
                                     [](const GroupShape& shape) { return shape.num_nodes > 1; });
  if (has_nodes && has_true(candidates_of(root, "zero_quantized_gradients"))) {
    warnings.push_back(
        "zero_optimization.zero_quantized_gradients: stage 3 with it reduces gradients across "
        "nodes in 4 bits, so its losses are others than without; DeepSpeed 0.19.6 itself does not "
        "divide those of matrices by the ranks of a node, as is done here");
  }
}

/// Whether some group would hold several copies of the states (MiCS).
bool has_copies(const JobSpec& job, const json::Node& root) {
  const json::Value list = candidates_of(root, "mics_shard_size");
  return std::any_of(list.begin(), list.end(), [&](const json::Value& candidate) {
    return candidate.is_number() && candidate.get<double>() > 0 &&
           std::any_of(job.shapes.begin(), job.shapes.end(), [&](const GroupShape& shape) {
             return candidate.get<double>() < shape.size();
           });
  });
}

}  // namespace

std::vector<std::string> find_warnings(const JobSpec& job, const std::vector<Product>& products) {
  std::vector<std::string> warnings;
  EffectNotes notes;
  const json::Node root(*job.document, job.ds_config, "");
  for (const auto& key : root.keys()) {
    const auto node = *root.find(key);
    if (find_knob(node.pointer()) == nullptr) {
      warnings.push_back(node.pointer() +
                         " is no key that DeepSpeed 0.19.6 knows: it passes through unchecked");
    } else {
      notes.read(node);
    }
  }
  notes.add_to(warnings);
  if (has_copies(job, root)) {
    warnings.push_back(
        "zero_optimization.mics_shard_size: DeepSpeed 0.19.6 itself hangs in its first update "
        "where "
        "this is less than the group's size; what is measured here is MiCS as other releases run "
        "it");
  }
  add_quantization(job, root, warnings);
  if (has_unreduced_sums(job, root)) {
    warnings.push_back(
        "data_types.grad_accum_dtype: at stage 1 in fp16, and in bf16 with an offloaded optimizer, "
        "DeepSpeed 0.19.6 itself updates with the sums in fp32 of each rank's own gradients; their "
        "mean over ranks, which it makes and drops, is what is used here");
  }
  for (const Product& product : products) {
    for (const Dimension& dimension : product.dimensions) {
      if (dimension.kind != Dimension::Kind::knob || dimension.candidates.size() == 1) continue;
      for (std::size_t index = 0; index < dimension.candidates.size(); ++index) {
        const std::string reason = unbuilt_reason(product, dimension, index);
        if (reason.empty()) continue;
        std::string warning = fmt::format(
            "{}: members with this candidate are not run: {}",
            dimension.origins[index].empty() ? dimension.pointer : dimension.origins[index],
            reason);
        if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end())
          warnings.push_back(std::move(warning));
      }
    }
  }
  return warnings;
}

}  // namespace dstune
