#include "dstune/space/config_check.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "deepspeed_sizes.hpp"
#include "document_findings.hpp"
#include "dstune/core/command_reading.hpp"
#include "sections/command_values.hpp"
#include "sections/release.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

/// The default of an argument of Hugging Face's Trainer that it compares with the config's key.
struct TrainersDefault {
  std::string_view argument;
  double value;
};
constexpr TrainersDefault trainers_defaults[] = {
    {"per_device_train_batch_size", 8},
    {"gradient_accumulation_steps", 1},
    {"max_grad_norm", 1},
    {"learning_rate", 5e-5},
    {"adam_epsilon", 1e-8},
    {"weight_decay", 0},
    {"adam_beta1", 0.9},
    {"adam_beta2", 0.999},
    {"fp16", 0},
    {"bf16", 0},
};

bool is_same(const json::Value& one, const json::Value& other) {
  if (one.is_boolean() && other.is_number()) return one.get<bool>() == (other != 0);
  if (one.is_number() && other.is_number())
    return std::abs(one.get<double>() - other.get<double>()) <=
           1e-9 * std::abs(other.get<double>());
  return one == other;
}

class ConfigChecker {
 public:
  ConfigChecker(const json::Document& document, const ConfigCheck& known)
      : known_(&known), root_(document.node()) {
    job_.document = std::make_shared<const json::Document>(document);
    job_.folder = std::filesystem::path(document.file()).parent_path().string();
  }

  CheckedConfig run() {
    json::Problems problems;
    if (root_.expect_object(problems)) {
      read_sections(problems);
      for (const Problem& problem : problems.all()) findings_.add(FindingKind::refused, problem);
      check_keys();
      check_batch();
      if (known_->command) check_command();
    } else {
      for (const Problem& problem : problems.all()) findings_.add(FindingKind::refused, problem);
    }
    findings_.drop_consequences();
    ConfigFindings located;
    for (const Finding& one : findings_.all()) {
      Problem problem = job_.document->located(one.problem);
      if (one.kind == FindingKind::not_built)
        problem.message = "DeepSpeed runs it, and the built-in step does not";
      located.add(one.kind, std::move(problem), one.has_alternatives);
    }
    located.sort();
    return {job_.deepspeed_version, job_.deepspeed_source, std::move(located)};
  }

 private:
  void read_sections(json::Problems& problems) {
    replaced_ = replace_own_variables(root_, problems);
    const json::Node root(*job_.document, replaced_, "");
    if (known_->release) {
      job_.deepspeed_version = *known_->release;
      job_.deepspeed_source = "--deepspeed-version";
    }
    json::Problems of_sections, unbuilt;
    SectionTarget target{.job = &job_, .problems = &of_sections, .unbuilt = &unbuilt};
    if (const auto tuning = given(root, "autotuning")) read_autotuning(*tuning, target);
    if (const auto ours = given(root, "dstune")) read_dstune(*ours, target);
    target.problems = &problems;
    add_section_problems(of_sections, target);
    for (const Problem& problem : unbuilt.all()) findings_.add(FindingKind::not_built, problem);
    decide_release(known_->python, root, target);
    for (const std::string& warning : job_.warnings)
      findings_.add(FindingKind::caution, {job_.document->file(), "", 0, warning});
    // A key or a default of the next known release may have come with this one.
    if (const Version known = known_release(job_.deepspeed_version);
        job_.warnings.empty() && job_.deepspeed_version != known)
      findings_.add(FindingKind::caution,
                    {job_.document->file(), "", 0,
                     fmt::format("DeepSpeed {} is judged by the keys and defaults of {}",
                                 to_text(job_.deepspeed_version), to_text(known))});
    job_.ds_config = replaced_;
    for (const char* const ours : our_sections) job_.ds_config.erase(ours);
    job_.key_use = key_use_of(job_, known_->is_on_cpus);
    if (known_->data_parallel_ranks) job_.shapes = {{*known_->data_parallel_ranks, 1}};
  }

  void check_keys() {
    is_space_ = root_.find("dstune").has_value() || is_tuned();
    // In a space all stages are tried then.
    if (!is_space_ && !is_written("zero_optimization")) {
      if (job_.ds_config.contains("zero_optimization"))
        findings_.add(FindingKind::refused,
                      problem_at(job_, "/zero_optimization", "expected an object, got null"));
      job_.ds_config["zero_optimization"] = {{"stage", 0}};
    }
    if (!is_space_) take_sizes();
    const auto products = expand(job_, findings_);
    add_key_findings(job_, products, findings_);
    add_cautions(job_, findings_);
    Settings settings(job_.knobs());
    settings.apply(products.front().settings);
    add_changed_defaults(job_, settings.zero_stage(), findings_);
    is_space_ = is_space_ ||
                std::ranges::any_of(products.front().dimensions, [&](const Dimension& dimension) {
                  return dimension.kind == Dimension::Kind::knob &&
                         dimension.candidates.size() > 1 && job_.knobs().find(dimension.pointer);
                });
  }

  /// DeepSpeed computes with every number; ours are integers.
  void take_sizes() {
    for (const auto& [key, kind] : batch_keys) {
      const auto found = job_.ds_config.find(std::string(key));
      if (found == job_.ds_config.end() || !(found->is_number() || found->is_boolean())) continue;
      const std::string pointer = fmt::format("/{}", key);
      json::Problems problems;
      const json::Node node(*job_.document, *found, pointer);
      if (job_.knobs().read_value(node, *job_.knobs().find_knob(pointer), problems)) continue;
      constexpr double largest = 9.2e18;
      const double size = found->is_boolean() ? found->get<bool>() : found->get<double>();
      if (size <= 0 || size > largest) continue;
      for (const Problem& problem : problems.all())
        findings_.add(
            FindingKind::fails,
            problem_at(job_, pointer, problem.message + "; DeepSpeed's config computes with it"));
      job_.ds_config.erase(found);
    }
  }

  [[nodiscard]] bool is_tuned() const {
    const auto tuning = given(root_, "autotuning");
    return tuning && tuning->is_object() && tuning->value().value("enabled", json::Value()) == true;
  }

  [[nodiscard]] std::optional<std::int64_t> size_of_key(const char* key) const {
    const auto found = job_.ds_config.find(key);
    if (found == job_.ds_config.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<std::int64_t>();
  }

  [[nodiscard]] bool is_written(const char* key) const {
    const auto found = job_.ds_config.find(key);
    return found != job_.ds_config.end() && !found->is_null();
  }

  /// The batch rule for any number of ranks; with a number of them the space has checked it.
  void check_batch() {
    const auto ranks = known_->data_parallel_ranks;
    if (const auto elastic = refusal_of_elasticity(replaced_, ranks, job_.deepspeed_version)) {
      if (!elastic->empty())
        findings_.add(FindingKind::refused, problem_at(job_, "/elasticity", *elastic));
      return;
    }
    if (findings_.has_errors()) return;
    // The sizes of a space may be candidates, and the tuner's.
    const bool has_sizes =
        size_of_key("train_batch_size") && size_of_key("train_micro_batch_size_per_gpu");
    if (!is_space_ || has_sizes) {
      const std::string refusal =
          refusal_of_sizes(replaced_, ranks.value_or(1), job_.deepspeed_version);
      const bool is_of_none = refusal.starts_with("DeepSpeed needs");
      if (!refusal.empty() && (ranks || is_of_none))
        findings_.add(
            FindingKind::contradiction,
            is_of_none ? root_.problem(refusal) : problem_at(job_, "/train_batch_size", refusal));
      if (!refusal.empty() && (ranks || is_of_none)) return;
    }
    if (!job_.shapes.empty()) return;
    const WrittenBatch written{size_of_key("train_batch_size"),
                               size_of_key("train_micro_batch_size_per_gpu"),
                               size_of_key("gradient_accumulation_steps"), std::nullopt};
    if (const std::string wrong = contradiction_of(written); !wrong.empty())
      findings_.add(FindingKind::contradiction,
                    problem_at(job_, "/train_batch_size", wrong + batch_advice(written)));
  }

  /// Hugging Face's Trainer refuses to start where its arguments and the config differ.
  void check_command() {
    UserCommand command{.text = *known_->command};
    command.folder = std::filesystem::current_path().string();
    JobSpec reader;
    reader.folder = command.folder;
    const CommandReading read =
        read_command(command.text, job_.tuning.arg_mappings, files_of(reader));
    if (!read.takes_training_arguments) return;
    for (const TrainingArgument& argument :
         training_arguments(command, job_.ds_config, Recompute::selective)) {
      // Lists are candidates.
      if (argument.value.is_structured() || argument.pointer.empty()) continue;
      const CommandValue* const said = read.find(argument.pointer.substr(1));
      const Problem place = problem_at(job_, argument.pointer, "");
      if (said != nullptr)
        compare(*said, argument, place);
      else
        compare_with_default(argument, place);
    }
  }

  void compare(const CommandValue& said, const TrainingArgument& argument, Problem place) {
    const bool is_flag = said.text == "True" || said.text == "False";
    const json::Value value =
        json::Value::parse(is_flag ? lower_case(said.text) : said.text, nullptr, false);
    if (value.is_discarded() || is_same(argument.value, value)) return;
    place.message = fmt::format(
        "is {}, and the training command says {} {}: Hugging Face's Trainer refuses the two; write "
        "\"auto\", or the same in both",
        argument.value.dump(), said.source, said.text);
    findings_.add(FindingKind::contradiction, std::move(place));
  }

  void compare_with_default(const TrainingArgument& argument, Problem place) {
    const auto* const usual =
        std::ranges::find(trainers_defaults, argument.name, &TrainersDefault::argument);
    if (usual == std::end(trainers_defaults) || is_same(argument.value, usual->value)) return;
    const std::string value = argument.value.is_boolean() ? "off" : fmt::format("{}", usual->value);
    place.message = fmt::format(
        "is {}, and the training command has no --{}, which is {} by default: Hugging Face's "
        "Trainer refuses the two unless the script sets it; write \"auto\"",
        argument.value.dump(), argument.name, value);
    findings_.add(FindingKind::fails, std::move(place));
  }

  const ConfigCheck* known_;
  json::Node root_;
  JobSpec job_;
  json::Value replaced_;
  ConfigFindings findings_;
  bool is_space_ = false;
};

}  // namespace

CheckedConfig check_config(const json::Document& document, const ConfigCheck& known) {
  return ConfigChecker(document, known).run();
}

}  // namespace dstune
