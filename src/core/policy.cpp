#include "dstune/core/policy.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "dstune/core/policy_changes.hpp"
#include "policy_rows.hpp"

namespace dstune {
namespace {

json::Value value_of(const auto& value) {
  return value;
}
json::Value value_of(const Policy::Surrogate::Hyperparameter& value) {
  return {{"start", value.start}, {"freedom", value.freedom}};
}
json::Value value_of(const Policy::Calibrating::Doubts& value) {
  return {{"scale", value.scale},
          {"cost", value.cost},
          {"host", value.host},
          {"network", value.network},
          {"least_known", value.least_known}};
}

/// Collects the rows, group by group.
class Rows {
 public:
  void begin(const char* name, const char* source) {
    group_ = &groups_[name];
    (*group_)["source"] = source;
  }
  void operator()(const char* name, const auto& value, const char* unit, const char* reason) {
    (*group_)[name] = {{"value", value_of(value)}, {"unit", unit}, {"reason", reason}};
  }
  [[nodiscard]] json::Value take() { return std::move(groups_); }

 private:
  json::Value groups_;
  json::Value* group_ = nullptr;
};

/// Multiplies the value of one name, where it is a number, or the logarithm of one.
class Change {
 public:
  Change(std::string_view name, double factor) : name_(name), factor_(factor) {}
  void begin(const char* name, const char* /*source*/) { group_ = name; }
  template <typename T>
  void operator()(const char* name, T& value, const char* /*unit*/, const char* /*reason*/) {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (name_ != fmt::format("{}.{}", group_, name)) return;
      const double changed = factor_ * static_cast<double>(value);
      // A count or a divisor stays one.
      value = std::is_integral_v<T> ? static_cast<T>(std::max(1.0, std::round(changed)))
                                    : static_cast<T>(changed);
      is_done_ = true;
    } else if constexpr (std::is_same_v<T, Policy::Surrogate::Hyperparameter>) {
      const std::string full = fmt::format("{}.{}", group_, name);
      if (name_ == full)
        value.start += std::log(factor_);
      else if (name_ == full + ".freedom")
        value.freedom *= factor_;
      else
        return;
      is_done_ = true;
    }
  }
  [[nodiscard]] bool is_done() const { return is_done_; }

 private:
  std::string_view name_;
  double factor_;
  const char* group_ = "";
  bool is_done_ = false;
};

Policy& policy_of_process() {
  static Policy policy;
  return policy;
}

}  // namespace

const Policy& default_policy() {
  return policy_of_process();
}

bool change_policy(std::string_view name, double factor) {
  Change change(name, factor);
  policy_rows::visit(policy_of_process(), change);
  return change.is_done();
}

json::Value policy_json(const Policy& policy) {
  Policy all = policy;
  Rows rows;
  policy_rows::visit(all, rows);
  return rows.take();
}

}  // namespace dstune
