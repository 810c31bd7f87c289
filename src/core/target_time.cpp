#include "dstune/core/target_time.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "embedded/target_constants.hpp"

namespace dstune {

namespace {

struct Parts {
  double host_s = 0;
  double network_s = 0;
};

Parts parts_of(const Overheads& costs_s, const Overheads& counts) {
  Parts parts;
  for (std::size_t each = 0; each < counts.size(); ++each) {
    double& sum_s = is_of_network(static_cast<Overhead>(each)) ? parts.network_s : parts.host_s;
    sum_s += costs_s[each] * counts[each];
  }
  return parts;
}

}  // namespace

double TimeCalibration::target_s(double measured_s, Precision precision,
                                 const Overheads& counts) const {
  const double device_s = scale_of(precision) * measured_s;
  const auto [host_s, network_s] = parts_of(costs_s, counts);
  if (is_device_behind_host) return std::max(device_s, host_s) + network_s;
  return device_s + host_s + network_s;
}

Overheads TimeCalibration::added_s(double measured_s, Precision precision,
                                   const Overheads& counts) const {
  const double host_s = parts_of(costs_s, counts).host_s;
  const double hidden_s =
      is_device_behind_host ? std::min(scale_of(precision) * measured_s, host_s) : 0;
  const double visible_part = host_s > 0 ? 1 - hidden_s / host_s : 1;
  Overheads added{};
  for (std::size_t each = 0; each < added.size(); ++each) {
    const bool is_network = is_of_network(static_cast<Overhead>(each));
    added[each] = costs_s[each] * counts[each] * (is_network ? 1 : visible_part);
  }
  return added;
}

double TimeCalibration::measured_s(double target_s, Precision precision,
                                   const Overheads& counts) const {
  const auto [host_s, network_s] = parts_of(costs_s, counts);
  const double left_s = target_s - network_s;
  // Behind the host the device has all the time that the host takes, but no step is shorter.
  const bool is_hidden = is_device_behind_host && left_s >= host_s;
  return (is_hidden ? left_s : left_s - host_s) / scale_of(precision);
}

namespace {

/// Reads the members of an object, each of which has to be there.
class StrictObject {
 public:
  StrictObject(const json::Node& node, json::Problems& problems,
               const std::vector<std::string_view>& names)
      : node_(node), problems_(problems) {
    if (!node.expect_object(problems)) problems.check();
    node.refuse_unknown_keys(problems, names);
  }
  [[nodiscard]] json::Node at(std::string_view name) const {
    const auto found = node_.find(std::string(name));
    if (!found) problems_.add(node_.problem("has no \"" + std::string(name) + "\""));
    problems_.check();
    return *found;
  }
  [[nodiscard]] double amount(std::string_view name) const {
    const auto value = at(name).number(problems_, 0);
    problems_.check();
    return *value;
  }
  [[nodiscard]] std::string text(std::string_view name) const {
    const auto value = at(name).string(problems_);
    problems_.check();
    return *value;
  }
  [[nodiscard]] bool flag(std::string_view name) const {
    const auto value = at(name).boolean(problems_);
    problems_.check();
    return *value;
  }

 private:
  const json::Node& node_;
  json::Problems& problems_;
};

/// One amount for each enumerator, by their texts.
template <class Enum, std::size_t size>
void read_amounts(const json::Node& node, json::Problems& problems,
                  std::array<double, size>& amounts) {
  std::vector<std::string_view> names;
  for (const EnumText& row : texts_of(Enum{}).all) names.push_back(row.text);
  require(names.size() == size, "an amount for each enumerator");
  const StrictObject object(node, problems, names);
  for (std::size_t each = 0; each < size; ++each) amounts[each] = object.amount(names[each]);
}

TargetConstants constants_of(const json::Node& node, json::Problems& problems) {
  const StrictObject object(
      node, problems, {"scale", "costs_s", "device_behind_host", "error", "source", "machine"});
  TargetConstants constants;
  read_amounts<Precision>(object.at("scale"), problems, constants.time.scale);
  for (const double scale : constants.time.scale) require(scale > 0, "a scale above 0");
  read_amounts<Overhead>(object.at("costs_s"), problems, constants.time.costs_s);
  constants.time.is_device_behind_host = object.flag("device_behind_host");
  constants.error = object.amount("error");
  constants.source = object.text("source");
  constants.machine = object.text("machine");
  return constants;
}

/// Of processors, then of GPUs.
std::array<TargetConstants, 2> embedded_constants() {
  try {
    const auto document =
        json::Document::parse(embedded::target_constants, "target_constants.json");
    const json::Node root = document.node();
    json::Problems problems;
    const StrictObject object(root, problems, {"cpu", "gpu"});
    std::array<TargetConstants, 2> constants{constants_of(object.at("cpu"), problems),
                                             constants_of(object.at("gpu"), problems)};
    problems.check();
    return constants;
  } catch (const InputError& error) {
    // The data is a part of the program.
    throw LogicError(error.what());
  }
}

}  // namespace

const TargetConstants& target_constants(bool is_on_gpus) {
  static const std::array<TargetConstants, 2> constants = embedded_constants();
  return constants[is_on_gpus ? 1 : 0];
}

}  // namespace dstune
