#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "dstune/space/search_space.hpp"
#include "sections/products.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

constexpr const char* stage_pointer = "/zero_optimization/stage";

json::Value shape_value(const GroupShape& shape) {
  return {{"num_gpus", shape.num_gpus}, {"num_nodes", shape.num_nodes}};
}

/// A list that is a set of candidates, given what the table says about its place.
bool is_candidate_list(const KnobTable& table, const json::Node& node) {
  if (!node.is_array()) return false;
  const Knob* const knob = table.find_knob(node.pointer());
  // DeepSpeed's schema may know nothing of what stands there, so that a list may be a value.
  if (knob == nullptr) return !node.pointer().starts_with("/optimizer/");
  if (knob->type != KnobType::list) return true;
  return !node.value().empty() && node.value().front().is_array();
}

/// An object with lists of candidates inside as the objects that it stands for, the last key
/// fastest; any other value as itself. `knob_pointer`: its place in a DeepSpeed config.
std::vector<json::Value> product_of(const KnobTable& table, const json::Node& node,
                                    const std::string& knob_pointer) {
  if (!node.is_object()) return {node.value()};
  std::vector<json::Value> objects = {json::Value::object()};
  for (const auto& key : node.keys()) {
    const json::Node member = *node.find(key);
    const auto pointer = json::append_pointer(knob_pointer, key);
    std::vector<json::Value> candidates;
    if (is_candidate_list(table, json::Node(node.document(), member.value(), pointer))) {
      for (const auto& element : member.elements())
        for (auto& value : product_of(table, element, pointer))
          candidates.push_back(std::move(value));
    } else {
      candidates = product_of(table, member, pointer);
    }
    std::vector<json::Value> longer;
    for (const auto& object : objects) {
      for (const auto& candidate : candidates) {
        longer.push_back(object);
        longer.back()[key] = candidate;
      }
    }
    objects = std::move(longer);
  }
  return objects;
}

/// One config with lists as a product.
class Expander {
 public:
  Expander(const JobSpec& job, const json::Value& config, json::Problems& problems)
      : job_(&job), problems_(&problems), root_(*job.document, config, "") {}

  Product run() {
    add_shapes();
    product_.base = root_.value();
    const auto zero = root_.find("zero_optimization");
    if (!zero || zero->is_null()) add_default_stages();
    for (const auto& key : root_.keys()) {
      const auto node = *root_.find(key);
      if (batch_kind(key)) {
        add_batch(key, node);
      } else if (job_->knobs().find_knob(node.pointer()) != nullptr) {
        find_below(node);
      }
    }
    for (const auto& [key, kind] : batch_keys)
      if (!root_.find(std::string(key))) add_batch(std::string(key), std::nullopt);
    if (product_.is_micro_batch_searched) fill_searched_micro_batches(*job_, product_, *problems_);
    add_recompute();
    return std::move(product_);
  }

 private:
  Dimension& add(Kind kind, const std::string& pointer) {
    product_.dimensions.push_back({kind, pointer, {}, {}, {}});
    return product_.dimensions.back();
  }

  static void add_candidate(Dimension& dimension, json::Value value, const std::string& origin) {
    dimension.candidates.push_back(std::move(value));
    dimension.origins.push_back(origin);
  }

  void set_base(const std::string& pointer, const json::Value& value) {
    product_.base[json::Value::json_pointer(pointer)] = value;
  }

  void remove_from_base(const std::string& pointer) {
    const json::Value::json_pointer place(pointer);
    product_.base[place.parent_pointer()].erase(place.back());
  }

  void add_shapes() {
    auto& dimension = add(Kind::shape, "");
    for (const auto& shape : job_->shapes)
      add_candidate(dimension, shape_value(shape), "/dstune/resources");
    if (dimension.candidates.empty()) add_candidate(dimension, shape_value({}), "");
  }

  void add_recompute() {
    auto& dimension = add(Kind::recompute, "");
    for (const auto mode : job_->recompute)
      add_candidate(dimension, to_text(mode), "/dstune/activation_recompute");
    if (dimension.candidates.empty()) add_candidate(dimension, "none", "");
  }

  void add_all_stages(const std::string& origin) {
    auto& dimension = add(Kind::knob, stage_pointer);
    for (int stage = 0; stage < 4; ++stage) add_candidate(dimension, stage, origin);
  }

  void add_default_stages() {
    product_.base["zero_optimization"] = {{"stage", 0}};
    add_all_stages("");
  }

  void add_batch(const std::string& key, const std::optional<json::Node>& node) {
    product_.base[key] = nullptr;
    product_.dimensions.push_back(batch_dimension(key, node, *job_, *problems_));
    if (product_.dimensions.back().kind == Kind::micro_batch)
      product_.is_micro_batch_searched = !(node && node->is_array());
  }

  void find_below(const json::Node& node) {
    if (node.pointer() == stage_pointer && node.value() == "all") {
      set_base(stage_pointer, 0);
      add_all_stages(stage_pointer);
    } else if (is_candidate_list(job_->knobs(), node)) {
      add_list(node);
    } else if (node.is_object()) {
      for (const auto& key : node.keys()) find_below(*node.find(key));
    }
  }

  void add_list(const json::Node& node) {
    if (node.value().empty()) {
      problems_->add(node.problem(
          "an empty list leaves nothing to try: name at least one value, or remove the key"));
      remove_from_base(node.pointer());
      return;
    }
    auto& dimension = add(Kind::knob, node.pointer());
    for (const auto& element : node.elements()) {
      auto values = product_of(job_->knobs(), element, node.pointer());
      if (values.empty()) {
        problems_->add(element.problem("an empty list inside leaves nothing to try"));
      }
      for (auto& value : values) add_candidate(dimension, std::move(value), element.pointer());
    }
    if (dimension.candidates.empty()) {
      remove_from_base(node.pointer());
      product_.dimensions.pop_back();
      return;
    }
    set_base(node.pointer(), dimension.candidates.front());
  }

  const JobSpec* job_;
  json::Problems* problems_;
  json::Node root_;
  Product product_;
};

/// The stages that a `zero_optimization` section asks for; adds problems.
std::vector<int> stages_of(const KnobTable& table, const std::optional<json::Node>& zero,
                           json::Problems& problems) {
  if (!zero || zero->is_null()) return {0, 1, 2, 3};
  if (zero->value().is_boolean()) return {zero->value().get<bool>() ? 1 : 0};
  if (!zero->is_object()) {
    problems.add(zero->problem(
        "with \"fast\": false the section is one object: each stage has a grid of its own"));
    return {};
  }
  const auto stage = zero->find("stage");
  if (!stage || stage->is_null() || stage->value() == "auto") return {0};
  if (stage->value() == "all") return {0, 1, 2, 3};
  std::vector<int> stages;
  const auto nodes = stage->is_array() ? stage->elements() : std::vector<json::Node>{*stage};
  for (const auto& node : nodes) {
    json::Problems wrong;
    const auto found =
        read_settings(table, json::Node(node.document(), node.value(), stage_pointer), wrong);
    for (const Problem& problem : wrong.all()) problems.add(node.problem(problem.message));
    const int number = static_cast<int>(std::get<std::int64_t>(found.front().value));
    if (std::find(stages.begin(), stages.end(), number) == stages.end()) stages.push_back(number);
  }
  return stages;
}

// DeepSpeed's templates and default grids of the ZeRO stages (docs/space.md).

json::Value built_in_template(int stage, std::int64_t hidden_size) {
  json::Value section = {{"stage", stage}};
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

json::Value default_grid(int stage) {
  const json::Value buckets = {50'000'000, 500'000'000, 1'000'000'000};
  json::Value grid = json::Value::object();
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
json::Value file_template(const KnobTable& table, const std::string& path,
                          json::Problems& problems) {
  try {
    const auto document = json::Document::read(path);
    const auto root = document.node();
    if (!root.expect_object(problems)) return json::Value::object();
    root.refuse_unknown_keys(problems, {"zero_optimization"});
    const auto section = root.find("zero_optimization");
    if (!section) {
      problems.add(root.problem("a template has the section \"zero_optimization\": add it"));
      return json::Value::object();
    }
    if (!section->expect_object(problems)) return json::Value::object();
    for (const auto& key : section->keys()) {
      const auto node = *section->find(key);
      if (!node.is_array()) read_settings(table, node, problems);
      for (const auto& element : node.elements())
        read_settings(table, json::Node(document, element.value(), node.pointer()), problems);
    }
    return section->value();
  } catch (const InputError& error) {
    add_all(error, problems);
    return json::Value::object();
  }
}

/// The `zero_optimization` section of a stage: the template (the job's own file where it names
/// one), over it the stage's default lists, over both what the document says in `written`, whose
/// stage is replaced. Bucket sizes of stage 3 follow from the model's hidden size, rounded. Adds
/// problems.
json::Value full_zero_section(const JobSpec& job, int stage, const json::Value& written,
                              json::Problems& problems) {
  const auto file = job.templates.find(stage);
  json::Value section = file == job.templates.end()
                            ? built_in_template(stage, job.model.hidden_size)
                            : file_template(job.knobs(), file->second, problems);
  // A file says itself what is tried.
  if (file == job.templates.end()) {
    const json::Value grid = default_grid(stage);
    for (const auto& [key, candidates] : grid.items()) section[key] = candidates;
  }
  for (const auto& [key, value] : written.items()) section[key] = value;
  section["stage"] = stage;
  return section;
}

/// The document with a stage's template and default lists: `zero_optimization` first, as DeepSpeed
/// puts it.
json::Value full_config(const JobSpec& job, int stage, json::Problems& problems) {
  const auto& written = job.ds_config;
  const bool has_section =
      written.contains("zero_optimization") && written.at("zero_optimization").is_object();
  json::Value config = json::Value::object();
  config["zero_optimization"] = full_zero_section(
      job, stage, has_section ? written.at("zero_optimization") : json::Value::object(), problems);
  for (const auto& [key, value] : written.items())
    if (key != "zero_optimization") config[key] = value;
  return config;
}

/// Members are numbered with 64 bits.
void check_size(const JobSpec& job, const std::vector<Product>& products,
                json::Problems& problems) {
  double total = 0;
  for (const auto& product : products) {
    double size = 1;
    for (const auto& dimension : product.dimensions)
      size *= static_cast<double>(dimension.candidates.size());
    total += size;
  }
  if (total < 1e18) return;
  problems.add(job.document->node().problem(fmt::format(
      "the lists make {:.0e} members, more than can be numbered: shorten them", total)));
}

}  // namespace

std::vector<Product> expand(const JobSpec& job, ConfigFindings& findings) {
  json::Problems problems;
  std::vector<Product> products;
  json::Value config = job.ds_config;
  const auto zero = json::Node(*job.document, job.ds_config, "").find("zero_optimization");
  if (zero && zero->value() == "all") {
    problems.add(zero->problem("write {\"stage\": \"all\"} for all stages"));
    config.erase("zero_optimization");
  }
  if (job.tuning.fast || findings.has_errors() || !problems.empty()) {
    products.push_back(Expander(job, config, problems).run());
  } else {
    for (const int stage : stages_of(job.knobs(), zero, problems))
      products.push_back(Expander(job, full_config(job, stage, problems), problems).run());
  }
  check_size(job, products, problems);
  const bool is_sound = problems.empty() && !findings.has_errors();
  for (const Problem& problem : problems.all()) findings.add(FindingKind::refused, problem);
  if (is_sound && !job.shapes.empty()) {
    json::Problems of_batches;
    check_batches(job, products.front(), of_batches);
    for (const Problem& problem : of_batches.all())
      findings.add(FindingKind::contradiction, problem);
  }
  check_candidates(job, products, findings);
  return products;
}

}  // namespace dstune
