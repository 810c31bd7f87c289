#include <algorithm>

#include <fmt/format.h>

#include "dimensions.hpp"
#include "dstune/space/search_space.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

constexpr const char* stage_pointer = "/zero_optimization/stage";

json::Value shape_value(const GroupShape& shape) {
  return {{"num_gpus", shape.num_gpus}, {"num_nodes", shape.num_nodes}};
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
      } else if (find_knob(node.pointer()) != nullptr) {
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
    product_.dimensions.push_back(batch_dimension(key, node, job_->tuning, *problems_));
    if (product_.dimensions.back().kind == Kind::micro_batch)
      product_.is_micro_batch_searched = !(node && node->is_array());
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
      remove_from_base(node.pointer());
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
std::vector<int> stages_of(const std::optional<json::Node>& zero, json::Problems& problems) {
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
        read_settings(json::Node(node.document(), node.value(), stage_pointer), wrong);
    for (const Problem& problem : wrong.all()) problems.add(node.problem(problem.message));
    const int number = static_cast<int>(std::get<std::int64_t>(found.front().value));
    if (std::find(stages.begin(), stages.end(), number) == stages.end()) stages.push_back(number);
  }
  return stages;
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

std::vector<Product> expand(const JobSpec& job, json::Problems& problems) {
  std::vector<Product> products;
  json::Value config = job.ds_config;
  const auto zero = json::Node(*job.document, job.ds_config, "").find("zero_optimization");
  if (zero && zero->value() == "all") {
    problems.add(zero->problem("write {\"stage\": \"all\"} for all stages"));
    config.erase("zero_optimization");
  }
  if (job.tuning.fast || !problems.empty()) {
    products.push_back(Expander(job, config, problems).run());
  } else {
    for (const int stage : stages_of(zero, problems))
      products.push_back(Expander(job, full_config(job, stage, problems), problems).run());
  }
  check_size(job, products, problems);
  if (problems.empty()) check_batches(job, products.front(), problems);
  check_candidates(job, products, problems);
  return products;
}

}  // namespace dstune
