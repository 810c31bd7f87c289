/// The parameters that train where others are frozen.

#include <algorithm>
#include <string>
#include <string_view>

#include "dstune/model/parameter_table.hpp"
#include "target/target.hpp"
#include "zero/layout.hpp"

namespace dstune::plan {
namespace {

/// Tells whether the text matches the pattern, in which * stands for any letters.
bool matches(std::string_view text, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t from = star; from <= text.size(); ++from)
    if (matches(text.substr(from), rest)) return true;
  return false;
}

bool is_targeted(std::string_view name, bool is_in_block, const Trainable& trainable) {
  const std::string_view module = name.substr(0, name.rfind('.'));
  return std::ranges::any_of(trainable.targets, [&](const std::string& target) {
    if (target == "all-linear") return is_in_block;
    return module.ends_with("." + target) || matches(module, target);
  });
}

/// The name of the part of a merged parameter: "first.weight+second.weight".
std::string_view name_of_part(std::string_view names, int part) {
  for (; part > 0; --part) names.remove_prefix(names.find('+') + 1);
  return names.substr(0, names.find('+'));
}

}  // namespace

TrainedParameters count_trained(const ParameterTable& table, const Trainable& trainable) {
  TrainedParameters trained;
  const int last_block = table.num_units() - 2;
  std::int64_t of_unit = 0;
  int unit = 0, part = 0;
  for (const Piece& piece : cut_into_pieces(table)) {
    const Parameter& parameter = table.all()[static_cast<std::size_t>(piece.parameter)];
    part = piece.first == 0 ? 0 : part + 1;
    if (parameter.unit != unit) of_unit = 0;
    unit = parameter.unit;
    const bool is_in_block = unit > 0 && unit <= last_block;
    const std::string_view name = name_of_part(parameter.name, part);
    const auto train = [&](std::int64_t elements) {
      trained.roles.insert(parameter.role);
      trained.elements += elements;
      of_unit += elements;
      trained.largest = std::max(trained.largest, elements);
      if (is_in_block) trained.largest_of_layer = std::max(trained.largest_of_layer, elements);
      if (unit == last_block) trained.of_layer += elements;
      trained.largest_unit = std::max(trained.largest_unit, of_unit);
    };
    if (std::ranges::any_of(trainable.names,
                            [&](const std::string& pattern) { return matches(name, pattern); })) {
      train(piece.elements);
      trained.has_table = trained.has_table || parameter.role == ParameterRole::token_embedding;
    }
    if (trainable.rank == 0 || parameter.columns == 1 || !is_targeted(name, is_in_block, trainable))
      continue;
    ++trained.adapters;
    for (const std::int64_t width : {parameter.columns, piece.elements / parameter.columns}) {
      train(trainable.rank * width);
      trained.added += trainable.rank * width;
    }
  }
  return trained;
}

}  // namespace dstune::plan

namespace dstune {

TrainedPart trained_part(const ModelSpec& model, const TargetSpec& target) {
  if (!target.trainable) return {};
  const ParameterTable table(model);
  const plan::TrainedParameters trained = plan::count_trained(table, *target.trainable);
  return {static_cast<double>(trained.elements) / static_cast<double>(table.total_elements()),
          trained.adapters};
}

}  // namespace dstune
