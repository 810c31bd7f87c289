#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/checked.hpp"
#include "dstune/base/text.hpp"
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
/// there are eight until they have doubled; those of `own` are among them.
std::vector<std::int64_t> sizes_between(std::int64_t from, std::int64_t end,
                                        const std::set<std::int64_t>& own) {
  std::vector<std::int64_t> sizes;
  auto step = std::int64_t{1};
  for (auto size = from; size < end;) {
    while (16 * step <= size) step *= 2;
    const auto next = std::min(end, size + step);
    sizes.insert(sizes.end(), own.upper_bound(size), own.lower_bound(next));
    size = next;
    sizes.push_back(size);
  }
  return sizes;
}

/// The micro-batches that follow where the other two sizes are written.
std::set<std::int64_t> given_by_others(const JobSpec& job, const Product& product) {
  const Dimension& totals = dimension_of(product, Kind::train_batch_size);
  const Dimension& steps = dimension_of(product, Kind::accumulation_steps);
  std::set<std::int64_t> given;
  for (const GroupShape& shape : job.shapes)
    for (std::size_t total = 0; total < totals.candidates.size(); ++total)
      for (std::size_t step = 0; step < steps.candidates.size(); ++step) {
        std::string why;
        const auto triple = resolve_batch(size_of(totals, total), std::nullopt,
                                          size_of(steps, step), shape.size(), why);
        if (triple) given.insert(triple->micro_batch);
      }
  return given;
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
  std::set<std::int64_t> own = given_by_others(job, product);
  if (job.todays_batch) own.insert(job.todays_batch->micro_batch);
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
  // Only where ranks share a micro-batch do the other keys decide.
  if (job.takes_any_key() && job.ds_config.contains("sequence_parallel_size")) return;
  const Dimension& totals = dimension_of(product, Kind::train_batch_size);
  const Dimension& micros = dimension_of(product, Kind::micro_batch);
  const Dimension& steps = dimension_of(product, Kind::accumulation_steps);
  // Nobody wrote the other sizes that are searched.
  std::optional<std::int64_t> lowest;
  if (const auto key = job.ds_config.find(micros.pointer.substr(1));
      key != job.ds_config.end() && key->is_number_integer())
    lowest = key->get<std::int64_t>();
  std::string first, advice, limit, why;
  bool has_others = false;
  std::int64_t limited = 0;
  WrittenBatch written;
  for (const auto& shape : job.shapes) {
    for (std::size_t total = 0; total < totals.candidates.size(); ++total) {
      for (std::size_t micro = 0; micro < micros.candidates.size(); ++micro) {
        for (std::size_t step = 0; step < steps.candidates.size(); ++step) {
          written = {size_of(totals, total), size_of(micros, micro), size_of(steps, step),
                     shape.size()};
          if (const auto triple = resolve_batch(written.train_batch_size, written.micro_batch,
                                                written.accumulation_steps, shape.size(), why)) {
            limit = batch_limit_reason(job.tuning, triple->train_batch_size);
            if (limit.empty()) return;
            limited = triple->train_batch_size;
            continue;
          }
          if (product.is_micro_batch_searched) written.micro_batch = lowest;
          const std::string wrong = contradiction_of(written);
          if (wrong.empty()) continue;
          has_others = has_others || (!first.empty() && wrong != first);
          if (first.empty()) advice = batch_advice(written);
          if (first.empty()) first = wrong;
        }
      }
    }
  }
  std::string pointer = "/train_batch_size";
  std::string message = (has_others ? "no combination of the sizes does: " : "") + first + advice;
  if (!limit.empty()) {
    const auto& most = job.tuning.max_train_batch_size;
    pointer = most && limited > *most ? "/autotuning/max_train_batch_size"
                                      : "/autotuning/min_train_batch_size";
    message = fmt::format("leaves no member ({}): change one of the two", limit);
  } else if (!written.train_batch_size) {
    message = why;
  } else if (first.empty()) {
    message = fmt::format(
        "{} on {} ranks is no multiple of a micro-batch from {} to {}, the limits of the search: "
        "change them, or write another size",
        *written.train_batch_size, *written.ranks, *size_of(micros, 0),
        *size_of(micros, micros.candidates.size() - 1));
  } else if (job.keeps_global_batch) {
    pointer = "/dstune/global_batch";
    message = fmt::format(
        "keeps the training command's batch, and {}: leave it out, or change the command's sizes",
        first);
  }
  problems.add({job.document->file(), pointer, job.document->line(pointer), std::move(message)});
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

namespace {

/// Samples of one step of all ranks, as far as they are written; nothing where 64 bits do not hold
/// them.
std::optional<std::int64_t> samples_of(const WrittenBatch& written) {
  try {
    return checked_product("train_batch_size", written.micro_batch.value_or(1),
                           written.accumulation_steps.value_or(1), written.ranks.value_or(1));
  } catch (const OverflowError&) {
    return std::nullopt;
  }
}

bool is_all_written(const WrittenBatch& written) {
  return written.micro_batch && written.accumulation_steps && written.ranks;
}

/// "train_micro_batch_size_per_gpu 2 x 7 ranks"
std::string factors_text(const WrittenBatch& written) {
  std::vector<std::string> factors;
  const auto add = [&](std::string_view key, std::optional<std::int64_t> size) {
    if (size) factors.push_back(fmt::format("{} {}", key, *size));
  };
  add("train_micro_batch_size_per_gpu", written.micro_batch);
  add("gradient_accumulation_steps", written.accumulation_steps);
  if (written.ranks) factors.push_back(format_count(*written.ranks, "rank"));
  return fmt::format("{}", fmt::join(factors, " x "));
}

/// The number nearest to `ranks` that divides `shares`.
std::int64_t nearest_divisor(std::int64_t shares, std::int64_t ranks) {
  for (std::int64_t distance = 0;; ++distance)
    for (const std::int64_t number : {ranks - distance, ranks + distance})
      if (number > 0 && shares % number == 0) return number;
}

}  // namespace

std::string contradiction_of(const WrittenBatch& written) {
  if (!written.train_batch_size) return "";
  const std::int64_t total = *written.train_batch_size;
  const auto samples = samples_of(written);
  const bool is_all = is_all_written(written);
  if (samples && *samples < 1) return "";  // wrong by themselves
  if (samples && (is_all ? total == *samples : total % *samples == 0)) return "";
  return fmt::format("{} is {} {}", total, is_all ? "not" : "no multiple of",
                     factors_text(written));
}

std::string batch_advice(const WrittenBatch& written) {
  const std::int64_t total = *written.train_batch_size;
  const auto samples = samples_of(written);
  if (!samples) return "";
  const std::int64_t below = total / *samples * *samples;
  const std::int64_t of_rank = *samples / written.ranks.value_or(1);
  std::string advice = ": write ";
  if (is_all_written(written))
    advice += fmt::format("{}", *samples);
  else
    advice += (below > 0 ? fmt::format("{} or ", below) : "") + fmt::format("{}", below + *samples);
  if (!written.ranks || total % of_rank != 0) return advice;
  const std::int64_t shares = total / of_rank;
  return advice + ", or train on " +
         format_count(is_all_written(written) ? shares : nearest_divisor(shares, *written.ranks),
                      "rank");
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
  const WrittenBatch written{total, micro, steps, group_size};
  if (const std::string wrong = contradiction_of(written); !wrong.empty()) {
    why = "train_batch_size " + wrong;
    return std::nullopt;
  }
  if (!total) {
    if (!steps) steps = 1;
    total = samples_of(written);
    if (!total) {
      why = factors_text(written) + " is more than 64 bits hold";
      return std::nullopt;
    }
  }
  // An absent size follows, as in DeepSpeed.
  if (!micro && !steps) steps = 1;
  if (!micro) micro = *total / group_size / *steps;
  if (!steps) steps = *total / *micro / group_size;
  return BatchTriple{*total, *micro, *steps};
}

}  // namespace dstune
