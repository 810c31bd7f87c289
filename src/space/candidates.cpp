#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "check/document_findings.hpp"

namespace dstune {

namespace {

bool is_below(const std::string& pointer, const std::string& ancestor) {
  return pointer == ancestor || pointer.starts_with(ancestor + "/");
}

bool is_knob(const Dimension& dimension) {
  return dimension.kind == Dimension::Kind::knob;
}

class CandidateCheck {
 public:
  CandidateCheck(const JobSpec& job, Product& product, ConfigFindings& findings)
      : job_(&job), product_(&product), findings_(&findings) {}

  void run() {
    read_base();
    for (auto& dimension : product_->dimensions)
      if (is_knob(dimension)) read_candidates(dimension);
    const Trials trials(*job_, *product_);
    for (const Violation& violation : trials.common())
      if (!is_of_dimension(violation.pointer))
        add(kind_of(violation), violation.pointer, violation.message);
    for (const auto& dimension : product_->dimensions)
      if (is_knob(dimension)) check(trials, dimension);
  }

 private:
  static FindingKind kind_of(const Violation& violation) {
    switch (violation.weight) {
      case Weight::fails:
        return FindingKind::fails;
      case Weight::unbuilt:
        return FindingKind::not_built;
      default:
        return FindingKind::refused;
    }
  }

  void add(FindingKind kind, const std::string& pointer, const std::string& message,
           bool has_alternatives = false) {
    findings_->add(kind, problem_at(*job_, pointer, message), has_alternatives);
  }

  /// A problem of reading, at its place in the document.
  void add_problem(FindingKind kind, Problem problem, const std::string& pointer) {
    if (kind == FindingKind::refused && problem.is_late) kind = FindingKind::fails;
    problem.file = job_->document->file();
    problem.pointer = pointer;
    problem.line = job_->document->line(pointer);
    if (problem.is_late)
      problem.message +=
          fmt::format("{} DeepSpeed {} {}", problem.message.ends_with('?') ? "" : ";",
                      to_text(job_->deepspeed_version),
                      kind == FindingKind::unchecked ? "does not look at it"
                                                     : "takes it, and the training fails");
    if (problem.is_unknown_key && problem.message.find("did you mean") == std::string::npos)
      if (const std::string home = home_of(job_->knobs(), pointer); !home.empty())
        problem.message = fmt::format("unknown key: it belongs {}", home);
    findings_->add(kind, std::move(problem));
  }

  /// At the place in the document that a candidate comes from.
  static std::string origin_of(const Dimension& dimension, std::size_t index,
                               const std::string& pointer) {
    return dimension.origins[index] + pointer.substr(dimension.pointer.size());
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
    json::Problems found, unchecked;
    product_->settings =
        read_settings(job_->knobs(), json::Node(*job_->document, product_->base, ""), found,
                      job_->auto_values, &unchecked);
    for (const auto& [kind, problems] :
         {std::pair{FindingKind::refused, &found}, std::pair{FindingKind::unchecked, &unchecked}})
      for (const Problem& problem : problems->all())
        if (!is_of_dimension(problem.pointer)) add_problem(kind, problem, problem.pointer);
  }

  void read_candidates(Dimension& dimension) {
    dimension.settings.clear();
    for (std::size_t index = 0; index < dimension.candidates.size(); ++index) {
      json::Problems found, unchecked;
      dimension.settings.push_back(
          read_settings(job_->knobs(),
                        json::Node(*job_->document, dimension.candidates[index], dimension.pointer),
                        found, job_->auto_values, &unchecked));
      for (const auto& [kind, problems] :
           {std::pair{FindingKind::refused, &found}, std::pair{FindingKind::unchecked, &unchecked}})
        for (const Problem& problem : problems->all())
          add_problem(kind, problem, origin_of(dimension, index, problem.pointer));
    }
  }

  void check(const Trials& trials, const Dimension& dimension) {
    std::vector<std::pair<std::size_t, Violation>> unbuilt;
    for (std::size_t index = 0; index < dimension.candidates.size(); ++index) {
      bool is_unbuilt = false;
      for (const Violation& violation : trials.common(&dimension, index)) {
        if (!is_below(violation.pointer, dimension.pointer)) continue;
        if (!violation.is_unbuilt()) {
          add(FindingKind::refused, origin_of(dimension, index, violation.pointer),
              violation.message);
        } else if (!is_unbuilt) {
          unbuilt.emplace_back(index, violation);
          is_unbuilt = true;
        }
      }
    }
    const bool has_alternatives = unbuilt.size() < dimension.candidates.size();
    for (const auto& [index, violation] : unbuilt)
      add(kind_of(violation), origin_of(dimension, index, violation.pointer), violation.message,
          has_alternatives);
  }

  const JobSpec* job_;
  Product* product_;
  ConfigFindings* findings_;
};

// Warnings that the user gets once.

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
                      const std::function<void(const std::string&, std::string)>& add) {
  if (has(candidates_of(root, "zero_quantized_weights"), true)) {
    add("/zero_optimization/zero_quantized_weights",
        "stage 3 with it computes with weights of 8 "
        "bits, so its losses differ from those without");
  }
  const bool has_nodes = std::any_of(job.shapes.begin(), job.shapes.end(),
                                     [](const GroupShape& shape) { return shape.num_nodes > 1; });
  if (has_nodes && has(candidates_of(root, "zero_quantized_gradients"), true)) {
    add("/zero_optimization/zero_quantized_gradients",
        "stage 3 with it reduces gradients across nodes in 4 bits, so its losses differ from those "
        "without. DeepSpeed itself does not divide gradients of matrices by the ranks of a node, "
        "as is done here");
  }
}

/// DeepSpeed reduces gradients over the group of their parameter from this one on (stage3.py,
/// _get_param_partition_group), which MiCS does not tell it of.
constexpr Version release_in_which_copies_hang{0, 19, 3};

/// Says where DeepSpeed's MiCS fails.
void add_mics(const JobSpec& job, const json::Node& root,
              const std::function<void(const std::string&, std::string)>& add) {
  const std::string pointer = "/zero_optimization/mics_shard_size";
  const json::Value stages = candidates_of(root, "stage");
  if (job.knobs().find_knob(pointer) == nullptr || !(has(stages, 3) || has(stages, "all"))) return;
  const json::Value sizes = candidates_of(root, "mics_shard_size");
  const auto any = [&](const auto& judge) {
    return std::any_of(sizes.begin(), sizes.end(), [&](const json::Value& size) {
      return size.is_number() && size.get<double>() > 0 && judge(size.get<double>());
    });
  };
  const std::string release = to_text(job.deepspeed_version);
  const bool has_copies = any([&](double size) {
    return std::any_of(job.shapes.begin(), job.shapes.end(),
                       [&](const GroupShape& shape) { return size < shape.size(); });
  });
  if (has_copies && job.deepspeed_version >= release_in_which_copies_hang)
    add(pointer, fmt::format("DeepSpeed {} itself hangs in its first update if this is less than "
                             "the group's size; MiCS is measured here without that",
                             release));
  if (job.target.framework == TargetFramework::huggingface && job.target.zero_init &&
      any([](double) { return true; }))
    add(pointer,
        fmt::format("DeepSpeed {} refuses MiCS where the model is built under deepspeed.zero.Init, "
                    "as Hugging Face's Trainer builds it at stage 3: build it before the "
                    "TrainingArguments, and write \"zero_init\": false in dstune.target",
                    release));
}

}  // namespace

void check_candidates(const JobSpec& job, std::vector<Product>& products,
                      ConfigFindings& findings) {
  for (Product& product : products) CandidateCheck(job, product, findings).run();
}

void add_cautions(const JobSpec& job, ConfigFindings& findings) {
  const json::Node root(*job.document, job.ds_config, "");
  const auto add = [&](const std::string& pointer, std::string message) {
    findings.add(FindingKind::caution, problem_at(job, pointer, std::move(message)));
  };
  add_mics(job, root, add);
  add_quantization(job, root, add);
  if (has_unreduced_sums(job, root))
    add("/data_types/grad_accum_dtype",
        fmt::format("at stage 1 in fp16, and in bf16 with an offloaded optimizer, DeepSpeed {} "
                    "itself updates with each rank's own sums of gradients in fp32. It makes their "
                    "mean over ranks and drops it; the mean is used here",
                    to_text(job.deepspeed_version)));
}

}  // namespace dstune
