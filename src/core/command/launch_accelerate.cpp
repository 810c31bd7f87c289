// accelerate launch, by the rules of accelerate/commands/launch.py and of its DeepSpeedPlugin.
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "command/launch_plan.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/accelerate_values.hpp"

namespace dstune {

namespace {

using json::Value;

const Value* at_pointer(const Value& config, const char* pointer) {
  const Value::json_pointer place(pointer);
  return config.contains(place) ? &config.at(place) : nullptr;
}

bool is_on(const Value& config, const char* pointer) {
  const Value* const value = at_pointer(config, pointer);
  return value != nullptr && *value == true;
}
bool is_auto(const Value& config, const char* pointer) {
  const Value* const value = at_pointer(config, pointer);
  return value != nullptr && *value == "auto";
}

/// One command's launcher, its file, and what is to become of them.
class Accelerate {
 public:
  Accelerate(const LauncherChain& chain, const LaunchRequest& request, LaunchPlan& plan)
      : options_(chain.options),
        request_(request),
        plan_(plan),
        file_(accelerate_file(chain.options, request.folder)) {}

  void plan() {
    decide();
    // Whatever it starts takes the configuration.
    if (!plan_.problem.empty() && !plan_.is_of_counts) return;
    if (is_left_out_) leave_file_out();
    if (plan_.problem.empty()) set_counts();
    set_precision();
    if (has_config_ && options_.find("--deepspeed_config_file") == nullptr)
      add({"--deepspeed_config_file", request_.config_path});
    const bool is_said_by_file = !is_left_out_ && file_is_deepspeed_ && !is_multi_gpu_;
    if ((has_config_ || uses_deepspeed_) && !is_said_by_file && !given("--use_deepspeed"))
      add({"--use_deepspeed"});
    if (is_multi_gpu_ && (has_config_ || request_.shape.size() == 1))
      remove_option(options_, "--multi_gpu", plan_.edits);
  }

 private:
  [[nodiscard]] bool given(std::string_view name) const { return options_.find(name) != nullptr; }
  void add(std::vector<std::string> words) {
    plan_.edits.push_back({options_.begin, false, std::move(words)});
  }
  void refuse(bool is_of_counts, std::string problem) {
    // A reason that makes the line fail comes before one that leaves its counts open.
    if (!plan_.problem.empty() && (is_of_counts || !plan_.is_of_counts)) return;
    plan_.problem = std::move(problem);
    plan_.is_of_counts = is_of_counts;
  }
  /// The command decides, else the file.
  [[nodiscard]] std::optional<std::string> said(const std::string& key) const {
    if (const GivenOption* option = options_.find("--" + key)) return option->value;
    return accelerate_value(file_.values, key);
  }

  void decide() {
    const auto type = accelerate_value(file_.values, "distributed_type");
    file_is_deepspeed_ = type == "DEEPSPEED";
    is_multi_gpu_ = given("--multi_gpu");
    const bool is_other = given("--use_fsdp") || given("--use_megatron_lm") || given("--tpu");
    uses_deepspeed_ = given("--use_deepspeed") ||
                      (file_is_deepspeed_ && !is_multi_gpu_ && !is_other && !given("--cpu"));
    const bool file_names_config = uses_deepspeed_ && said("deepspeed_config_file").has_value();
    has_config_ = !request_.is_placed || given("--deepspeed_config_file") || file_names_config;
    if (!file_.problem.empty()) refuse(true, file_.problem);
    if (std::string problem = variable_problem(options_, {"--num_processes", "--num_machines"});
        !problem.empty())
      refuse(true, problem);
    if (has_config_)
      for (const char* const other : {"--use_fsdp", "--use_megatron_lm", "--tpu", "--cpu"})
        if (given(other))
          refuse(false, fmt::format("accelerate takes no DeepSpeed configuration beside {}: leave "
                                    "it out",
                                    other));
    const std::vector<std::string> keys = inline_keys(file_.values);
    is_left_out_ = (uses_deepspeed_ || has_config_) && !keys.empty();
    if (is_left_out_) check_left_out(keys);
    check_nodes();
  }

  /// accelerate reads its default file where there is no --config_file.
  void check_left_out(const std::vector<std::string>& keys) {
    const AccelerateFile other = file_.is_default ? file_ : accelerate_file({}, "");
    const std::vector<std::string> other_keys = inline_keys(other.values);
    if (file_.is_default || !other_keys.empty())
      refuse(false,
             fmt::format("accelerate refuses {} in {} beside a DeepSpeed configuration: remove it "
                         "there, or name a file without it by --config_file",
                         file_.is_default ? keys.front() : other_keys.front(), other.path));
    if (const auto place = accelerate_value(file_.values, "compute_environment");
        place && *place != "LOCAL_MACHINE")
      refuse(false, fmt::format("{} is not of LOCAL_MACHINE: write another file", file_.path));
    for (const char* const section :
         {"fsdp_config", "fp8_config", "megatron_lm_config", "mpirun_config", "parallelism_config"})
      if (const auto found = file_.values.find(section);
          found != file_.values.end() && found->is_structured() && !found->empty())
        refuse(false, fmt::format("accelerate refuses {} in {} beside a DeepSpeed configuration: "
                                  "remove it there, so that its {} is kept",
                                  keys.front(), file_.path, section));
  }

  void check_nodes() {
    const GroupShape& shape = request_.shape;
    if (const auto ids = said("gpu_ids"); ids && *ids != "all" && !is_variable(*ids)) {
      const auto count = static_cast<int>(split(*ids, ',').size());
      if (count < shape.num_gpus)
        refuse(true,
               fmt::format("gpu_ids {} are fewer than {} devices: add them", *ids, shape.num_gpus));
    }
    if (shape.num_nodes == 1) return;
    if (!said("main_process_ip") && !said("deepspeed_hostfile"))
      refuse(true, fmt::format("accelerate does not say where {} nodes find each other: write "
                               "--main_process_ip and --main_process_port",
                               shape.num_nodes));
    for (const char* const filter : {"deepspeed_inclusion_filter", "deepspeed_exclusion_filter"})
      if (said(filter)) refuse(true, fmt::format("{} chooses the devices: leave it out", filter));
  }

  void set_counts() {
    const GroupShape& shape = request_.shape;
    const auto set = [&](const std::string& key, int count, std::optional<std::string> otherwise) {
      const std::string text = std::to_string(count);
      if (given("--" + key))
        set_option(options_, "--" + key, text, plan_.edits);
      else if (otherwise != text)
        add({"--" + key, text});
    };
    const Value none = Value::object();
    const Value& values = is_left_out_ ? none : file_.values;
    set("num_processes", shape.size(), accelerate_value(values, "num_processes"));
    set("num_machines", shape.num_nodes, accelerate_value(values, "num_machines").value_or("1"));
  }

  /// Another precision than the configuration's is an error, and one in the file beside a
  /// configuration, too.
  void set_precision() {
    if (request_.config == nullptr || !(has_config_ || uses_deepspeed_)) return;
    const auto before = said("mixed_precision");
    if (!before || *before == "fp8") {
      if (before && !given("--mixed_precision")) add({"--mixed_precision", *before});
      return;
    }
    const Value& config = *request_.config;
    std::string precision = "no";
    if (is_on(config, "/fp16/enabled"))
      precision = "fp16";
    else if (is_on(config, "/bf16/enabled"))
      precision = "bf16";
    else if (is_auto(config, "/fp16/enabled") || is_auto(config, "/bf16/enabled"))
      precision = *before;
    if (given("--mixed_precision"))
      set_option(options_, "--mixed_precision", precision, plan_.edits);
    else
      add({"--mixed_precision", precision});
  }

  /// Its values go to the command, except for the values that the configuration has.
  void leave_file_out() {
    remove_option(options_, "--config_file", plan_.edits);
    const auto move = [&](const std::string& key) {
      const auto value = accelerate_value(file_.values, key);
      if (value && !given("--" + key)) add({"--" + key, *value});
    };
    for (const char* const key :
         {"machine_rank", "main_process_ip", "main_process_port", "gpu_ids", "zero3_init_flag",
          "deepspeed_hostfile", "deepspeed_multinode_launcher", "deepspeed_inclusion_filter",
          "deepspeed_exclusion_filter", "deepspeed_moe_layer_cls_names"})
      move(key);
    if (accelerate_value(file_.values, "rdzv_backend").value_or("static") != "static")
      move("rdzv_backend");
    for (const char* const flag : {"same_network", "enable_cpu_affinity", "debug"})
      if (accelerate_value(file_.values, flag) == "true" && !given(std::string("--") + flag))
        add({std::string("--") + flag});
    move_dynamo();
    if (request_.config == nullptr) return;
    // The configuration leaves these to accelerate.
    if (is_auto(*request_.config, "/gradient_accumulation_steps"))
      move("gradient_accumulation_steps");
    if (is_auto(*request_.config, "/gradient_clipping")) move("gradient_clipping");
    if (is_auto(*request_.config, "/zero_optimization/stage3_gather_16bit_weights_on_model_save"))
      move("zero3_save_16bit_model");
  }

  void move_dynamo() {
    const auto section = file_.values.find("dynamo_config");
    if (section == file_.values.end() || !section->is_object()) return;
    for (const auto& item : section->items()) {
      std::string flag = item.key().starts_with("dynamo_") ? item.key() : "dynamo_" + item.key();
      flag = "--" + flag;
      if (given(flag)) continue;
      if (item.value() == true)
        add({flag});
      else if (item.value().is_string())
        add({flag, lower_case(item.value().get<std::string>())});
    }
  }

  const GivenOptions& options_;
  const LaunchRequest& request_;
  LaunchPlan& plan_;
  AccelerateFile file_;
  bool file_is_deepspeed_ = false;
  bool is_multi_gpu_ = false;
  bool uses_deepspeed_ = false;  ///< the user's command does
  bool has_config_ = false;      ///< accelerate itself is given the configuration
  bool is_left_out_ = false;     ///< its file is
};

}  // namespace

void plan_accelerate(const LauncherChain& chain, const LaunchRequest& request, LaunchPlan& plan) {
  Accelerate(chain, request, plan).plan();
}

LaunchCounts accelerate_counts(const LauncherChain& chain, const std::string& folder) {
  const AccelerateFile file = accelerate_file(chain.options, folder);
  const auto count = [&](const std::string& key) {
    if (const GivenOption* option = chain.options.find("--" + key)) return count_of(option->value);
    const auto value = accelerate_value(file.values, key);
    return value ? count_of(*value) : std::nullopt;
  };
  LaunchCounts counts{"accelerate launch", count("num_machines"), {}, count("num_processes")};
  const bool is_said = chain.options.find("--num_machines") != nullptr;
  if (!counts.num_nodes && !is_said && file.problem.empty()) counts.num_nodes = 1;
  if (counts.num_nodes && counts.num_ranks && *counts.num_ranks % *counts.num_nodes == 0)
    counts.num_gpus = *counts.num_ranks / *counts.num_nodes;
  return counts;
}

}  // namespace dstune
