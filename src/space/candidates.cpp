#include <algorithm>

#include "dimensions.hpp"

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
  explicit Trials(const Product& product) : product_(&product) {
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
        keep(violations_of(settings), common);
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

  const Product* product_;
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
    const Trials trials(*product_);
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
                         return is_knob(dimension) && is_below(pointer, dimension.pointer);
                       });
  }

  void read_base() {
    json::Problems found;
    product_->settings = read_settings(json::Node(*job_->document, product_->base, ""), found);
    for (const Problem& problem : found.all())
      if (!is_of_dimension(problem.pointer)) add(problem.pointer, problem.message);
  }

  void read_candidates(Dimension& dimension) {
    dimension.settings.clear();
    for (std::size_t index = 0; index < dimension.candidates.size(); ++index) {
      json::Problems found;
      dimension.settings.push_back(read_settings(
          json::Node(*job_->document, dimension.candidates[index], dimension.pointer), found));
      for (const Problem& problem : found.all())
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

bool is_list_knob(const std::string& pointer) {
  const Knob* const knob = find_knob(pointer);
  return knob != nullptr && knob->type == KnobType::list;
}

/// DeepSpeed's schema may know nothing of what stands under these, so that a list may be a value.
bool is_open_optimizer_member(const std::string& pointer) {
  return pointer.starts_with("/optimizer/") && find_knob(pointer) == nullptr;
}

}  // namespace

bool is_candidate_list(const json::Node& node) {
  if (!node.is_array() || is_open_optimizer_member(node.pointer())) return false;
  if (!is_list_knob(node.pointer())) return true;
  return !node.value().empty() && node.value().front().is_array();
}

std::vector<json::Value> product_of(const json::Node& node, const std::string& knob_pointer) {
  if (!node.is_object()) return {node.value()};
  std::vector<json::Value> objects = {json::Value::object()};
  for (const auto& key : node.keys()) {
    const json::Node member = *node.find(key);
    const auto pointer = json::append_pointer(knob_pointer, key);
    std::vector<json::Value> candidates;
    if (is_candidate_list(json::Node(node.document(), member.value(), pointer))) {
      for (const auto& element : member.elements()) {
        for (auto& value : product_of(element, pointer)) candidates.push_back(std::move(value));
      }
    } else {
      candidates = product_of(member, pointer);
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

void check_candidates(const JobSpec& job, std::vector<Product>& products,
                      json::Problems& problems) {
  for (Product& product : products) CandidateCheck(job, product, problems).run();
}

std::string unbuilt_reason(const Product& product, const Dimension& dimension, std::size_t index) {
  for (const Violation& violation : Trials(product).common(&dimension, index))
    if (violation.is_unbuilt && is_below(violation.pointer, dimension.pointer))
      return violation.message;
  return "";
}

}  // namespace dstune
