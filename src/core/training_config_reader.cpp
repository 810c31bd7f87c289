#include <algorithm>

#include <fmt/format.h>

#include "config_rules.hpp"
#include "dstune/core/knobs.hpp"
#include "knob_value.hpp"

namespace dstune {

namespace {

/// The last keys of the rows right below a pointer.
std::vector<std::string_view> known_keys(std::string_view pointer) {
  std::vector<std::string_view> keys;
  for (const Knob& knob : knobs()) {
    const std::size_t slash = knob.pointer.rfind('/');
    if (knob.pointer.substr(0, slash) == pointer) keys.push_back(knob.pointer.substr(slash + 1));
  }
  return keys;
}

/// Goes through what the config holds, row by row.
class Reader {
 public:
  explicit Reader(json::Problems& problems) : problems_(problems) {}

  TrainingConfig config;

  void read_members(const json::Node& section) {
    for (const std::string& key : section.keys()) {
      const json::Node member = *section.find(key);
      const Knob* const knob = find_knob(member.pointer());
      if (knob != nullptr && !is_callers(key)) read(member, *knob);
    }
  }

 private:
  static bool is_callers(std::string_view key) {
    return key == "train_batch_size" || key == "train_micro_batch_size_per_gpu" ||
           key == "gradient_accumulation_steps";
  }

  void read(const json::Node& node, const Knob& knob) {
    if (stands_for_default(node)) return;
    if (knob.pointer == "/zero_optimization" && node.value().is_boolean()) {
      // DeepSpeed's first form of the section: true is stage 1.
      config.zero_stage = node.value().get<bool>() ? 1 : 0;
      return;
    }
    const std::optional<KnobValue> value = read_knob(node, knob, problems_);
    if (!value) return;
    if (knob.effect == KnobEffect::refused) {
      refuse_unless_default(node, knob, *value);
    } else if (knob.type == KnobType::object) {
      if (knob.closed) node.refuse_unknown_keys(problems_, known_keys(knob.pointer));
      read_members(node);
    } else if (knob.type == KnobType::list) {
      read_elements(node, knob);
    } else if (knob.apply != nullptr) {
      knob.apply(config, *value);
    }
  }

  void read_elements(const json::Node& node, const Knob& knob) {
    const std::size_t count = known_keys(knob.pointer).size();
    if (count == 0) return;
    const std::vector<json::Node> elements = node.elements();
    if (elements.size() != count) {
      problems_.add(node.problem(
          fmt::format("expected a list of {} numbers, got {}", count, elements.size())));
      return;
    }
    for (const json::Node& element : elements) read(element, *find_knob(element.pointer()));
  }

  void refuse_unless_default(const json::Node& node, const Knob& knob, const KnobValue& value) {
    const bool is_scalar = !std::holds_alternative<std::monostate>(value);
    if (is_scalar && value == default_of(knob)) return;
    if (!knob.mend.empty()) {
      problems_.add(node.problem(std::string(knob.mend)));
      return;
    }
    const std::string otherwise =
        is_scalar ? fmt::format(" or write {}", knob.fallback) : std::string();
    std::string name(knob.pointer.substr(1));
    std::replace(name.begin(), name.end(), '/', '.');
    problems_.add(
        node.problem(fmt::format("{}{} is not built in dstune-mpi yet: remove the key{}", name,
                                 is_scalar ? " = " + node.value().dump() : "", otherwise)));
  }

  json::Problems& problems_;
};

}  // namespace

TrainingConfig read_training_config(const json::Node& node, json::Problems& problems) {
  if (!node.expect_object(problems)) return {};
  Reader reader(problems);
  reader.read_members(node);
  TrainingConfig config = reader.config;

  const std::optional<json::Node> zero = node.find("zero_optimization");
  const std::optional<json::Node> overlap = zero ? zero->find("overlap_comm") : std::nullopt;
  if (!overlap || stands_for_default(*overlap)) config.overlap_comm = config.zero_stage == 3;
  decide_optimizer(node, config, problems);
  check_rules(node, config, problems);
  return config;
}

}  // namespace dstune
