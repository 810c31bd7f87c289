#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sections/products.hpp"

namespace dstune {

namespace {

using Violations = std::vector<Violation>;

constexpr const char* zero_stage_pointer = "/zero_optimization/stage";

bool is_below(const std::string& pointer, const std::string& ancestor) {
  return pointer == ancestor || pointer.starts_with(ancestor + "/");
}

bool is_knob(const Dimension& dimension) {
  return dimension.kind == Dimension::Kind::knob;
}

/// Tries members of one product.
class Trials {
 public:
  Trials(const JobSpec& job, const Product& product)
      : job_(&job), base_(job.knobs()), last_(job.knobs()) {
    for (const auto& dimension : product.dimensions)
      if (dimension.pointer == zero_stage_pointer) stages_ = &dimension;
    base_.apply(product.settings);
    last_ = base_;
    for (const auto& dimension : product.dimensions) {
      if (!is_knob(dimension)) continue;
      base_.apply(dimension.settings.front());
      last_.apply(dimension.settings.back());
    }
  }

  /// The violations that every member tried has; `dimension` and `index`: with this candidate.
  [[nodiscard]] Violations common(const Dimension* dimension, std::size_t index) const {
    std::optional<Violations> common;
    for (const Settings* rest : {&base_, &last_}) {
      Settings settings = *rest;
      if (dimension != nullptr) settings.apply(dimension->settings[index]);
      const bool vary_stage = stages_ != nullptr && dimension != stages_;
      for (std::size_t stage = 0; stage < (vary_stage ? stages_->candidates.size() : 1); ++stage) {
        if (vary_stage) settings.apply(stages_->settings[stage]);
        keep(violations_for(*job_, settings), common);
        if (common->empty()) return {};
      }
    }
    return *common;
  }

 private:
  static void keep(const Violations& found, std::optional<Violations>& common) {
    if (!common) {
      common = found;
      return;
    }
    std::erase_if(*common, [&](const Violation& violation) {
      return std::find(found.begin(), found.end(), violation) == found.end();
    });
  }

  const JobSpec* job_;
  const Dimension* stages_ = nullptr;
  Settings base_, last_;  ///< with each dimension's first and last candidate
};

class CandidateCheck {
 public:
  CandidateCheck(const JobSpec& job, Product& product, json::Problems& problems)
      : job_(&job), product_(&product), problems_(&problems) {}

  void run() {
    read_base();
    for (auto& dimension : product_->dimensions)
      if (is_knob(dimension)) read_candidates(dimension);
    const Trials trials(*job_, *product_);
    for (const Violation& violation : trials.common(nullptr, 0))
      if (!is_of_dimension(violation.pointer)) add(violation.pointer, violation.message);
    for (const auto& dimension : product_->dimensions)
      if (is_knob(dimension)) check(trials, dimension);
  }

 private:
  void add(const std::string& pointer, const std::string& message) {
    const Problem problem{job_->document->file(), pointer, job_->document->line(pointer), message};
    const auto& known = problems_->all();
    if (std::find(known.begin(), known.end(), problem) == known.end()) problems_->add(problem);
  }

  /// At the place in the document that a candidate comes from.
  void add_at_origin(const Dimension& dimension, std::size_t index, const std::string& pointer,
                     const std::string& message) {
    add(dimension.origins[index] + pointer.substr(dimension.pointer.size()), message);
  }

  [[nodiscard]] bool is_of_dimension(const std::string& pointer) const {
    return std::any_of(product_->dimensions.begin(), product_->dimensions.end(),
                       [&](const Dimension& dimension) {
                         // A key without a row has no candidates to complain about.
                         return is_knob(dimension) && job_->knobs().find(dimension.pointer) &&
                                is_below(pointer, dimension.pointer);
                       });
  }

  void read_base() {
    json::Problems found;
    product_->settings = read_settings(
        job_->knobs(), json::Node(*job_->document, product_->base, ""), found, job_->auto_values);
    for (const Problem& problem : problems_for(*job_, found))
      if (!is_of_dimension(problem.pointer)) add(problem.pointer, problem.message);
  }

  void read_candidates(Dimension& dimension) {
    dimension.settings.clear();
    for (std::size_t index = 0; index < dimension.candidates.size(); ++index) {
      json::Problems found;
      dimension.settings.push_back(
          read_settings(job_->knobs(),
                        json::Node(*job_->document, dimension.candidates[index], dimension.pointer),
                        found, job_->auto_values));
      for (const Problem& problem : problems_for(*job_, found))
        add_at_origin(dimension, index, problem.pointer, problem.message);
    }
  }

  void check(const Trials& trials, const Dimension& dimension) {
    std::vector<std::pair<std::size_t, Violation>> unbuilt;
    for (std::size_t index = 0; index < dimension.candidates.size(); ++index) {
      bool is_unbuilt = false;
      for (const Violation& violation : trials.common(&dimension, index)) {
        if (!is_below(violation.pointer, dimension.pointer)) continue;
        if (!violation.is_unbuilt) {
          add_at_origin(dimension, index, violation.pointer, violation.message);
        } else if (!is_unbuilt) {
          unbuilt.emplace_back(index, violation);
          is_unbuilt = true;
        }
      }
    }
    if (unbuilt.size() < dimension.candidates.size()) return;
    for (const auto& [index, violation] : unbuilt)
      add_at_origin(dimension, index, violation.pointer, violation.message);
  }

  const JobSpec* job_;
  Product* product_;
  json::Problems* problems_;
};

/// The reason why the step does not act on a candidate, in every member that was tried; empty: it
/// does.
std::string unbuilt_reason(const Trials& trials, const Dimension& dimension, std::size_t index) {
  for (const Violation& violation : trials.common(&dimension, index))
    if (violation.is_unbuilt && is_below(violation.pointer, dimension.pointer))
      return violation.message;
  return "";
}

// Warnings that the user gets once.

bool is_default(const json::Value& value, const Knob& knob) {
  return value.is_null() || value == "auto" || value == json::Value::parse(knob.fallback);
}

/// Keys that are there and do not move the search, by why.
class EffectNotes {
 public:
  explicit EffectNotes(const KnobTable& table) : table_(&table) {}

  void read(const json::Node& node) {
    const Knob* const knob = table_->find_knob(node.pointer());
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
  [[nodiscard]] bool has_effect_below(const json::Node& node) const {
    for (const auto& key : node.keys()) {
      const json::Node member = *node.find(key);
      const Knob* const knob = table_->find_knob(member.pointer());
      if (knob != nullptr && knob->effect != KnobEffect::inert) return true;
      if (has_effect_below(member)) return true;
    }
    return false;
  }

  const KnobTable* table_;
  std::vector<std::string> inert_, not_built_;
};

/// The candidates of a key of a section.
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

/// Tells whether DeepSpeed itself does not average (get_param_gradient_attribute in
/// stage_1_and_2.py).
bool has_unreduced_sums(const JobSpec& job, const json::Node& root) {
  if (switches_of(job.deepspeed_version).fp32_sums_are_averaged) return false;
  if (!has(candidates_of(root, "data_types", "grad_accum_dtype"), "fp32")) return false;
  const json::Value stages = candidates_of(root, "stage");
  const bool has_stage1 = !root.find("zero_optimization") || has(stages, 1) || has(stages, "all");
  const json::Value devices = candidates_of(root, "offload_optimizer");
  const bool offloads = std::any_of(devices.begin(), devices.end(),
                                    [](const json::Value& each) { return !each.is_null(); });
  const bool is_group = std::any_of(job.shapes.begin(), job.shapes.end(),
                                    [](const GroupShape& shape) { return shape.size() > 1; });
  return is_group && has_stage1 && (offloads || has(candidates_of(root, "fp16", "enabled"), true));
}

/// Warns of changes that ZeRO++'s quantisation makes beside times.
void add_quantization(const JobSpec& job, const json::Node& root,
                      std::vector<std::string>& warnings) {
  if (has(candidates_of(root, "zero_quantized_weights"), true)) {
    warnings.push_back(
        "zero_optimization.zero_quantized_weights: stage 3 with it computes with weights of 8 "
        "bits, so its losses differ from those without");
  }
  const bool has_nodes = std::any_of(job.shapes.begin(), job.shapes.end(),
                                     [](const GroupShape& shape) { return shape.num_nodes > 1; });
  if (has_nodes && has(candidates_of(root, "zero_quantized_gradients"), true)) {
    warnings.push_back(
        "zero_optimization.zero_quantized_gradients: stage 3 with it reduces gradients across "
        "nodes in 4 bits, so its losses differ from those without; DeepSpeed itself does not "
        "divide those of matrices by the ranks of a node, as is done here");
  }
}

/// Tells whether some group would hold several copies of the states (MiCS).
bool has_copies(const JobSpec& job, const json::Node& root) {
  const json::Value list = candidates_of(root, "mics_shard_size");
  return std::any_of(list.begin(), list.end(), [&](const json::Value& candidate) {
    return candidate.is_number() && candidate.get<double>() > 0 &&
           std::any_of(job.shapes.begin(), job.shapes.end(), [&](const GroupShape& shape) {
             return candidate.get<double>() < shape.size();
           });
  });
}

/// Those inside sections that DeepSpeed closes, which another release may know.
void add_unknown_keys(const JobSpec& job, const std::vector<Product>& products,
                      std::vector<std::string>& warnings) {
  std::set<std::string> pointers;
  const auto find = [&](const json::Value& value, const std::string& pointer) {
    json::Problems found;
    read_settings(job.knobs(), json::Node(*job.document, value, pointer), found, job.auto_values);
    for (const Problem& problem : found.all())
      if (problem.is_unknown_key) pointers.insert(problem.pointer);
  };
  for (const Product& product : products) {
    find(product.base, "");
    for (const Dimension& dimension : product.dimensions)
      if (is_knob(dimension))
        for (const json::Value& candidate : dimension.candidates)
          find(candidate, dimension.pointer);
  }
  for (const std::string& pointer : pointers)
    warnings.push_back(
        fmt::format("{} is no key that DeepSpeed {} knows: it passes through unchecked", pointer,
                    to_text(job.deepspeed_version)));
}

/// Who knows a top-level key that this release does not, or which of its keys may be meant.
std::string hint_on(const KnobTable& knobs, const std::string& pointer) {
  if (const Knob* const other = every_knob().find_knob(pointer))
    return fmt::format(" (known from {} on)", to_text(other->since));
  std::vector<std::string_view> known;
  for (const std::size_t row : knobs.below(""))
    known.push_back(std::string_view(knobs.keys()[row].pointer).substr(1));
  const auto meant = json::nearest(std::string_view(pointer).substr(1), known);
  return meant ? fmt::format(" (did you mean \"{}\"?)", *meant) : "";
}

}  // namespace

void check_candidates(const JobSpec& job, std::vector<Product>& products,
                      json::Problems& problems) {
  for (Product& product : products) CandidateCheck(job, product, problems).run();
}

std::vector<std::string> find_warnings(const JobSpec& job, const std::vector<Product>& products) {
  std::vector<std::string> warnings;
  const std::string deepspeed = fmt::format("DeepSpeed {}", to_text(job.deepspeed_version));
  EffectNotes notes(job.knobs());
  const json::Node root(*job.document, job.ds_config, "");
  for (const auto& key : root.keys()) {
    const auto node = *root.find(key);
    if (job.knobs().find_knob(node.pointer()) == nullptr) {
      warnings.push_back(fmt::format("{} is no key that {} knows{}: it passes through unchecked",
                                     node.pointer(), deepspeed,
                                     hint_on(job.knobs(), node.pointer())));
    } else {
      notes.read(node);
    }
  }
  // Somebody else's code may act on every key.
  if (job.takes_any_key()) {
    add_unknown_keys(job, products, warnings);
    return warnings;
  }
  notes.add_to(warnings);
  if (has_copies(job, root)) {
    warnings.push_back(
        "zero_optimization.mics_shard_size: DeepSpeed 0.19.6 itself hangs in its first update "
        "where this is less than the group's size; what is measured here is MiCS without that");
  }
  add_quantization(job, root, warnings);
  if (has_unreduced_sums(job, root)) {
    warnings.push_back(fmt::format(
        "data_types.grad_accum_dtype: at stage 1 in fp16, and in bf16 with an offloaded optimizer, "
        "{} itself updates with the sums in fp32 of each rank's own gradients; their mean over "
        "ranks, which it makes and drops, is what is used here",
        deepspeed));
  }
  for (const Product& product : products) {
    const Trials trials(job, product);
    for (const Dimension& dimension : product.dimensions) {
      if (dimension.kind != Dimension::Kind::knob || dimension.candidates.size() == 1) continue;
      for (std::size_t index = 0; index < dimension.candidates.size(); ++index) {
        const std::string reason = unbuilt_reason(trials, dimension, index);
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
