/// Keys that DeepSpeed takes and that have no effect in a config.

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "deepspeed/config_rules.hpp"

namespace dstune {

namespace {

constexpr Version with_schema_of_fp16{0, 17, 6};

/// A key, or where `but` names some all other keys of a section, with the reason.
struct IdleRule {
  Pointer pointer;
  bool (*is_idle)(const Settings&, const KeyUse&, Pointer pointer);
  std::string_view reason;
  std::string_view but{};  ///< the keys of the section that are left out, separated by '|'
};

/// The section's `enabled` says no, or nothing does.
bool is_off(const Settings& settings, Pointer section) {
  const std::string enabled = fmt::format("{}/enabled", section);
  const bool is_open = settings.is_there(enabled) && !settings.is_given(enabled);
  return !is_open && !settings.is_on(enabled);
}

bool has_fixed_scale(const Settings& settings, const KeyUse&, Pointer) {
  return settings.is_on("/fp16/enabled") && settings.is_given("/fp16/loss_scale") &&
         settings.number("/fp16/loss_scale") != 0;
}

std::string device_of(const Settings& settings, Pointer pointer) {
  return settings.word(fmt::format("{}/device", parent_of(pointer)));
}

bool is_not_on_disk(const Settings& settings, const KeyUse&, Pointer pointer) {
  return device_of(settings, pointer) != "nvme";
}

bool offloads_nothing(const Settings& settings, const KeyUse&, Pointer section) {
  return settings.word(fmt::format("{}/device", section)) == "none";
}

bool uses_no_disk(const Settings& settings, const KeyUse&, Pointer) {
  return settings.word("/zero_optimization/offload_optimizer/device") != "nvme" &&
         settings.word("/zero_optimization/offload_param/device") != "nvme";
}

constexpr std::string_view of_fixed_scale =
    "it acts with a dynamic loss scale (loss_scale 0) alone";
constexpr std::string_view of_disk = "it acts with \"device\": \"nvme\" alone";
constexpr std::string_view of_no_device = "nothing is offloaded: \"device\" is \"none\"";
constexpr std::string_view of_cpus = "nothing is page-locked where DeepSpeed runs on CPUs";

// Sections come before their keys: what is said of a section is not said again of its keys.
constexpr std::array rules = {
    IdleRule{
        "/fp16/auto_cast",
        [](const Settings& s, const KeyUse&, Pointer key) {
          return s.is_on(key) && precision_of(s) != "fp16" &&
                 s.table().release() >= with_schema_of_fp16;
        },
        "Hugging Face's Trainer gives inputs by name, which are not cast; those given by position "
        "are cast to fp16"},
    IdleRule{"/fp16", [](const Settings& s, const KeyUse&, Pointer key) { return is_off(s, key); },
             "its section is not enabled", "enabled|auto_cast"},
    IdleRule{"/fp16/auto_cast",
             [](const Settings& s, const KeyUse&, Pointer key) {
               return s.is_on(key) && is_off(s, "/fp16") &&
                      s.table().release() < with_schema_of_fp16;
             },
             "its section is not enabled"},
    IdleRule{"/bf16", [](const Settings& s, const KeyUse&, Pointer key) { return is_off(s, key); },
             "its section is not enabled", "enabled"},
    IdleRule{"/fp16/loss_scale_window", has_fixed_scale, of_fixed_scale},
    IdleRule{"/fp16/hysteresis", has_fixed_scale, of_fixed_scale},
    IdleRule{"/fp16/consecutive_hysteresis", has_fixed_scale, of_fixed_scale},
    IdleRule{"/fp16/min_loss_scale", has_fixed_scale, of_fixed_scale},
    IdleRule{"/fp16/initial_scale_power", has_fixed_scale, of_fixed_scale},
    IdleRule{
        "/activation_checkpointing",
        [](const Settings& s, const KeyUse& use, Pointer key) {
          return s.is_given(key) && !use.reads_checkpointing;
        },
        "it acts where the training calls deepspeed.checkpointing.configure, which Hugging Face's "
        "Trainer does not"},
    IdleRule{"/aio",
             [](const Settings& s, const KeyUse& use, Pointer key) {
               return s.is_given(key) && uses_no_disk(s, use, key);
             },
             "it acts where something is offloaded to nvme alone"},
    IdleRule{"/zero_optimization/allgather_bucket_size",
             [](const Settings&, const KeyUse&, Pointer) { return true; },
             "PyTorch 1.13 and later gather parameters into one tensor, without buckets"},
    IdleRule{"/zero_optimization/offload_optimizer", offloads_nothing, of_no_device, "device"},
    IdleRule{"/zero_optimization/offload_param", offloads_nothing, of_no_device, "device"},
    IdleRule{"/zero_optimization/offload_optimizer/nvme_path", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_optimizer/buffer_count", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_optimizer/pipeline_read", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_optimizer/pipeline_write", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_optimizer/fast_init", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_param/nvme_path", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_param/buffer_count", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_param/buffer_size", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_param/max_in_cpu", is_not_on_disk, of_disk},
    IdleRule{"/zero_optimization/offload_optimizer/pin_memory",
             [](const Settings&, const KeyUse& use, Pointer) { return use.is_on_cpu; }, of_cpus},
    IdleRule{"/zero_optimization/offload_param/pin_memory",
             [](const Settings&, const KeyUse& use, Pointer) { return use.is_on_cpu; }, of_cpus},
    IdleRule{"/zero_optimization/mics_hierarchical_params_gather",
             [](const Settings& s, const KeyUse&, Pointer) {
               return s.number("/zero_optimization/mics_shard_size") <= 0;
             },
             "it acts with mics_shard_size alone"},
};

/// "acts at ZeRO stages 1 and 2 alone"
std::string stage_words(unsigned stages) {
  std::vector<int> acting;
  for (int stage = 0; stage < 4; ++stage)
    if ((stages >> stage & 1U) != 0) acting.push_back(stage);
  if (acting.size() == 1) return fmt::format("it acts at ZeRO stage {} alone", acting.front());
  const int last = acting.back();
  acting.pop_back();
  return fmt::format("it acts at ZeRO stages {} and {} alone", fmt::join(acting, ", "), last);
}

class Idle {
 public:
  Idle(const Settings& settings, const KeyUse& use) : settings_(&settings), use_(&use) {}

  std::vector<Violation> find() {
    for (std::size_t row = 0; row < table().knobs().size(); ++row) add_by_stage(row);
    for (const IdleRule& rule : rules)
      if (rule.but.empty())
        add_by_rule(rule, rule.pointer);
      else
        for (const std::size_t row : table().below(rule.pointer)) add_below(rule, row);
    return std::move(found_);
  }

 private:
  [[nodiscard]] const KnobTable& table() const { return settings_->table(); }

  [[nodiscard]] bool is_said(std::string_view pointer) const {
    return std::ranges::any_of(found_, [&](const Violation& one) {
      return pointer == one.pointer || pointer.starts_with(one.pointer + "/");
    });
  }

  /// Given, and not as it is where nothing is given.
  [[nodiscard]] bool says_something(std::size_t row) const {
    if (!settings_->is_given(row)) return false;
    const KnobValue& value = settings_->value(row);
    return std::holds_alternative<std::monostate>(value) || value != table().default_value(row);
  }

  /// Adds the key where it is idle, by values that could all be read.
  template <class IsIdle>
  void add_if(std::size_t row, const IsIdle& is_idle, const std::string& reason) {
    bool is_found = false;
    const bool is_unsure =
        settings_->uses_unread([&] { is_found = says_something(row) && is_idle(); });
    const std::string_view pointer = table().knobs()[row].pointer;
    if (is_found && !is_unsure && !is_said(pointer))
      found_.push_back({std::string(pointer), reason});
  }

  void add_by_stage(std::size_t row) {
    const Knob& knob = table().knobs()[row];
    if (knob.stages == Knob().stages) return;  // at all of them
    // A device that is none asks for nothing.
    const bool is_offload =
        knob.type == KnobType::object && knob.pointer.starts_with("/zero_optimization/offload_");
    const auto is_idle = [&] {
      return !knob.acts_at(settings_->zero_stage()) &&
             !(is_offload && offloads_nothing(*settings_, *use_, knob.pointer));
    };
    add_if(row, is_idle, stage_words(knob.stages));
  }

  void add_by_rule(const IdleRule& rule, std::string_view pointer) {
    if (const auto row = settings_->row_of(pointer))
      add_if(
          *row, [&] { return rule.is_idle(*settings_, *use_, rule.pointer); },
          std::string(rule.reason));
  }

  void add_below(const IdleRule& rule, std::size_t row) {
    const std::string_view pointer = table().knobs()[row].pointer;
    if (!find_choice(rule.but, last_key(pointer), false)) add_by_rule(rule, pointer);
  }

  const Settings* settings_;
  const KeyUse* use_;
  std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> idle_keys(const Settings& settings, const KeyUse& use) {
  return Idle(settings, use).find();
}

}  // namespace dstune
