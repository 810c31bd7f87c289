/// Rules of all other sections.

#include <array>
#include <string>

#include "deepspeed/config_rules.hpp"

namespace dstune {
namespace {

bool is_one(const Settings& settings, std::string_view pointer) {
  return settings.is_given(pointer) && settings.number(pointer) == 1;
}

constexpr std::array rules = {
    ConfigRule{"/activation_checkpointing/contiguous_memory_optimization",
               [](const Settings& s) {
                 return s.is_on("/activation_checkpointing/contiguous_memory_optimization") &&
                        (!s.is_on("/activation_checkpointing/partition_activations") ||
                         !s.is_there("/activation_checkpointing/number_checkpoints"));
               },
               "needs partition_activations and number_checkpoints: add them or write false"},
    ConfigRule{"/steps_per_print",
               [](const Settings& s) {
                 return s.is_given("/steps_per_print") && s.number("/steps_per_print") == 0;
               },
               "DeepSpeed divides by it: remove the key to print nothing"},
    ConfigRule{"/gradient_predivide_factor",
               [](const Settings& s) { return s.number("/gradient_predivide_factor") == 0; },
               "DeepSpeed divides by it: write 1.0"},
    ConfigRule{"/allgather_size",
               [](const Settings& s) {
                 return std::get<std::int64_t>(s.value("/allgather_size")) % 2 != 0;
               },
               "must be even: DeepSpeed refuses odd sizes"},
    ConfigRule{"/scheduler/type",
               [](const Settings& s) {
                 const auto* const type = std::get_if<std::string>(&s.value("/scheduler/type"));
                 return type != nullptr && !is_deepspeed_scheduler(*type) &&
                        (s.zero_stage() > 0 || precision_of(s) != "fp32");
               },
               "DeepSpeed drives PyTorch's schedulers at stage 0 in fp32 alone: take one of "
               "LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR"},
    ConfigRule{
        "/optimizer/type",
        [](const Settings& s) {
          return s.zero_stage() > 0 && s.word("/optimizer/type") == "sgd" &&
                 !s.is_on("/zero_allow_untested_optimizer");
        },
        "DeepSpeed has not tested it with ZeRO: add \"zero_allow_untested_optimizer\": true, "
        "or take stage 0"},
    ConfigRule{"/optimizer/params/nesterov",
               [](const Settings& s) {
                 return s.is_on("/optimizer/params/nesterov") &&
                        (s.number("/optimizer/params/momentum") <= 0 ||
                         s.number("/optimizer/params/dampening") != 0);
               },
               "needs momentum above 0 and no dampening"},
    ConfigRule{"/optimizer/params/betas/0",
               [](const Settings& s) { return is_one(s, "/optimizer/params/betas/0"); },
               "must be below 1: the mean would never move"},
    ConfigRule{"/optimizer/params/betas/1",
               [](const Settings& s) { return is_one(s, "/optimizer/params/betas/1"); },
               "must be below 1: the mean would never move"},
};

}  // namespace

std::span<const ConfigRule> section_rules() {
  return rules;
}

}  // namespace dstune
