#include "accelerate_config.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/accelerate_values.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;
using json::Document;
using json::Value;

constexpr const char* section_key = "deepspeed_config";
constexpr const char* file_key = "deepspeed_config_file";

/// Keys that only a file of accelerate's has.
constexpr std::array<const char*, 3> accelerate_marks{section_key, "distributed_type",
                                                      "compute_environment"};
/// The keys that accelerate takes in deepspeed_config (commands/launch.py).
constexpr std::array<std::string_view, 16> accelerate_keys{"zero_stage",
                                                           "offload_optimizer_device",
                                                           "offload_param_device",
                                                           "offload_optimizer_nvme_path",
                                                           "offload_param_nvme_path",
                                                           "gradient_accumulation_steps",
                                                           "gradient_clipping",
                                                           "zero3_init_flag",
                                                           "zero3_save_16bit_model",
                                                           file_key,
                                                           "deepspeed_hostfile",
                                                           "deepspeed_exclusion_filter",
                                                           "deepspeed_inclusion_filter",
                                                           "deepspeed_multinode_launcher",
                                                           "deepspeed_moe_layer_cls_names",
                                                           "deepspeed_opt_level"};

/// An integer in a text, as accelerate passes its values on; else the value.
Value number_in(const Value& value) {
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  const bool is_integer = !text.empty() && text.size() < 10 &&
                          std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return is_integer ? Value(std::stoi(text)) : value;
}

/// A switch as accelerate reads it: a text is one, too.
Value flag_in(const Value& value) {
  if (!value.is_string()) return value;
  return lower_case(value.get<std::string>()) == "true";
}

class AccelerateConfig {
 public:
  AccelerateConfig(const Document& written, json::Problems& problems)
      : written_(&written), root_(written.node()), problems_(&problems) {
    if (const auto section = root_.find(section_key); section && !section->is_null())
      if (section->expect_object(problems)) section_ = section;
  }

  ConfigFile read() {
    check_type();
    check_keys();
    if (const auto file = said(file_key))
      fill_file(*file);
    else
      fill_keys();
    take_precision();
    for (const char* const ours : our_sections)
      if (const auto section = root_.find(ours)) put_tree(fmt::format("/{}", ours), *section);
    problems_->check();
    ConfigFile file{(base_ ? *base_ : *written_).with(std::move(config_), std::move(places_)),
                    shape(), std::move(notes_)};
    return file;
  }

 private:
  using Pointer = Value::json_pointer;

  /// A key of deepspeed_config that has a value.
  [[nodiscard]] std::optional<json::Node> said(const std::string& key) const {
    const auto node = section_ ? section_->find(key) : std::nullopt;
    return node && !node->is_null() ? node : std::nullopt;
  }

  [[nodiscard]] std::string section_pointer() const { return section_ ? section_->pointer() : ""; }

  void put(const std::string& pointer, Value value, const json::Node& from) {
    config_[Pointer(pointer)] = std::move(value);
    places_[pointer] = written_->place(from.pointer());
  }
  /// The value with all that is inside it.
  void put_tree(const std::string& pointer, const json::Node& from) {
    if (!config_.contains(Pointer(pointer))) put(pointer, from.value(), from);
    places_[pointer] = written_->place(from.pointer());
    for (const std::string& key : from.keys())
      put_tree(json::append_pointer(pointer, key), *from.find(key));
    int index = 0;
    for (const json::Node& element : from.elements())
      put_tree(fmt::format("{}/{}", pointer, index++), element);
  }

  void check_type() {
    const auto type = root_.find("distributed_type");
    if (type && type->value() == "DEEPSPEED") return;
    const std::string word =
        !type ? "no distributed_type"
              : fmt::format("distributed_type {}",
                            printable(type->is_string() ? type->value().get<std::string>()
                                                        : type->value().dump()));
    if (section_ && !section_->value().empty())
      notes_.push_back(type.value_or(root_).problem(fmt::format(
          "the file has {}: accelerate reads its deepspeed_config only where that is DEEPSPEED",
          word)));
    else
      problems_->add(type.value_or(root_).problem(fmt::format(
          "this is a file of accelerate config with {}, which trains without DeepSpeed: write "
          "DEEPSPEED and a deepspeed_config, or give a DeepSpeed config",
          word)));
  }

  void check_keys() {
    const std::vector<std::string_view> known(accelerate_keys.begin(), accelerate_keys.end());
    for (const std::string& key : root_.keys())
      if (std::ranges::find(known, key) != known.end())
        problems_->add(root_.find(key)->problem(
            "accelerate takes this key in deepspeed_config, not beside it: move it there"));
    if (!section_) return;
    for (const std::string& key : section_->keys()) {
      if (std::ranges::find(known, key) != known.end()) continue;
      const json::Node place = *section_->find(key);
      if (const auto meant = json::nearest(key, known))
        problems_->add(place.problem(fmt::format("unknown key: did you mean \"{}\"?", *meant)));
      else
        notes_.push_back(
            place.problem("accelerate does not read this key: write it in a DeepSpeed config, and "
                          "name that as deepspeed_config_file"));
    }
  }

  /// DeepSpeedPlugin.__post_init__() without a file.
  void fill_keys() {
    const std::array<std::pair<const char*, const char*>, 2> devices{
        {{"offload_optimizer_device", "offload_optimizer"},
         {"offload_param_device", "offload_param"}}};
    config_ = {{"train_batch_size", "auto"},
               {"train_micro_batch_size_per_gpu", "auto"},
               {"gradient_accumulation_steps", "auto"},
               {"zero_optimization", {{"stage", 2}}}};
    if (const auto steps = said("gradient_accumulation_steps"))
      put("/gradient_accumulation_steps", number_in(steps->value()), *steps);
    if (const auto stage = said("zero_stage"))
      put("/zero_optimization/stage", number_in(stage->value()), *stage);
    for (const auto& [key, name] : devices) {
      const auto device = said(key);
      if (!device || device->value() == "none") continue;
      const std::string pointer = fmt::format("/zero_optimization/{}", name);
      config_[Pointer(pointer)] = Value::object();
      places_[pointer] = written_->place(device->pointer());
      put(pointer + "/device", device->value(), *device);
      if (device->value() != "nvme") continue;
      const auto path = said(fmt::format("{}_nvme_path", name));
      if (path) put(pointer + "/nvme_path", path->value(), *path);
      // Options of accelerate launch that its environment for the script lacks (utils/launch.py).
      notes_.push_back(root_.problem(fmt::format(
          "accelerate launch does not pass {}_nvme_path on, and DeepSpeed writes to a folder "
          "\"none\": name the path in a DeepSpeed config, and that as deepspeed_config_file",
          name)));
    }
    if (const auto saves = said("zero3_save_16bit_model"))
      put("/zero_optimization/stage3_gather_16bit_weights_on_model_save", flag_in(saves->value()),
          *saves);
    config_["gradient_clipping"] = "auto";
    for (const auto& item : config_.items()) {
      const std::string key = fmt::format("/{}", item.key());
      const json::Place section = written_->place(section_pointer());
      places_.emplace(key, json::Place{section.file, section.pointer + key, section.line});
    }
    const auto clipping = said("gradient_clipping");
    if (clipping && (clipping->value() == 0 || clipping->value() == false))
      config_.erase("gradient_clipping");  // there accelerate writes none
    else if (clipping)
      put("/gradient_clipping", clipping->value(), *clipping);
  }

  /// The same with the file that deepspeed_config_file names.
  void fill_file(const json::Node& name) {
    for (const std::string& key : inline_keys(written_->root()))
      problems_->add(said(key).value_or(*section_).problem(
          "accelerate refuses this key beside deepspeed_config_file: write it in that file"));
    const auto path = name.string(*problems_);
    if (!path) return;
    const std::string found = find_file(*path);
    if (found.empty()) {
      problems_->add(name.problem(
          fmt::format("the DeepSpeed config {} does not exist: name a file that does, seen from "
                      "the working directory or from this file's folder",
                      printable(*path))));
      return;
    }
    try {
      base_ = Document::read(found);
    } catch (const InputError& error) {
      for (const Problem& problem : error.problems()) problems_->add(problem);
      return;
    }
    if (!base_->node().expect_object(*problems_)) return;
    config_ = base_->root();
    if (!config_.contains("gradient_accumulation_steps")) {
      config_["gradient_accumulation_steps"] = 1;
      places_["/gradient_accumulation_steps"] = base_->place("");
      const auto batch = config_.find("train_batch_size");
      if (batch != config_.end() && batch->is_number())
        notes_.push_back(
            base_->problem("", "gradient_accumulation_steps is not there: accelerate writes 1"));
    }
    if (!config_.contains("zero_optimization")) {
      problems_->add(base_->problem(
          "", "accelerate needs the section zero_optimization in a DeepSpeed config: add it"));
      return;
    }
    const auto fill = [&](const char* pointer, Value value) {
      const Pointer place(pointer);
      if (config_.contains(place) && config_[place] == "auto") config_[place] = std::move(value);
    };
    fill("/zero_optimization/stage", 2);
    fill("/zero_optimization/offload_optimizer/device", "none");
    fill("/zero_optimization/offload_param/device", "none");
    fill("/zero_optimization/stage3_gather_16bit_weights_on_model_save", false);
  }

  [[nodiscard]] std::string find_file(const std::string& path) const {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return path;
    const fs::path beside = fs::path(written_->file()).parent_path() / path;
    return fs::is_regular_file(beside, ignored) ? beside.string() : "";
  }

  /// DeepSpeedPlugin.set_mixed_precision().
  void take_precision() {
    const auto said_precision = root_.find("mixed_precision");
    if (!said_precision || said_precision->is_null() || !config_.is_object()) return;
    // YAML takes a bare no for false.
    const std::string word = said_precision->is_string()
                                 ? lower_case(said_precision->value().get<std::string>())
                                 : said_precision->value().dump();
    const bool is_fp16 = word == "fp16";
    const bool is_bf16 = word == "bf16" || word == "fp8";
    if (!is_fp16 && !is_bf16 && word != "no" && word != "false") {
      problems_->add(said_precision->problem(fmt::format(
          "accelerate takes no, fp16, bf16 and fp8, not {}: write one of them", printable(word))));
      return;
    }
    const auto add = [&](const char* section, Value value) {
      const std::string pointer = fmt::format("/{}", section);
      if (config_.contains(section)) return;
      put(pointer, std::move(value), *said_precision);
    };
    if (is_fp16) add("fp16", {{"enabled", true}, {"auto_cast", true}});
    if (is_bf16) add("bf16", {{"enabled", true}});
    const std::array<std::pair<const char*, bool>, 2> types{{{"fp16", is_fp16}, {"bf16", is_bf16}}};
    for (const auto& [section, is_on] : types) {
      add(section, {{"enabled", false}});
      const std::string pointer = fmt::format("/{}/enabled", section);
      if (!config_.contains(Pointer(pointer))) continue;
      const Value enabled = config_[Pointer(pointer)];
      if (enabled == "auto") {
        put(pointer, is_on, *said_precision);
      } else if (enabled == true && !is_on && (is_fp16 || is_bf16)) {
        problems_->add(said_precision->problem(
            fmt::format("accelerate refuses {} where the DeepSpeed config turns {} on: change one "
                        "of the two",
                        word, section)));
      }
    }
  }

  /// Nothing where the numbers are none, or do not divide.
  [[nodiscard]] std::optional<GroupShape> shape() const {
    const auto count = [&](const char* key) -> std::optional<int> {
      const auto node = root_.find(key);
      if (!node) return std::nullopt;
      const Value number = number_in(node->value());
      const bool is_count = number.is_number_integer() && number > 0 && number < 1'048'576;
      return is_count ? std::optional(number.get<int>()) : std::nullopt;
    };
    const auto ranks = count("num_processes");
    const int nodes = count("num_machines").value_or(1);
    if (!ranks || *ranks % nodes != 0) return std::nullopt;
    return GroupShape{*ranks / nodes, nodes};
  }

  const Document* written_;
  json::Node root_;
  std::optional<json::Node> section_;
  json::Problems* problems_;
  std::optional<Document> base_;  ///< the file that is filled in
  Value config_;
  json::Places places_;
  std::vector<Problem> notes_;
};

}  // namespace

bool is_accelerate_file(const Value& root) {
  return root.is_object() && std::ranges::any_of(accelerate_marks, [&](const char* mark) {
           return root.contains(mark);
         });
}

ConfigFile read_accelerate_config(const Document& written) {
  json::Problems problems;
  return AccelerateConfig(written, problems).read();
}

}  // namespace dstune
