#include "searched_keys.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "parts.hpp"

namespace dstune {

namespace {

constexpr std::string_view global_batch_pointer = "/train_batch_size";

/// The values of one key, and each member's.
class ValueColumn {
 public:
  explicit ValueColumn(std::size_t num_members) : value_of_(num_members, SearchedKey::absent) {}

  void set(std::size_t member, const json::Value& value) {
    // Most members have the value of the one before.
    if (last_ >= values_.size() || values_[last_] != value) last_ = place_of(value);
    value_of_[member] = static_cast<std::int32_t>(last_);
  }
  [[nodiscard]] bool is_common() const {
    return values_.size() == 1 &&
           std::ranges::find(value_of_, SearchedKey::absent) == value_of_.end();
  }
  [[nodiscard]] const json::Value& first() const { return values_.front(); }
  void move_to(SearchedKey& key) {
    key.values = std::move(values_);
    key.value_of = std::move(value_of_);
  }

 private:
  static constexpr std::size_t max_compared = 8;

  std::size_t place_of(const json::Value& value) {
    if (places_.empty()) {
      const auto found = std::ranges::find(values_, value);
      if (found != values_.end()) return static_cast<std::size_t>(found - values_.begin());
      if (values_.size() < max_compared) {
        values_.push_back(value);
        return values_.size() - 1;
      }
      for (std::size_t place = 0; place < values_.size(); ++place)
        places_.emplace(json_text(values_[place]), place);
    }
    const auto [found, is_new] = places_.try_emplace(json_text(value), values_.size());
    if (is_new) values_.push_back(value);
    return found->second;
  }

  std::vector<json::Value> values_;
  std::vector<std::int32_t> value_of_;
  std::size_t last_ = 0;
  std::unordered_map<std::string, std::size_t> places_;  ///< once there are many values
};

/// An object of the configs, or a value in them. Configs of a space have the same keys in the same
/// order, as a rule, so that a key is found where the config before had it.
class ConfigNode {
 public:
  void add(std::size_t member, std::size_t num_members, const json::Value& value) {
    if (!value.is_object() || value.empty()) {
      if (!column_) column_ = std::make_unique<ValueColumn>(num_members);
      column_->set(member, value);
      return;
    }
    std::size_t expected = 0;
    for (const auto& [key, inside] : value.get_ref<const json::Value::object_t&>()) {
      const std::size_t place = place_of(key, expected);
      inside_[place].second.add(member, num_members, inside);
      expected = place + 1;
    }
  }

  /// The values that all members share; nothing where they share none.
  [[nodiscard]] std::optional<json::Value> common() const {
    if (column_ && column_->is_common()) return column_->first();
    json::Value shared = json::Value::object();
    for (const auto& [key, node] : inside_)
      if (auto value = node.common()) shared[key] = std::move(*value);
    return shared.empty() ? std::nullopt : std::optional(std::move(shared));
  }

  /// Moves out what differs.
  void take(const std::string& pointer, const std::string& label, std::vector<SearchedKey>& keys) {
    if (column_ && !column_->is_common()) {
      SearchedKey& key = keys.emplace_back();
      key.pointer = pointer;
      key.label = label;
      column_->move_to(key);
    }
    for (auto& [key, node] : inside_)
      node.take(json::append_pointer(pointer, key), label.empty() ? key : label + "." + key, keys);
  }

 private:
  std::size_t place_of(const std::string& key, std::size_t expected) {
    if (expected < inside_.size() && inside_[expected].first == key) return expected;
    for (std::size_t place = 0; place < inside_.size(); ++place)
      if (inside_[place].first == key) return place;
    inside_.emplace_back(key, ConfigNode());
    return inside_.size() - 1;
  }

  std::vector<std::pair<std::string, ConfigNode>> inside_;
  std::unique_ptr<ValueColumn> column_;  ///< of members that have a value here
};

/// Its place among what is searched; behind all for what is not.
std::size_t place_in(const std::vector<std::string>& searched, const std::string& pointer) {
  const auto found = std::ranges::find_if(searched, [&](const std::string& one) {
    return pointer.starts_with(one) && (pointer.size() == one.size() || pointer[one.size()] == '/');
  });
  return static_cast<std::size_t>(found - searched.begin());
}

std::vector<SearchedKey> keys_of_config(const Answer& answer, ConfigNode& configs) {
  std::vector<SearchedKey> keys;
  configs.take("", "", keys);
  const std::vector<std::string>& searched = answer.searched;
  for (SearchedKey& key : keys)
    key.is_derived = searched.empty() ? key.pointer == global_batch_pointer
                                      : place_in(searched, key.pointer) == searched.size();
  std::ranges::stable_sort(keys, {},
                           [&](const SearchedKey& key) { return place_in(searched, key.pointer); });
  return keys;
}

/// Something beside the DeepSpeed config in which members may differ.
struct Dimension {
  const char* name;
  json::Value (*value_of)(const Experiment&);
  ValueColumn column;
};

std::vector<Dimension> all_dimensions(std::size_t num_members) {
  const ValueColumn column(num_members);
  return {
      {"num_gpus", [](const Experiment& one) { return json::Value(one.shape.size()); }, column},
      {"num_nodes", [](const Experiment& one) { return json::Value(one.shape.num_nodes); }, column},
      {"sequence_length",
       [](const Experiment& one) { return json::Value(one.config.sequence_length); }, column},
      {"recompute",
       [](const Experiment& one) { return json::Value(to_text(one.config.recompute)); }, column}};
}

}  // namespace

SearchedKeys searched_keys(const Answer& answer) {
  ConfigNode configs;
  const std::size_t num_members = answer.standings.size();
  std::vector<Dimension> dimensions = all_dimensions(num_members);
  std::size_t member = 0;
  for (const Standing& standing : answer.standings) {
    const Experiment& experiment = standing.row->planned.experiment;
    configs.add(member, num_members, experiment.ds_config);
    for (Dimension& dimension : dimensions)
      dimension.column.set(member, dimension.value_of(experiment));
    ++member;
  }
  SearchedKeys found;
  found.common_config = without_tuning(configs.common().value_or(json::Value::object()));
  std::vector<SearchedKey> of_config = keys_of_config(answer, configs);
  const auto derived =
      std::ranges::stable_partition(of_config, [](const auto& key) { return !key.is_derived; });
  std::move(of_config.begin(), derived.begin(), std::back_inserter(found.keys));
  for (Dimension& dimension : dimensions) {
    if (num_members == 0 || dimension.column.is_common()) continue;
    SearchedKey key{.pointer = "", .label = dimension.name, .is_config = false};
    dimension.column.move_to(key);
    found.keys.push_back(std::move(key));
  }
  std::move(derived.begin(), derived.end(), std::back_inserter(found.keys));
  return found;
}

}  // namespace dstune
