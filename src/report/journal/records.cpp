#include "journal/records.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/text.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/report/journal.hpp"
#include "journal/difference.hpp"

namespace dstune {

namespace {

using json::Value;

constexpr const char* changes_key = "changes";
constexpr const char* without_key = "without";

/// Most records of a space have most of these alike.
constexpr std::array<std::string_view, 3> shared_keys = {"ds_config", "config", "predicted"};

bool is_shared(std::string_view key) {
  return std::ranges::find(shared_keys, key) != shared_keys.end();
}

/// Takes the members out that records share.
Value take_shared(Value& event) {
  Value shared = Value::object(), rest = Value::object();
  for (auto& [key, member] : event.get_ref<Value::object_t&>())
    (is_shared(key) ? shared : rest)[key] = std::move(member);
  event = std::move(rest);
  return shared;
}

}  // namespace

namespace event {

Value base(const PlannedExperiment& first) {
  Record record;
  record.experiment = first.experiment;
  record.predicted = first.predicted;
  Value whole = finished("", record);
  Value value = {{"kind", base_kind}, {"name", first.experiment.name}};
  value.update(take_shared(whole));
  return value;
}

Value finished(const std::string& key, const Record& record, const Value& base) {
  Value value = finished(key, record);
  Value shared = take_shared(value), usual = Value::object();
  for (const auto& [name, member] : base.items())
    if (is_shared(name)) usual[name] = member;
  Difference difference = difference_of(usual, shared);
  value[changes_key] = std::move(difference.changes);
  if (!difference.without.empty()) value[without_key] = std::move(difference.without);
  return value;
}

}  // namespace event

void MembersLeftOut::add(const PlannedExperiment& member) {
  Group& group = groups_[{std::string(to_text(member.status)), without_numbers(member.reason)}];
  if (group.count++ == 0) {
    group.first_reason = member.reason;
    if (member.status == PlanStatus::pruned) group.pruned_because = to_text(member.prune_kind);
  }
  if (num_named_ == max_named) return;
  group.names.push_back(member.experiment.name);
  ++num_named_;
}

Value MembersLeftOut::event() const {
  std::map<std::string, std::size_t> counts;
  Value reasons = Value::array();
  for (const auto& [key, group] : groups_) {
    const std::string& status = key.first;
    counts[status] += group.count;
    Value one = {{"status", status}, {"reason", group.first_reason}, {"count", group.count}};
    if (!group.pruned_because.empty()) one["pruned_because"] = group.pruned_because;
    one["names"] = group.names;
    reasons.push_back(std::move(one));
  }
  return {{"kind", not_planned_kind}, {"counts", counts}, {"reasons", std::move(reasons)}};
}

bool is_difference(const Value& finished) {
  return finished.contains(changes_key);
}

std::optional<Value> whole_record(const Value& finished, const Value& base) {
  Difference difference;
  difference.changes = finished.at(changes_key);
  if (!base.is_object() || !difference.changes.is_object()) return std::nullopt;
  if (const auto without = finished.find(without_key); without != finished.end()) {
    if (!without->is_array()) return std::nullopt;
    for (const Value& pointer : *without) {
      if (!pointer.is_string()) return std::nullopt;
      difference.without.push_back(pointer);
    }
  }
  Value usual = Value::object();
  for (const auto& [name, member] : base.items())
    if (is_shared(name)) usual[name] = member;
  std::optional<Value> shared = restored_from(usual, difference);
  if (!shared || !shared->is_object()) return std::nullopt;
  Value whole = Value::object();
  for (const auto& [key, member] : finished.items()) {
    if (key == changes_key || key == without_key) continue;
    // Their place in the whole event is behind the group's shape.
    whole[key] = member;
    if (key == "num_nodes") whole.update(*shared);
  }
  return whole;
}

}  // namespace dstune
