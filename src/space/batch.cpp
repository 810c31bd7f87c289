#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "dstune/base/checked.hpp"
#include "sections/products.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

const Knob& row_of(const Dimension& dimension, const KnobTable& table) {
  return *table.find_knob(dimension.pointer);
}

/// Nothing: it follows from the others.
void add_size(Dimension& dimension, const KnobTable& table, std::optional<std::int64_t> size,
              const std::string& origin) {
  Setting setting{table.find(dimension.pointer).value(), {}, Presence::absent};
  if (size) setting = {setting.row, *size, Presence::given};
  dimension.candidates.push_back(size ? json::Value(*size) : json::Value());
  dimension.origins.push_back(origin);
  dimension.settings.push_back({std::move(setting)});
}

/// Reads a given size by the row; a size that follows from the others is not read here.
std::optional<std::int64_t> read_size(const json::Node& node, const KnobTable& table,
                                      const Knob& row, json::Problems& problems) {
  const auto value = table.read_value(node, row, problems);
  return value ? std::optional(std::get<std::int64_t>(*value)) : std::nullopt;
}

void add_candidate(Dimension& dimension, const KnobTable& table, const json::Node& node,
                   json::Problems& problems) {
  const Knob& row = row_of(dimension, table);
  if (!row.candidates_are_given && table.stands_for_default(node, row)) {
    add_size(dimension, table, std::nullopt, node.pointer());
  } else if (const auto size = read_size(node, table, row, problems)) {
    add_size(dimension, table, size, node.pointer());
  }
}

template <class ProductOrConst>
auto& dimension_of(ProductOrConst& product, Kind kind) {
  return *std::find_if(product.dimensions.begin(), product.dimensions.end(),
                       [&](const Dimension& dimension) { return dimension.kind == kind; });
}

}  // namespace

std::optional<Kind> batch_kind(std::string_view key) {
  for (const auto& [batch_key, kind] : batch_keys)
    if (batch_key == key) return kind;
  return std::nullopt;
}

std::optional<std::int64_t> size_of(const Dimension& dimension, std::size_t candidate) {
  const auto* const size = std::get_if<std::int64_t>(&dimension.settings[candidate].front().value);
  return size == nullptr ? std::nullopt : std::optional(*size);
}

Dimension batch_dimension(std::string_view key, const std::optional<json::Node>& node,
                          const JobSpec& job, json::Problems& problems) {
  const KnobTable& table = job.knobs();
  Dimension dimension;
  dimension.kind = batch_kind(key).value();
  dimension.pointer = fmt::format("/{}", key);
  const bool is_micro = dimension.kind == Kind::micro_batch;
  const Knob& row = row_of(dimension, table);
  const bool is_derived = !node || table.stands_for_default(*node, row);
  if (node && node->is_array()) {
    if (node->value().empty())
      problems.add(node->problem(
          "an empty list leaves nothing to try: name at least one size, or remove the key"));
    for (const auto& element : node->elements()) add_candidate(dimension, table, element, problems);
  } else if (is_derived && is_micro) {
    add_size(dimension, table, job.tuning.min_train_micro_batch_size_per_gpu, dimension.pointer);
  } else if (is_derived) {
    add_size(dimension, table, std::nullopt, dimension.pointer);
  } else if (const auto size = read_size(*node, table, row, problems)) {
    add_size(dimension, table, size, dimension.pointer);
  }
  // A size that could not be read is complained about; the rest is checked beside it.
  if (dimension.candidates.empty())
    add_size(dimension, table, is_micro ? std::optional<std::int64_t>(1) : std::nullopt,
             dimension.pointer);
  return dimension;
}

namespace {

/// Sizes above `from`, up to `end`: one by one up to 16, then by a sixteenth to an eighth, so that
/// there are eight until they have doubled; `own` is among them.
std::vector<std::int64_t> sizes_between(std::int64_t from, std::int64_t end, std::int64_t own) {
  std::vector<std::int64_t> sizes;
  auto step = std::int64_t{1};
  for (auto size = from; size < end;) {
    while (16 * step <= size) step *= 2;
    const auto next = std::min(end, size + step);
    if (size < own && own < next) sizes.push_back(own);
    size = next;
    sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

void fill_searched_micro_batches(const JobSpec& job, Product& product, json::Problems& problems) {
  auto& dimension = dimension_of(product, Kind::micro_batch);
  const auto lowest = size_of(dimension, 0).value();
  const auto& tuning = job.tuning;
  if (lowest > tuning.max_train_micro_batch_size_per_gpu) {
    problems.add({job.document->file(), dimension.pointer, job.document->line(dimension.pointer),
                  fmt::format("the search starts at {}, above "
                              "max_train_micro_batch_size_per_gpu {}: raise that",
                              lowest, tuning.max_train_micro_batch_size_per_gpu)});
    return;
  }
  const auto largest = static_cast<std::int64_t>(row_of(dimension, job.knobs()).largest_here);
  auto highest = std::min(tuning.max_train_micro_batch_size_per_gpu, largest);
  if (tuning.max_train_batch_size) {
    const Dimension& steps = dimension_of(product, Kind::accumulation_steps);
    std::int64_t fewest = largest;
    for (std::size_t index = 0; index < steps.candidates.size(); ++index)
      fewest = std::min(fewest, size_of(steps, index).value_or(1));
    int smallest_group = job.shapes.empty() ? 1 : job.shapes.front().size();
    for (const auto& shape : job.shapes) smallest_group = std::min(smallest_group, shape.size());
    highest = std::min(highest, *tuning.max_train_batch_size / (fewest * smallest_group));
  }
  // The training command's own is among them.
  const auto own = job.todays_batch ? job.todays_batch->micro_batch : lowest;
  const auto add_up_to = [&](std::int64_t from, std::int64_t end) {
    for (const auto size : sizes_between(from, end, own))
      add_size(dimension, job.knobs(), size, dimension.origins.front());
  };
  add_up_to(lowest, highest);
  const auto smallest = std::min(lowest, tuning.min_train_micro_batch_size_per_gpu);
  if (!job.has_smaller_sizes || smallest == lowest) return;
  // They stand behind the others: the first one is the config's own.
  add_size(dimension, job.knobs(), smallest, dimension.origins.front());
  add_up_to(smallest, lowest - 1);
}

void check_batches(const JobSpec& job, const Product& product, json::Problems& problems) {
  const Dimension& totals = dimension_of(product, Kind::train_batch_size);
  const Dimension& micros = dimension_of(product, Kind::micro_batch);
  const Dimension& steps = dimension_of(product, Kind::accumulation_steps);
  std::string why;
  for (const auto& shape : job.shapes) {
    for (std::size_t total = 0; total < totals.candidates.size(); ++total) {
      for (std::size_t micro = 0; micro < micros.candidates.size(); ++micro) {
        for (std::size_t step = 0; step < steps.candidates.size(); ++step) {
          const auto triple = resolve_batch(size_of(totals, total), size_of(micros, micro),
                                            size_of(steps, step), shape.size(), why);
          if (triple) why = batch_limit_reason(job.tuning, triple->train_batch_size);
          if (triple && why.empty()) return;
        }
      }
    }
  }
  const std::string pointer =
      !size_of(totals, 0) ? "/autotuning/max_train_batch_size" : "/train_batch_size";
  problems.add({job.document->file(), pointer, job.document->line(pointer),
                "no combination of group size, micro-batch and accumulation gives this batch "
                "size (the last one tried: " +
                    why + "): change one of them"});
}

std::string batch_limit_reason(const TuningOptions& tuning, std::int64_t train_batch_size) {
  if (tuning.max_train_batch_size && train_batch_size > *tuning.max_train_batch_size) {
    return fmt::format("train_batch_size {} is above max_train_batch_size {}", train_batch_size,
                       *tuning.max_train_batch_size);
  }
  if (train_batch_size < tuning.min_train_batch_size) {
    return fmt::format("train_batch_size {} is below min_train_batch_size {}", train_batch_size,
                       tuning.min_train_batch_size);
  }
  return "";
}

std::optional<BatchTriple> resolve_batch(std::optional<std::int64_t> train_batch_size,
                                         std::optional<std::int64_t> micro_batch,
                                         std::optional<std::int64_t> accumulation_steps,
                                         std::int64_t group_size, std::string& why) {
  auto [total, micro, steps] = std::tuple(train_batch_size, micro_batch, accumulation_steps);
  if (!total && !micro) {
    why = "either train_batch_size or train_micro_batch_size_per_gpu is needed";
    return std::nullopt;
  }
  for (const auto& given : {total, micro, steps}) {
    if (given && *given < 1) {
      why = fmt::format("batch sizes are positive, {} is not", *given);
      return std::nullopt;
    }
  }
  // Nothing where it does not fit in 64 bits.
  const auto product = [&](std::int64_t samples,
                           std::int64_t times) -> std::optional<std::int64_t> {
    try {
      return checked_product("train_batch_size", samples, times, group_size);
    } catch (const OverflowError&) {
      return std::nullopt;
    }
  };
  // Absent sizes follow by integer division, as in DeepSpeed; the product is checked after.
  if (total && micro && !steps) {
    steps = *total / *micro / group_size;
  } else if (total && !micro && steps) {
    micro = *total / group_size / *steps;
  } else if (total && !micro) {
    steps = 1;
    micro = *total / group_size;
  } else if (!total) {
    if (!steps) steps = 1;
    total = product(*micro, *steps);
    if (!total) {
      why = fmt::format(
          "train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} x group size {} is "
          "more than 64 bits hold",
          *micro, *steps, group_size);
      return std::nullopt;
    }
  }
  const BatchTriple triple{*total, *micro, *steps};
  if (*total > 0 && *micro > 0 && *steps > 0 && product(*micro, *steps) == total) return triple;
  why = fmt::format(
      "train_batch_size {} is not train_micro_batch_size_per_gpu {} x gradient_accumulation_steps "
      "{} x group size {}",
      *total, *micro, *steps, group_size);
  return std::nullopt;
}

}  // namespace dstune
