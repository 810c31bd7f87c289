#include "arguments.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace dstune {

namespace {

struct Scheduler {
  std::string_view type;
  std::vector<std::string_view> needed, optional;
};

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> all = {
      {"LRRangeTest",
       {},
       {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate",
        "lr_range_test_staircase"}},
      {"OneCycle",
       {"cycle_min_lr", "cycle_max_lr"},
       {"decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
        "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum",
        "cycle_min_mom", "cycle_max_mom", "decay_mom_rate"}},
      {"WarmupLR", {}, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
      {"WarmupDecayLR",
       {"total_num_steps"},
       {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
      {"WarmupCosineLR",
       {"total_num_steps"},
       {"warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"}},
  };
  return all;
}

const Scheduler* find_scheduler(std::string_view type) {
  const auto found = std::find_if(schedulers().begin(), schedulers().end(),
                                  [type](const auto& each) { return each.type == type; });
  return found == schedulers().end() ? nullptr : &*found;
}

bool holds(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

void check_scheduler(const Settings& settings, std::vector<Objection>& objections) {
  const std::string params = "/scheduler/params";
  const auto* const type = std::get_if<std::string>(&settings.value("/scheduler/type"));
  if (type == nullptr) return;
  if (!settings.is_given(params)) {
    objections.push_back({"/scheduler/type", *type + " needs the section /scheduler/params: add "
                                                     "it, with {} where nothing is set"});
    return;
  }
  const Scheduler* const scheduler = find_scheduler(*type);
  if (scheduler == nullptr) return;
  for (const std::string_view key : scheduler->needed)
    // "auto" is filled in by the user's training.
    if (!settings.is_there(fmt::format("{}/{}", params, key)))
      objections.push_back(
          {"/scheduler/type", fmt::format("{} needs {} in {}: add it", *type, key, params)});
  for (const Knob& knob : knobs()) {
    if (!knob.pointer.starts_with(params + "/") || !settings.is_written(knob.pointer)) continue;
    const std::string_view key = knob.pointer.substr(params.size() + 1);
    if (!holds(scheduler->needed, key) && !holds(scheduler->optional, key))
      objections.push_back(
          {std::string(knob.pointer), fmt::format("{} does not take it: remove it", *type)});
  }
}

/// DeepSpeed's fused Adam and PyTorch's (torch_adam) do not take the same arguments.
void check_optimizer(const Settings& settings, std::vector<Objection>& objections) {
  constexpr std::array fused_alone = {"/optimizer/params/bias_correction",
                                      "/optimizer/params/set_grad_none"};
  constexpr std::array torch_alone = {
      "/optimizer/params/foreach", "/optimizer/params/fused", "/optimizer/params/capturable",
      "/optimizer/params/differentiable", "/optimizer/params/maximize"};
  const auto object_to = [&](const auto& pointers, const char* mend) {
    for (const char* const pointer : pointers)
      if (settings.is_written(pointer)) objections.push_back({pointer, mend});
  };
  if (settings.is_on("/optimizer/params/torch_adam"))
    object_to(fused_alone, "PyTorch's optimizer does not take it: remove it or torch_adam");
  else
    object_to(torch_alone,
              "PyTorch's optimizer alone takes it: remove it or write torch_adam true");
}

}  // namespace

bool is_deepspeed_scheduler(std::string_view type) {
  return find_scheduler(type) != nullptr;
}

void add_argument_objections(const Settings& settings, std::vector<Objection>& objections) {
  check_scheduler(settings, objections);
  check_optimizer(settings, objections);
}

}  // namespace dstune
