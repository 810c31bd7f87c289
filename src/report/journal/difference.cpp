#include "journal/difference.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace dstune {

namespace {

using json::Value;

/// Nlohmann's own comparison takes 5e8 for 500000000, and -0.0 for 0: they are written otherwise.
bool is_same(const Value& one, const Value& other) {
  if (one.is_number_float() || other.is_number_float()) {
    if (!one.is_number_float() || !other.is_number_float()) return false;
    const auto a = one.get<double>(), b = other.get<double>();
    return a == b && std::signbit(a) == std::signbit(b);
  }
  if (!one.is_structured() || one.type() != other.type()) return one == other;
  if (one.size() != other.size()) return false;
  if (one.is_array()) return std::equal(one.begin(), one.end(), other.begin(), is_same);
  const auto& members = one.get_ref<const Value::object_t&>();
  return std::equal(members.begin(), members.end(), other.get_ref<const Value::object_t&>().begin(),
                    [](const auto& a, const auto& b) {
                      return a.first == b.first && is_same(a.second, b.second);
                    });
}

class Comparison {
 public:
  void compare(const Value& base, const Value& value) {
    if (!base.is_object() || !value.is_object() || !is_in_order(base, value)) {
      if (!is_same(base, value)) found_.changes[pointer_] = value;
      return;
    }
    for (const auto& [key, member] : base.get_ref<const Value::object_t&>())
      if (!value.contains(key)) found_.without.push_back(json::append_pointer(pointer_, key));
    for (const auto& [key, member] : value.get_ref<const Value::object_t&>()) {
      const auto usual = base.find(key);
      if (usual != base.end() && !member.is_object() && is_same(*usual, member)) continue;
      std::string here = json::append_pointer(pointer_, key);
      std::swap(pointer_, here);
      if (usual == base.end())
        found_.changes[pointer_] = member;
      else
        compare(*usual, member);
      std::swap(pointer_, here);
    }
  }
  [[nodiscard]] Difference take() { return std::move(found_); }

 private:
  /// The keys of both have the same order, and those of `value` alone are its last.
  static bool is_in_order(const Value& base, const Value& value) {
    const auto& usual = base.get_ref<const Value::object_t&>();
    auto at = usual.begin();
    bool has_others = false;
    for (const auto& [key, member] : value.get_ref<const Value::object_t&>()) {
      const auto found = usual.find(key);
      if (found == usual.end()) {
        has_others = true;
      } else if (has_others || found < at) {
        return false;
      } else {
        at = found + 1;
      }
    }
    return true;
  }

  std::string pointer_;
  Difference found_;
};

/// The last key of a pointer, and the object that has it; null where there is none.
struct MemberPlace {
  Value* object = nullptr;
  std::string key;
};

std::string unescaped(std::string_view key) {
  std::string text;
  for (std::size_t at = 0; at < key.size(); ++at) {
    const bool is_escaped = key[at] == '~' && at + 1 < key.size();
    text += is_escaped ? (key[++at] == '1' ? '/' : '~') : key[at];
  }
  return text;
}

MemberPlace find_member(Value& root, std::string_view pointer) {
  Value* object = &root;
  while (pointer.starts_with('/') && object->is_object()) {
    pointer.remove_prefix(1);
    const std::size_t end = pointer.find('/');
    std::string key = unescaped(pointer.substr(0, end));
    if (end == std::string_view::npos) return {object, std::move(key)};
    const auto inside = object->find(key);
    if (inside == object->end()) break;
    object = &*inside;
    pointer.remove_prefix(end);
  }
  return {};
}

}  // namespace

Difference difference_of(const Value& base, const Value& value) {
  Comparison comparison;
  comparison.compare(base, value);
  return comparison.take();
}

std::optional<Value> restored_from(const Value& base, const Difference& difference) {
  Value value = base;
  for (const auto& [pointer, change] : difference.changes.items()) {
    if (pointer.empty()) {
      value = change;
      continue;
    }
    const MemberPlace place = find_member(value, pointer);
    if (place.object == nullptr) return std::nullopt;
    (*place.object)[place.key] = change;
  }
  for (const std::string& pointer : difference.without) {
    const MemberPlace place = find_member(value, pointer);
    if (place.object == nullptr || place.object->erase(place.key) == 0) return std::nullopt;
  }
  return value;
}

}  // namespace dstune
