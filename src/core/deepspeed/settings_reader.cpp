#include <unordered_map>

#include <fmt/format.h>

#include "deepspeed/arguments.hpp"
#include "dstune/core/knob_value.hpp"
#include "dstune/core/settings.hpp"

namespace dstune {

namespace {

/// The rows right below each pointer, by index, and the row of each pointer.
struct Tree {
  std::unordered_map<std::string_view, std::vector<std::size_t>> below;
  std::unordered_map<std::string_view, std::size_t> rows;
};

const Tree& tree() {
  static const Tree all = [] {
    Tree made;
    for (std::size_t row = 0; row < knobs().size(); ++row) {
      const std::string_view pointer = knobs()[row].pointer;
      made.below[pointer.substr(0, pointer.rfind('/'))].push_back(row);
      made.rows.emplace(pointer, row);
    }
    return made;
  }();
  return all;
}

const std::vector<std::size_t>& rows_below(std::string_view pointer) {
  static const std::vector<std::size_t> none;
  const auto found = tree().below.find(pointer);
  return found == tree().below.end() ? none : found->second;
}

std::string_view last_key(const Knob& knob) {
  return knob.pointer.substr(knob.pointer.rfind('/') + 1);
}

/// Read by whoever knows the group: they depend on each other and on its size.
bool is_callers(const Knob& knob) {
  return knob.pointer == "/train_batch_size" || knob.pointer == "/train_micro_batch_size_per_gpu" ||
         knob.pointer == "/gradient_accumulation_steps";
}

class Reader {
 public:
  explicit Reader(json::Problems& problems) : problems_(&problems) {}

  std::vector<Setting> settings;

  /// `node` is null where the config does not have the key.
  void read(const json::Node* node, std::size_t row) {
    const Knob& knob = knobs()[row];
    Setting setting{row, default_value(knob), Presence::absent};
    if (node != nullptr && knob.pointer == "/zero_optimization" && node->value().is_boolean()) {
      read_legacy_zero(node->value().get<bool>(), row);
      return;
    }
    std::optional<KnobValue> value;
    if (node != nullptr && !stands_for_default(*node, knob))
      value = read_knob(*node, knob, *problems_);
    if (value) {
      setting.value = *value;
      setting.presence = Presence::given;
    } else if (node != nullptr) {
      setting.presence = node->is_null() ? Presence::null : Presence::automatic;
    }
    settings.push_back(std::move(setting));
    if (knob.pointer == "/scheduler/type" && value)
      takes_known_arguments_ = is_deepspeed_scheduler(std::get<std::string>(*value));
    const json::Node* const inside = value ? node : nullptr;
    if (knob.type == KnobType::object) read_members(inside, knob);
    if (knob.type == KnobType::list) read_elements(inside, knob);
  }

  void read_root(const json::Node& root) {
    for (const std::size_t row : rows_below("")) {
      if (is_callers(knobs()[row])) continue;
      const auto member = root.find(std::string(last_key(knobs()[row])));
      read(member ? &*member : nullptr, row);
    }
  }

 private:
  void read_members(const json::Node* section, const Knob& knob) {
    std::vector<std::string_view> known;
    for (const std::size_t row : rows_below(knob.pointer)) {
      known.push_back(last_key(knobs()[row]));
      const auto member = section ? section->find(std::string(known.back())) : std::nullopt;
      read(member ? &*member : nullptr, row);
    }
    const bool closed =
        knob.closed || (knob.pointer == "/scheduler/params" && takes_known_arguments_);
    if (section == nullptr) return;
    if (closed) section->refuse_unknown_keys(*problems_, known);
    if (!knob.of_sections) return;
    for (const std::string& key : section->keys()) section->find(key)->expect_object(*problems_);
  }

  /// Lists of fixed length have a row for each element.
  void read_elements(const json::Node* list, const Knob& knob) {
    const auto& rows = rows_below(knob.pointer);
    if (rows.empty()) return;
    const auto elements = list ? list->elements() : std::vector<json::Node>();
    const bool fits = elements.size() == rows.size();
    if (list != nullptr && !fits)
      problems_->add(list->problem(
          fmt::format("expected a list of {} numbers, got {}", rows.size(), elements.size())));
    for (std::size_t index = 0; index < rows.size(); ++index)
      read(fits ? &elements[index] : nullptr, rows[index]);
  }

  /// DeepSpeed's first form of the section: true is stage 1.
  void read_legacy_zero(bool is_on, std::size_t row) {
    settings.push_back({row, {}, Presence::given});
    for (const std::size_t below : rows_below("/zero_optimization")) {
      read(nullptr, below);
      if (knobs()[below].pointer == "/zero_optimization/stage")
        settings.back() = {below, std::int64_t{is_on ? 1 : 0}, Presence::given};
    }
  }

  json::Problems* problems_;
  bool takes_known_arguments_ = false;  ///< one of DeepSpeed's schedulers, as read so far
};

}  // namespace

std::vector<Setting> read_settings(const json::Node& node, json::Problems& problems) {
  Reader reader(problems);
  if (node.pointer().empty()) {
    if (node.expect_object(problems)) reader.read_root(node);
  } else if (const auto found = tree().rows.find(node.pointer()); found != tree().rows.end()) {
    reader.read(&node, found->second);
  }
  return std::move(reader.settings);
}

}  // namespace dstune
