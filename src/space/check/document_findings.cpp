#include "document_findings.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "sections/sections.hpp"

namespace dstune {

namespace {

constexpr const char* zero_stage_pointer = "/zero_optimization/stage";

/// Names that many sections have: they tell no place.
constexpr std::array<std::string_view, 8> common_names = {"enabled", "type",    "params", "device",
                                                          "dtype",   "verbose", "debug",  "seed"};

std::string place_words(std::string_view section) {
  return section.empty() ? "at the top level" : "in " + dotted(section);
}

/// Walks over a config: keys without a row, and the sections that have them.
class KeyWalk {
 public:
  KeyWalk(const JobSpec& job, ConfigFindings& findings)
      : job_(&job), table_(&job.knobs()), findings_(&findings) {}

  void run() {
    const json::Node root(*job_->document, job_->ds_config, "");
    for (const std::string& key : root.keys()) {
      const json::Node member = *root.find(key);
      const Knob* const knob = table_->find_knob(member.pointer());
      if (knob != nullptr && table_->is_idle_name(root, *knob))
        add(FindingKind::no_effect, member,
            fmt::format("has no effect: DeepSpeed reads {}, which is there, too",
                        last_key(knob->alias_of)));
      else if (knob != nullptr)
        walk(member);
      else if (!table_->was_removed(member.pointer()))
        add_top_level(member);
    }
  }

 private:
  void walk(const json::Node& node) {
    if (node.is_array())
      for (const json::Node& element : node.elements())
        walk({node.document(), element.value(), node.pointer()});
    if (!node.is_object() || !is_looked_into(node.pointer())) return;
    for (const std::string& key : node.keys()) {
      const json::Node member = *node.find(key);
      if (table_->find_knob(member.pointer()) != nullptr)
        walk(member);
      else
        add_nested(member);
    }
  }

  /// A section whose keys are known, and which DeepSpeed does not close: those that it closes are
  /// read where they are refused.
  [[nodiscard]] bool is_looked_into(const std::string& pointer) const {
    if (pointer == "/optimizer/params" || pointer == "/scheduler/params") return false;
    const Knob* const knob = table_->find_knob(pointer);
    if (knob != nullptr && knob->is_partial) return false;
    const auto& below = table_->below(pointer);
    return !below.empty() && last_key(table_->keys()[below.front()].pointer) != "*";
  }

  [[nodiscard]] bool is_closed(const std::string& section) const {
    const Knob* const knob = table_->find_knob(section);
    return knob != nullptr && knob->closed;
  }

  void add(FindingKind kind, const json::Node& node, const std::string& message) {
    findings_->add(kind, node.problem(message));
  }

  [[nodiscard]] std::string release() const { return to_text(table_->release()); }

  void add_top_level(const json::Node& node) {
    const std::string& pointer = node.pointer();
    if (const Knob* const other = every_knob().find_knob(pointer)) {
      add(FindingKind::unknown, node,
          fmt::format("is no key that DeepSpeed {} knows (known from {} on): it "
                      "ignores the key",
                      release(), to_text(other->since)));
    } else if (const std::string home = home_of(*table_, pointer); !home.empty()) {
      add(FindingKind::misplaced, node, fmt::format("belongs {}: it has no effect here", home));
    } else if (const auto meant = nearest_top_level(pointer)) {
      const bool is_allowed = job_->allows_unknown;
      add(is_allowed ? FindingKind::unknown : FindingKind::mistyped, node,
          fmt::format("is no key that DeepSpeed {} knows: did you mean \"{}\"?{}", release(),
                      *meant,
                      is_allowed ? " It ignores this one"
                                 : " Correct it, or write \"allow_unknown\": true in the section "
                                   "dstune"));
    } else if (const std::string_view hint = hint_for(last_key(pointer)); !hint.empty()) {
      add(FindingKind::unknown, node,
          fmt::format("is no key that DeepSpeed {} knows: {}", release(), hint));
    } else {
      const auto inside = nearest_inside(pointer, "/zero_optimization");
      add(FindingKind::unknown, node,
          fmt::format(
              "is no key that DeepSpeed {} knows{}: it ignores the key", release(),
              inside ? fmt::format(" (did you mean {} in zero_optimization?)", *inside) : ""));
    }
  }

  void add_nested(const json::Node& node) {
    const std::string& pointer = node.pointer();
    const std::string section(parent_of(pointer));
    // DeepSpeed refuses them, and the reader says so.
    if (is_closed(section)) return;
    if (const std::string words = table_->words_of_other_release(pointer); !words.empty()) {
      add(FindingKind::unknown, node,
          fmt::format("is {}; DeepSpeed {} drops it without a word", words, release()));
    } else if (const auto meant = nearest_inside(pointer, section)) {
      add(FindingKind::unknown, node,
          fmt::format("is no key of {} that DeepSpeed {} knows: did you mean \"{}\"? It drops this "
                      "one without a word",
                      dotted(section), release(), *meant));
    } else if (const std::string home = home_of(*table_, pointer); !home.empty()) {
      add(FindingKind::misplaced, node, fmt::format("belongs {}: it has no effect here", home));
    } else {
      add(FindingKind::unknown, node,
          fmt::format("is no key of {} that DeepSpeed {} knows: it drops it without a word",
                      dotted(section), release()));
    }
  }

  /// A key of that name that is refused with something else to write.
  [[nodiscard]] std::string_view hint_for(std::string_view name) const {
    const auto& keys = table_->keys();
    const auto found = std::ranges::find_if(
        keys, [&](const Key& key) { return last_key(key.pointer) == name && !key.hint.empty(); });
    return found == keys.end() ? std::string_view() : found->hint;
  }

  [[nodiscard]] std::optional<std::string> nearest_inside(std::string_view pointer,
                                                          std::string_view section) const {
    std::vector<std::string_view> known;
    for (const std::size_t row : table_->below(section))
      known.push_back(last_key(table_->keys()[row].pointer));
    return json::nearest(last_key(pointer), known);
  }

  [[nodiscard]] std::optional<std::string> nearest_top_level(std::string_view pointer) const {
    std::vector<std::string_view> known(our_sections.begin(), our_sections.end());
    for (const std::size_t row : table_->below(""))
      known.push_back(last_key(table_->keys()[row].pointer));
    return json::nearest(last_key(pointer), known);
  }

  const JobSpec* job_;
  const KnobTable* table_;
  ConfigFindings* findings_;
};

bool is_default(const json::Value& value, const Knob& knob) {
  return value.is_null() || value == "auto" || value == json::Value::parse(knob.fallback);
}

/// Keys that act in DeepSpeed and not in the step here.
void add_unfollowed(const KnobTable& table, const json::Node& node, ConfigFindings& findings) {
  if (node.is_object()) {
    for (const auto& key : node.keys()) add_unfollowed(table, *node.find(key), findings);
    return;
  }
  const Knob* const knob = table.find_knob(node.pointer());
  if (knob == nullptr || knob->effect != KnobEffect::not_built) return;
  const bool is_single = node.is_array() && node.value().size() == 1;
  const json::Value& value = is_single ? node.value().front() : node.value();
  if (!is_default(value, *knob))
    findings.add(FindingKind::not_followed,
                 node.problem("acts in DeepSpeed, and not in the built-in step"));
}

bool has_effect_below(const KnobTable& table, const json::Node& node) {
  for (const auto& key : node.keys()) {
    const json::Node member = *node.find(key);
    const Knob* const knob = table.find_knob(member.pointer());
    if (knob != nullptr && knob->effect != KnobEffect::inert) return true;
    if (has_effect_below(table, member)) return true;
  }
  return false;
}

/// Keys that change nothing that is measured.
void add_inert(const KnobTable& table, const json::Node& node, std::vector<std::string>& names) {
  const Knob* const knob = table.find_knob(node.pointer());
  const bool is_inert = knob != nullptr && knob->effect == KnobEffect::inert;
  if (is_inert && (knob->type != KnobType::object || !has_effect_below(table, node)))
    names.push_back(dotted(node.pointer()));
  else if (node.is_object())
    for (const auto& key : node.keys()) add_inert(table, *node.find(key), names);
}

void add_idle_keys(const JobSpec& job, const std::vector<Product>& products,
                   ConfigFindings& findings) {
  for (const Product& product : products) {
    const Trials trials(job, product);
    const auto idle = trials.common(
        [&](const Settings& settings) { return idle_keys(settings, job.key_use); }, nullptr, 0);
    for (const Violation& one : idle)
      findings.add(FindingKind::no_effect,
                   problem_at(job, one.pointer, "has no effect: " + one.message));
  }
}

/// Keys of DeepSpeed's autotuner that nothing here reads, and why.
struct IdleTuningKey {
  const char* key;
  std::string_view reason;
};
constexpr std::string_view of_model = "the job's model tells its content";
constexpr const char* ranks_of_model = "mp_size";
constexpr IdleTuningKey idle_tuning_keys[] = {
    {"model_info", of_model},
    {"model_info_path", of_model},
    {"metric_path", "metrics are written to results_dir"},
    {ranks_of_model, "every rank computes the whole model here"}};

void add_idle_tuning(const json::Node& root, ConfigFindings& findings) {
  const auto tuning = given(root, "autotuning");
  if (!tuning || !tuning->is_object()) return;
  for (const auto& [key, reason] : idle_tuning_keys)
    if (const auto node = given(*tuning, key);
        node && !(key == ranks_of_model && node->value() != 1))  // others are not built
      findings.add(FindingKind::no_effect, node->problem(fmt::format("has no effect: {}", reason)));
}

}  // namespace

Trials::Trials(const JobSpec& job, const Product& product)
    : job_(&job), base_(job.knobs()), last_(job.knobs()) {
  for (const auto& dimension : product.dimensions)
    if (dimension.pointer == zero_stage_pointer) stages_ = &dimension;
  base_.apply(product.settings);
  last_ = base_;
  for (const auto& dimension : product.dimensions) {
    if (dimension.kind != Dimension::Kind::knob) continue;
    base_.apply(dimension.settings.front());
    last_.apply(dimension.settings.back());
  }
}

std::vector<Violation> Trials::common(const Judge& judge, const Dimension* dimension,
                                      std::size_t index) const {
  std::optional<std::vector<Violation>> common;
  for (const Settings* rest : {&base_, &last_}) {
    Settings settings = *rest;
    if (dimension != nullptr) settings.apply(dimension->settings[index]);
    const bool vary_stage = stages_ != nullptr && dimension != stages_;
    for (std::size_t stage = 0; stage < (vary_stage ? stages_->candidates.size() : 1); ++stage) {
      if (vary_stage) settings.apply(stages_->settings[stage]);
      const std::vector<Violation> found = judge(settings);
      if (common)
        std::erase_if(*common, [&](const Violation& violation) {
          return std::ranges::find(found, violation) == found.end();
        });
      else
        common = found;
      if (common->empty()) return {};
    }
  }
  return *common;
}

std::vector<Violation> Trials::common(const Dimension* dimension, std::size_t index) const {
  return common([&](const Settings& settings) { return violations_for(*job_, settings); },
                dimension, index);
}

Problem problem_at(const JobSpec& job, const std::string& pointer, std::string message) {
  return {job.document->file(), pointer, job.document->line(pointer), std::move(message)};
}

std::string home_of(const KnobTable& table, const std::string& pointer) {
  const std::string_view name = last_key(pointer);
  if (std::ranges::find(common_names, name) != common_names.end()) return "";
  std::set<std::string> homes;
  for (const Key& key : table.keys())
    if (last_key(key.pointer) == name && parent_of(key.pointer) != parent_of(pointer) &&
        key.hint.empty())
      homes.insert(place_words(parent_of(key.pointer)));
  for (const Key& key : key_rows("autotuning"))
    if (last_key(key.pointer) == name) homes.insert(place_words(parent_of(key.pointer)));
  return homes.size() == 1 ? *homes.begin() : "";
}

void add_key_findings(const JobSpec& job, const std::vector<Product>& products,
                      ConfigFindings& findings) {
  KeyWalk(job, findings).run();
  add_idle_tuning(job.document->node(), findings);
  // Somebody else's code may act on every key.
  if (job.takes_any_key()) return;
  add_idle_keys(job, products, findings);
  add_unfollowed(job.knobs(), json::Node(*job.document, job.ds_config, ""), findings);
}

std::vector<std::string> inert_keys(const JobSpec& job) {
  std::vector<std::string> names;
  const json::Node root(*job.document, job.ds_config, "");
  for (const auto& key : root.keys()) add_inert(job.knobs(), *root.find(key), names);
  return names;
}

void add_changed_defaults(const JobSpec& job, int zero_stage, ConfigFindings& findings) {
  json::Value config = job.ds_config;
  for (const std::string& pointer : write_out_defaults(job.deepspeed_version, zero_stage, config)) {
    const Knob& knob = *every_knob().find_knob(pointer);
    const FormerRow& last =
        *std::ranges::find_if(knob.former.rbegin(), knob.former.rend(),
                              [](const FormerRow& former) { return !former.fallback.empty(); });
    findings.add(FindingKind::changed_default,
                 problem_at(job, pointer,
                            fmt::format("is not written: it is {} with DeepSpeed {}, and was {} "
                                        "with {}; write it to get the same in every release",
                                        knob.fallback, to_text(last.before), last.fallback,
                                        to_text(known_release_before(last.before)))));
  }
}

}  // namespace dstune
