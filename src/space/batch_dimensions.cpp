#include "batch_dimensions.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace dstune {

namespace {

using Kind = Dimension::Kind;

constexpr const char* micro_batch_key = "train_micro_batch_size_per_gpu";

bool is_derived(const std::optional<json::Node>& node) {
  return !node || node->is_null() || node->value() == "auto";
}

void add_candidate(Dimension& dimension, json::Value value, const std::string& origin) {
  dimension.candidates.push_back(std::move(value));
  dimension.origins.push_back(origin);
}

void add_size(Dimension& dimension, const json::Node& node, json::Problems& problems) {
  if (dimension.kind != Kind::micro_batch && is_derived(node)) {
    add_candidate(dimension, nullptr, node.pointer());
  } else if (const auto size = node.integer(problems, 1, largest_batch_size)) {
    add_candidate(dimension, *size, node.pointer());
  }
}

template <class ProductOrConst>
auto& dimension_of(ProductOrConst& product, Kind kind) {
  return *std::find_if(product.dimensions.begin(), product.dimensions.end(),
                       [&](const Dimension& dimension) { return dimension.kind == kind; });
}

}  // namespace

bool is_batch_key(const std::string& key) {
  return key == "train_batch_size" || key == micro_batch_key ||
         key == "gradient_accumulation_steps";
}

std::optional<std::int64_t> batch_size_of(const json::Value& candidate) {
  if (candidate.is_null()) return std::nullopt;
  return candidate.get<std::int64_t>();
}

Dimension batch_dimension(const std::string& key, const std::optional<json::Node>& node,
                          const TuningOptions& tuning, json::Problems& problems) {
  Dimension dimension;
  dimension.pointer = "/" + key;
  dimension.kind = key == micro_batch_key      ? Kind::micro_batch
                   : key == "train_batch_size" ? Kind::train_batch_size
                                               : Kind::accumulation_steps;
  const bool is_micro = dimension.kind == Kind::micro_batch;
  if (is_micro && !(node && node->is_array())) {
    const auto lowest = is_derived(node)
                            ? tuning.min_train_micro_batch_size_per_gpu
                            : node->integer(problems, 1, largest_batch_size).value_or(1);
    add_candidate(dimension, lowest, dimension.pointer);
  } else if (is_derived(node)) {
    add_candidate(dimension, nullptr, dimension.pointer);
  } else if (node->is_array()) {
    if (node->value().empty())
      problems.add(node->problem(
          "an empty list leaves nothing to try: name at least one size, or remove the key"));
    for (const auto& element : node->elements()) add_size(dimension, element, problems);
  } else {
    add_size(dimension, *node, problems);
  }
  // A size that could not be read is complained about; the rest is checked beside it.
  if (dimension.candidates.empty())
    add_candidate(dimension, is_micro ? json::Value(1) : json::Value(), dimension.pointer);
  return dimension;
}

void fill_searched_micro_batches(const JobSpec& job, Product& product, json::Problems& problems) {
  auto& dimension = dimension_of(product, Kind::micro_batch);
  const auto lowest = dimension.candidates.front().get<std::int64_t>();
  const auto& tuning = job.tuning;
  if (lowest > tuning.max_train_micro_batch_size_per_gpu) {
    problems.add({job.document->file(), dimension.pointer, job.document->line(dimension.pointer),
                  fmt::format("the search starts at {}, above "
                              "max_train_micro_batch_size_per_gpu {}: raise that",
                              lowest, tuning.max_train_micro_batch_size_per_gpu)});
    return;
  }
  auto highest = std::min(tuning.max_train_micro_batch_size_per_gpu, largest_batch_size);
  if (tuning.max_train_batch_size) {
    std::int64_t fewest = largest_batch_size;
    for (const auto& steps : dimension_of(product, Kind::accumulation_steps).candidates)
      fewest = std::min(fewest, batch_size_of(steps).value_or(1));
    int smallest_group = job.shapes.empty() ? 1 : job.shapes.front().size();
    for (const auto& shape : job.shapes) smallest_group = std::min(smallest_group, shape.size());
    highest = std::min(highest, *tuning.max_train_batch_size / (fewest * smallest_group));
  }
  // One by one up to 16, then by a sixteenth to an eighth: eight sizes until they have doubled.
  auto step = std::int64_t{1};
  for (auto size = lowest; size < highest;) {
    while (16 * step <= size) step *= 2;
    size = std::min(highest, size + step);
    add_candidate(dimension, size, dimension.origins.front());
  }
}

void check_batches(const JobSpec& job, const Product& product, json::Problems& problems) {
  const auto& totals = dimension_of(product, Kind::train_batch_size).candidates;
  std::string why;
  for (const auto& shape : job.shapes) {
    for (const auto& total : totals) {
      for (const auto& micro : dimension_of(product, Kind::micro_batch).candidates) {
        for (const auto& steps : dimension_of(product, Kind::accumulation_steps).candidates) {
          const auto triple = resolve_batch(batch_size_of(total), batch_size_of(micro),
                                            batch_size_of(steps), shape.size(), why);
          if (triple) why = batch_limit_reason(job.tuning, triple->train_batch_size);
          if (triple && why.empty()) return;
        }
      }
    }
  }
  const std::string pointer =
      totals.front().is_null() ? "/autotuning/max_train_batch_size" : "/train_batch_size";
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

}  // namespace dstune
