#include "dstune/core/target_time.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "embedded/target_constants.hpp"

namespace dstune {

namespace {

struct Parts {
  double beside_s = 0;  ///< what the host does while a device works
  double others_s = 0;
};

Parts parts_of(const Overheads& costs_s, const Overheads& counts) {
  Parts parts;
  for (std::size_t each = 0; each < counts.size(); ++each) {
    if (static_cast<Overhead>(each) == Overhead::recompute) continue;
    double& sum_s = is_beside_device(static_cast<Overhead>(each)) ? parts.beside_s : parts.others_s;
    sum_s += costs_s[each] * counts[each];
  }
  return parts;
}

}  // namespace

double TimeCalibration::target_s(double measured_s, Precision precision,
                                 const Overheads& counts) const {
  const double device_s = device_scale(precision, counts) * measured_s;
  const auto [beside_s, others_s] = parts_of(costs_s, counts);
  if (is_device_behind_host) return std::max(device_s, beside_s) + others_s;
  return device_s + beside_s + others_s;
}

Overheads TimeCalibration::added_s(double measured_s, Precision precision,
                                   const Overheads& counts) const {
  const double beside_s = parts_of(costs_s, counts).beside_s;
  const double hidden_s =
      is_device_behind_host ? std::min(device_scale(precision, counts) * measured_s, beside_s) : 0;
  const double visible_part = beside_s > 0 ? 1 - hidden_s / beside_s : 1;
  Overheads added{};
  for (std::size_t each = 0; each < added.size(); ++each) {
    const bool is_beside = is_beside_device(static_cast<Overhead>(each));
    added[each] = costs_s[each] * counts[each] * (is_beside ? visible_part : 1);
  }
  of(added, Overhead::recompute) *= scale_of(precision) * measured_s;
  return added;
}

double TimeCalibration::measured_s(double target_s, Precision precision,
                                   const Overheads& counts) const {
  const auto [beside_s, others_s] = parts_of(costs_s, counts);
  const double left_s = target_s - others_s;
  // Behind the host the device has all the time that the host takes, but no step is shorter.
  const bool is_hidden = is_device_behind_host && left_s >= beside_s;
  return (is_hidden ? left_s : left_s - beside_s) / device_scale(precision, counts);
}

std::string source_text(const TargetConstants& constants) {
  if (constants.num_engines == 0) return constants.source;
  return fmt::format("measured here by {} tiny engines, beginning with {}", constants.num_engines,
                     constants.source);
}

namespace {

/// Tells whether earlier releases did not write a cost.
constexpr bool is_new(Overhead overhead) {
  return overhead == Overhead::stage_2_byte || overhead == Overhead::recompute ||
         overhead == Overhead::small_call_byte || overhead == Overhead::link_byte;
}

/// One amount for each enumerator, by their texts. `may_be_missing`: by the enumerator.
template <class Archive, class Amounts, class MayBeMissing>
void amounts(Archive& archive, const EnumTexts& texts, Amounts& amounts,
             const MayBeMissing& may_be_missing) {
  require(texts.all.size() == amounts.size(), "an amount for each enumerator");
  for (std::size_t each = 0; each < amounts.size(); ++each)
    archive(texts.all[each].text, amounts[each],
            json::Form{.low = 0, .may_be_missing = may_be_missing(each)});
}

}  // namespace

template <class Archive>
void members(Archive& archive, json::Of<Archive, TargetConstants>& constants) {
  auto& time = constants.time;
  archive.section("scale", [&](auto& inner) {
    amounts(inner, texts_of(Precision{}), time.scale, [](std::size_t) { return false; });
  });
  archive.section("costs_s", [&](auto& inner) {
    amounts(inner, texts_of(Overhead{}), time.costs_s,
            [](std::size_t each) { return is_new(static_cast<Overhead>(each)); });
  });
  archive("device_behind_host", time.is_device_behind_host);
  archive("error", constants.error, json::amount);
  archive("source", constants.source);
  archive("machine", constants.machine);
  constexpr json::Form of_engines{
      .low = 0, .nothing = json::Nothing::omitted, .may_be_missing = true};
  archive("engines", constants.num_engines, of_engines);
  archive("fit_error", constants.fit_error, of_engines);
  constexpr json::Form later{.low = 0, .may_be_missing = true};
  archive("scale_deviation", constants.scale_deviation, later);
  archive.section(
      "deviations_s",
      [&](auto& inner) {
        amounts(inner, texts_of(Overhead{}), constants.deviations_s,
                [](std::size_t) { return true; });
      },
      later);
  archive("correlations", constants.correlations, {.low = -1, .high = 1, .may_be_missing = true});
  if constexpr (Archive::is_reading) {
    for (const double scale : time.scale)
      if (!(scale > 0)) return archive.refuse("a scale is above 0", "/scale");
  }
}

template void members(json::Writer&, const TargetConstants&);
template void members(json::Reader&, TargetConstants&);

namespace {

/// The constants of processors, then of GPUs.
struct EmbeddedConstants {
  std::array<TargetConstants, 2> all;
};
template <class Archive>
void members(Archive& archive, json::Of<Archive, EmbeddedConstants>& constants) {
  archive("cpu", constants.all[0]);
  archive("gpu", constants.all[1]);
}

EmbeddedConstants embedded_constants() {
  try {
    const auto document =
        json::Document::parse(embedded::target_constants, "target_constants.json");
    return json::read<EmbeddedConstants>(document.node());
  } catch (const InputError& error) {
    // The data is a part of the program.
    throw LogicError(error.what());
  }
}

}  // namespace

const TargetConstants& target_constants(bool is_on_gpus) {
  static const EmbeddedConstants constants = embedded_constants();
  return constants.all[is_on_gpus ? 1 : 0];
}

}  // namespace dstune
