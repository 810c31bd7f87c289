#pragma once
/// Every member of values that are written and read, for tests of their lists of members: a member
/// that is new does not compile here before it is named. And what such tests do with them.

#include <array>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/predict/work.hpp"

namespace dstune::test {

/// References to all members of a value, in their order.
#define DSTUNE_FIELDS(Type, ...)    \
  inline auto fields(Type& value) { \
    auto& [__VA_ARGS__] = value;    \
    return std::tie(__VA_ARGS__);   \
  }

/// Another value than the one given that a reader takes in its place.
template <class Enum>
requires std::is_enum_v<Enum>
void change(Enum& member) {
  member = static_cast<Enum>(member == static_cast<Enum>(0) ? 1 : 0);
}
inline void change(bool& member) {
  member = !member;
}
template <std::integral Number>
void change(Number& member) {
  // Where 64 bits are full, in the other direction.
  member = member == std::numeric_limits<Number>::max() ? 7 : static_cast<Number>(member + 1);
}
inline void change(double& member) {
  if (std::isnan(member))
    member = 0.5;
  else
    member += std::abs(member) < 1e9 ? 0.3 : member / 2;
}
inline void change(std::string& member) {
  member += "~/\"µ\n";
}

inline void change(std::chrono::system_clock::time_point& member) {
  member += std::chrono::microseconds(1);
}
inline void change(json::Value& member) {
  member = json::Value{{"other", member}};
}
inline void change(WorkKind& kind) {
  using enum WorkKind;
  if (is_collective(kind))
    kind = kind == reduce ? all_gather : reduce;
  else
    kind = kind == add ? copy : add;
}

template <class T>
concept HasFields = requires(T& value) {
  fields(value);
};

/// Changes one of a value's leaves, by its number: numbers, texts, …, and the sizes of lists.
class LeafChange {
 public:
  explicit LeafChange(int wanted) : wanted_(wanted) {}
  /// Whether the value had so many.
  [[nodiscard]] bool is_done() const { return seen_ > wanted_; }

  template <class T>
  void visit(T& value) {
    if constexpr (HasFields<T>) {
      std::apply([this](auto&... each) { (visit(each), ...); }, fields(value));
    } else {
      visit_plain(value);
    }
  }

 private:
  bool is_next() { return seen_++ == wanted_; }

  template <class T>
  void visit_plain(T& value) {
    if (is_next()) change(value);
  }
  template <class T>
  void visit_plain(std::vector<T>& values) {
    // Nobody knows what an element must hold.
    if (HasFields<T> && values.empty()) return;
    if (is_next()) {
      values.push_back(values.empty() ? T{} : values.back());
      LeafChange(0).visit(values.back());
    } else {
      for (T& each : values) visit(each);
    }
  }
  template <class T, std::size_t size>
  void visit_plain(std::array<T, size>& values) {
    for (T& each : values) visit(each);
  }
  template <class T>
  void visit_plain(std::map<std::string, T>& values) {
    if (is_next())
      values["more"] = T{};
    else
      for (auto& [key, value] : values) visit(value);
  }
  template <class T>
  void visit_plain(std::optional<T>& value) {
    if (!value)
      value.emplace();
    else if (is_next())
      value.reset();
    else
      visit(*value);
  }

  int wanted_;
  int seen_ = 0;
};

template <class T>
bool is_same(T& one, T& other);

inline bool is_same_plain(double one, double other) {
  if (std::isnan(one)) return std::isnan(other);
  return one == other || std::abs(one - other) <= 1e-14 * std::abs(one);
}
template <class T>
bool is_same_plain(const T& one, const T& other) {
  return one == other;
}
template <class T>
bool is_same_plain(std::vector<T>& one, std::vector<T>& other) {
  bool same = one.size() == other.size();
  for (std::size_t i = 0; same && i < one.size(); ++i) same = is_same(one[i], other[i]);
  return same;
}
template <class T>
bool is_same_plain(std::map<std::string, T>& one, std::map<std::string, T>& other) {
  bool same = one.size() == other.size();
  for (auto& [key, value] : one) same = same && other.contains(key) && is_same(value, other[key]);
  return same;
}
template <class T>
bool is_same_plain(std::optional<T>& one, std::optional<T>& other) {
  return one && other ? is_same(*one, *other) : one.has_value() == other.has_value();
}
template <class T>
bool is_same(T& one, T& other) {
  if constexpr (HasFields<T>) {
    const auto all = [&]<std::size_t... i>(auto of_one, auto of_other, std::index_sequence<i...>) {
      return (is_same(std::get<i>(of_one), std::get<i>(of_other)) && ...);
    };
    using Fields = decltype(fields(one));
    return all(fields(one), fields(other), std::make_index_sequence<std::tuple_size_v<Fields>>());
  } else {
    return is_same_plain(one, other);
  }
}

}  // namespace dstune::test
