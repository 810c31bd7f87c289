#include "parts.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// How many characters stand behind the decimal point (or behind the exponent's letter where there
/// is no point); −1 for an integer.
std::ptrdiff_t places_behind_point(const std::string& cell) {
  std::size_t at = cell.rfind('.');
  if (at == std::string::npos) at = cell.find_last_of("eE");
  if (at == std::string::npos) return -1;
  return static_cast<std::ptrdiff_t>(cell.size() - at) - 1;
}

void align_decimal_points(std::vector<std::string>& cells) {
  std::ptrdiff_t most = -1;
  for (const std::string& cell : cells) most = std::max(most, places_behind_point(cell));
  for (std::string& cell : cells)
    cell.append(static_cast<std::size_t>(most - places_behind_point(cell)), ' ');
}

/// A column's cells, the header first, at its width.
std::vector<std::string> padded(const Column& column, std::vector<std::string> cells) {
  const bool is_number = column.type == ColumnType::number;
  if (is_number) align_decimal_points(cells);
  std::size_t width = column.header.size() + 2;
  for (const std::string& cell : cells) width = std::max(width, cell.size());
  cells.insert(cells.begin(), column.header);
  for (std::string& cell : cells)
    cell.insert(is_number ? 0 : cell.size(), width - cell.size(), ' ');
  return cells;
}

}  // namespace

bool file_name::is_temporary(std::string_view name) {
  constexpr std::string_view begin = ".dstune-";
  constexpr std::string_view end = ".tmp";
  if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size())
    return false;
  std::string_view middle = name.substr(begin.size());
  middle.remove_suffix(end.size());
  const std::size_t dash = middle.find('-');
  if (dash == std::string_view::npos) return false;
  const std::string_view who = middle.substr(0, dash);
  const std::string_view which = middle.substr(dash + 1);
  const auto all = [](std::string_view text, int (*is_one)(int)) {
    return !text.empty() && std::ranges::all_of(text, [&](char character) {
      return is_one(static_cast<unsigned char>(character)) != 0;
    });
  };
  if (who == "lock" || who == "probe") return which.size() == 6 && all(which, std::isalnum);
  return all(who, std::isdigit) && all(which, std::isdigit);
}

std::string interval_text(const std::optional<MetricValue>& value) {
  if (!value || !std::isfinite(value->ci_high)) return "";
  return fmt::format("{} to {}", format_number(value->ci_low), format_number(value->ci_high));
}

std::string value_text(const MetricValue& value, Metric metric) {
  const std::string interval = interval_text(value);
  return fmt::format("{} {}{}", format_number(value.value), unit_text(metric),
                     interval.empty() ? "" : fmt::format(" (95 % interval {})", interval));
}

std::string json_text(const json::Value& value, int indent) {
  return value.dump(indent, ' ', false, json::Value::error_handler_t::replace);
}

json::Value without_tuning(json::Value ds_config) {
  ds_config.erase("autotuning");
  ds_config.erase("dstune");
  return ds_config;
}

std::string filled(std::string_view pattern,
                   std::initializer_list<std::pair<std::string_view, std::string>> texts) {
  std::string out;
  while (true) {
    const std::size_t begin = pattern.find('@');
    out += pattern.substr(0, begin);
    if (begin == std::string_view::npos) return out;
    pattern.remove_prefix(begin + 1);
    const auto found = std::find_if(texts.begin(), texts.end(), [&](const auto& each) {
      return pattern.starts_with(each.first) && pattern.substr(each.first.size()).starts_with('@');
    });
    out += found == texts.end() ? "@" : found->second;
    if (found != texts.end()) pattern.remove_prefix(found->first.size() + 1);
  }
}

std::string pipe_table(const std::vector<Column>& columns, const std::vector<TableRow>& rows) {
  std::vector<std::string> lines(rows.size() + 1);
  std::string rule;
  for (std::size_t index = 0; index < columns.size(); ++index) {
    std::vector<std::string> cells;
    for (const TableRow& row : rows) cells.push_back(row[index]);
    cells = padded(columns[index], std::move(cells));
    for (std::size_t line = 0; line < lines.size(); ++line) lines[line] += "| " + cells[line] + " ";
    const std::string dashes(cells.front().size() + 1, '-');
    rule += columns[index].type == ColumnType::number ? "|" + dashes + ":" : "|:" + dashes;
  }
  lines.insert(lines.begin() + 1, rule);
  return fmt::format("{}|\n", fmt::join(lines, "|\n"));
}

std::string large_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  for (const auto& [unit, name] : {std::pair(1e12, "trillion"), {1e9, "billion"}, {1e6, "million"}})
    if (value >= 0.9995 * unit)
      return value >= 100 * unit ? fmt::format("{:.0f} {}", value / unit, name)
                                 : fmt::format("{:.3g} {}", value / unit, name);
  return std::to_string(count);
}

std::string model_profile_text(const ModelProfile& profile) {
  const bool all_train = profile.trainable_parameters == profile.parameters;
  std::string text = fmt::format("{} parameters, {} trainable", large_count(profile.parameters),
                                 all_train ? "all" : large_count(profile.trainable_parameters));
  if (profile.activation_bytes && profile.loss_bytes)
    text += fmt::format(
        "; a sample of {} in {} keeps {} of activations without recompute, and its loss takes {}",
        format_count(static_cast<std::uint64_t>(profile.sequence_length), "token"),
        to_text(profile.precision), format_bytes(*profile.activation_bytes),
        format_bytes(*profile.loss_bytes));
  const bool is_small = profile.flops_per_token < 1e9;
  return text + fmt::format("; {:.3g} {} a token", profile.flops_per_token / (is_small ? 1e6 : 1e9),
                            is_small ? "MFLOP" : "GFLOP");
}

json::Value prune_counts_json(const PruneCounts& counts) {
  json::Value all = json::Value::object();
  for (const EnumText& kind : texts_of(PruneKind()).all) {
    const auto found = counts.find(static_cast<PruneKind>(kind.value));
    all[std::string(kind.text)] = found == counts.end() ? 0 : found->second;
  }
  return all;
}

json::Value model_profile_json(const std::optional<ModelProfile>& profile) {
  if (!profile) return nullptr;
  const auto bytes = [](const std::optional<std::int64_t>& amount) {
    return amount ? json::Value(*amount) : json::Value();
  };
  return {{"parameters", profile->parameters},
          {"trainable_parameters", profile->trainable_parameters},
          {"sequence_length", profile->sequence_length},
          {"precision", to_text(profile->precision)},
          {"activation_bytes_per_sample", bytes(profile->activation_bytes)},
          {"loss_bytes_per_sample", bytes(profile->loss_bytes)},
          {"flops_per_token", profile->flops_per_token}};
}

}  // namespace dstune
