#include <algorithm>

#include <fmt/format.h>

#include "candidate_check.hpp"
#include "candidate_lists.hpp"
#include "dstune/core/knobs.hpp"
#include "dstune/space/search_space.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

constexpr const char* stage_pointer = "/zero_optimization/stage";
constexpr std::int64_t largest_batch_size = 1 << 24;

json::Value shape_value(const GroupShape& shape) {
  return {{"num_gpus", shape.num_gpus}, {"num_nodes", shape.num_nodes}};
}

class Expander {
 public:
  Expander(const JobSpec& job, json::Problems& problems)
      : job_(&job), problems_(&problems), root_(*job.document, job.ds_config, "") {}

  Expansion run() {
    add_shapes();
    expansion_.base = job_->ds_config;
    const auto zero = root_.find("zero_optimization");
    if (!zero || zero->is_null()) add_default_stages();
    if (zero && zero->value() == "all") {
      problems_->add(zero->problem("write {\"stage\": \"all\"} for all stages"));
      set_base("/zero_optimization", nullptr);
    }
    for (const auto& key : root_.keys()) find_top_level(key, *root_.find(key));
    for (const char* key :
         {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
      if (!root_.find(key)) add_batch(key, std::nullopt);
    }
    fill_searched_micro_batches();
    add_recompute();
    check_size();
    check_batches();
    check_candidates(*job_, expansion_, *problems_);
    return std::move(expansion_);
  }

 private:
  Dimension& add(Kind kind, const std::string& pointer) {
    expansion_.dimensions.push_back({kind, pointer, {}, {}});
    return expansion_.dimensions.back();
  }

  static void add_candidate(Dimension& dimension, json::Value value, const std::string& origin) {
    dimension.candidates.push_back(std::move(value));
    dimension.origins.push_back(origin);
  }

  void set_base(const std::string& pointer, const json::Value& value) {
    expansion_.base[json::Value::json_pointer(pointer)] = value;
  }

  void add_shapes() {
    auto& dimension = add(Kind::shape, "");
    for (const auto& shape : job_->shapes) {
      add_candidate(dimension, shape_value(shape), "/dstune/resources");
    }
    if (dimension.candidates.empty()) add_candidate(dimension, shape_value({}), "");
  }

  void add_recompute() {
    auto& dimension = add(Kind::recompute, "");
    for (const auto mode : job_->recompute) {
      add_candidate(dimension, to_text(mode), "/dstune/activation_recompute");
    }
    if (dimension.candidates.empty()) add_candidate(dimension, "none", "");
  }

  void add_all_stages(const std::string& origin) {
    auto& dimension = add(Kind::knob, stage_pointer);
    for (int stage = 0; stage < 4; ++stage) add_candidate(dimension, stage, origin);
  }

  void add_default_stages() {
    expansion_.base["zero_optimization"] = {{"stage", 0}};
    add_all_stages("");
  }

  void find_top_level(const std::string& key, const json::Node& node) {
    const auto& pointer = node.pointer();
    if (key == "train_batch_size" || key == "train_micro_batch_size_per_gpu" ||
        key == "gradient_accumulation_steps") {
      add_batch(key, node);
    } else if (find_knob(pointer) != nullptr) {
      find_below(node);
    }
  }

  void find_below(const json::Node& node) {
    if (node.pointer() == stage_pointer && node.value() == "all") {
      set_base(stage_pointer, 0);
      add_all_stages(stage_pointer);
    } else if (is_candidate_list(node)) {
      add_list(node);
    } else if (node.is_object()) {
      for (const auto& key : node.keys()) find_below(*node.find(key));
    }
  }

  void add_list(const json::Node& node) {
    if (node.value().empty()) {
      problems_->add(node.problem(
          "an empty list leaves nothing to try: name at least one value, or remove the key"));
      set_base(node.pointer(), nullptr);
      return;
    }
    auto& dimension = add(Kind::knob, node.pointer());
    for (const auto& element : node.elements()) {
      auto values = product_of(element, node.pointer());
      if (values.empty()) {
        problems_->add(element.problem("an empty list inside leaves nothing to try"));
      }
      for (auto& value : values) add_candidate(dimension, std::move(value), element.pointer());
    }
    if (dimension.candidates.empty()) {
      set_base(node.pointer(), nullptr);
      expansion_.dimensions.pop_back();
      return;
    }
    set_base(node.pointer(), dimension.candidates.front());
  }

  // Batch sizes.

  static bool is_derived(const std::optional<json::Node>& node) {
    return !node || node->is_null() || node->value() == "auto";
  }

  void add_batch(const std::string& key, const std::optional<json::Node>& node) {
    const auto pointer = "/" + key;
    const bool is_micro = key == "train_micro_batch_size_per_gpu";
    auto& dimension = add(is_micro                    ? Kind::micro_batch
                          : key == "train_batch_size" ? Kind::train_batch_size
                                                      : Kind::accumulation_steps,
                          pointer);
    expansion_.base[key] = nullptr;
    if (is_micro && !(node && node->is_array())) {
      expansion_.is_micro_batch_searched = true;
      const auto lowest = is_derived(node)
                              ? job_->tuning.min_train_micro_batch_size_per_gpu
                              : node->integer(*problems_, 1, largest_batch_size).value_or(1);
      add_candidate(dimension, lowest, pointer);
    } else if (is_derived(node)) {
      add_candidate(dimension, nullptr, pointer);
    } else if (node->is_array()) {
      if (node->value().empty()) {
        problems_->add(node->problem(
            "an empty list leaves nothing to try: name at least one size, or remove the key"));
      }
      for (const auto& element : node->elements()) add_size(dimension, element, !is_micro);
    } else {
      add_size(dimension, *node, true);
    }
    // A size that could not be read is complained about; the rest is checked beside it.
    if (dimension.candidates.empty())
      add_candidate(dimension, is_micro ? json::Value(1) : json::Value(), pointer);
  }

  void add_size(Dimension& dimension, const json::Node& node, bool may_be_derived) {
    if (may_be_derived && is_derived(node)) {
      add_candidate(dimension, nullptr, node.pointer());
    } else if (const auto size = node.integer(*problems_, 1, largest_batch_size)) {
      add_candidate(dimension, *size, node.pointer());
    }
  }

  [[nodiscard]] Dimension& dimension_of(Kind kind) {
    return *std::find_if(expansion_.dimensions.begin(), expansion_.dimensions.end(),
                         [&](const Dimension& dimension) { return dimension.kind == kind; });
  }

  /// Doubles the lowest size up to the limits that any group and accumulation leave.
  void fill_searched_micro_batches() {
    if (!expansion_.is_micro_batch_searched) return;
    auto& dimension = dimension_of(Kind::micro_batch);
    const auto lowest = dimension.candidates.front().get<std::int64_t>();
    const auto& tuning = job_->tuning;
    if (lowest > tuning.max_train_micro_batch_size_per_gpu) {
      problems_->add({job_->document->file(), dimension.pointer,
                      job_->document->line(dimension.pointer),
                      fmt::format("the search starts at {}, above "
                                  "max_train_micro_batch_size_per_gpu {}: raise that",
                                  lowest, tuning.max_train_micro_batch_size_per_gpu)});
      return;
    }
    auto highest = std::min(tuning.max_train_micro_batch_size_per_gpu, largest_batch_size);
    if (tuning.max_train_batch_size) {
      std::int64_t fewest = largest_batch_size;
      for (const auto& steps : dimension_of(Kind::accumulation_steps).candidates) {
        fewest = std::min(fewest, steps.is_null() ? 1 : steps.get<std::int64_t>());
      }
      int smallest_group = job_->shapes.empty() ? 1 : job_->shapes.front().size();
      for (const auto& shape : job_->shapes)
        smallest_group = std::min(smallest_group, shape.size());
      highest = std::min(highest, *tuning.max_train_batch_size / (fewest * smallest_group));
    }
    for (auto size = 2 * lowest; size <= highest; size *= 2) {
      add_candidate(dimension, size, dimension.origins.front());
    }
  }

  /// Members are numbered with 64 bits.
  void check_size() {
    double size = 1;
    for (const auto& dimension : expansion_.dimensions) {
      size *= static_cast<double>(dimension.candidates.size());
    }
    if (size < 1e18) return;
    problems_->add(root_.problem(fmt::format(
        "the lists make {:.0e} members, more than can be numbered: shorten them", size)));
  }

  /// At least one combination of sizes must be possible.
  void check_batches() {
    if (!problems_->empty()) return;
    const auto size_of = [](const json::Value& value) {
      return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
    };
    const auto& tuning = job_->tuning;
    std::string why;
    for (const auto& shape : job_->shapes) {
      for (const auto& total : dimension_of(Kind::train_batch_size).candidates) {
        for (const auto& micro : dimension_of(Kind::micro_batch).candidates) {
          for (const auto& steps : dimension_of(Kind::accumulation_steps).candidates) {
            const auto triple =
                resolve_batch(size_of(total), size_of(micro), size_of(steps), shape.size(), why);
            if (triple && batch_limit_reason(tuning, triple->train_batch_size).empty()) return;
            if (triple) why = batch_limit_reason(tuning, triple->train_batch_size);
          }
        }
      }
    }
    const bool is_total_given = !dimension_of(Kind::train_batch_size).candidates.front().is_null();
    const std::string pointer =
        is_total_given ? "/train_batch_size" : "/autotuning/max_train_batch_size";
    problems_->add({job_->document->file(), pointer, job_->document->line(pointer),
                    "no combination of group size, micro-batch and accumulation gives this batch "
                    "size (the last one tried: " +
                        why + "): change one of them"});
  }

  const JobSpec* job_;
  json::Problems* problems_;
  json::Node root_;
  Expansion expansion_;
};

}  // namespace

Expansion expand(const JobSpec& job, json::Problems& problems) {
  return Expander(job, problems).run();
}

}  // namespace dstune
