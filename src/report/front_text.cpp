#include "front_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "row.hpp"
#include "table.hpp"

namespace dstune {

namespace {

constexpr std::size_t most_listed = 30;

struct Offer {
  std::size_t row = 0;
  double goodness = 0;  ///< larger is better
  int num_gpus = 0;
  std::int64_t memory_bytes = 0;
};

std::int64_t memory_bytes(const Record& record) {
  return record.predicted.target_memory_bytes > 0 ? record.predicted.target_memory_bytes
                                                  : record.measurement.peak_memory.total_bytes;
}

/// One is no worse in anything and better in something, or the earlier of equals.
bool beats(const Offer& one, const Offer& other) {
  if (one.goodness < other.goodness || one.num_gpus > other.num_gpus ||
      one.memory_bytes > other.memory_bytes)
    return false;
  return one.goodness > other.goodness || one.num_gpus < other.num_gpus ||
         one.memory_bytes < other.memory_bytes || one.row < other.row;
}

std::vector<Offer> front_of(const Report& report) {
  std::vector<Offer> offers;
  for (std::size_t index = 0; index < report.rows.size(); ++index) {
    const Row& row = report.rows[index];
    const auto value = ranked_value(report, row);
    if (!value || !std::isfinite(value->value)) continue;
    const double goodness = is_minimised(report.metric) ? -value->value : value->value;
    offers.push_back(
        {index, goodness, row.record->experiment.shape.size(), memory_bytes(*row.record)});
  }
  std::vector<Offer> front;
  for (const Offer& offer : offers) {
    const bool is_beaten = std::any_of(offers.begin(), offers.end(),
                                       [&](const Offer& other) { return beats(other, offer); });
    if (!is_beaten) front.push_back(offer);
  }
  std::stable_sort(front.begin(), front.end(), [](const Offer& one, const Offer& other) {
    if (one.num_gpus != other.num_gpus) return one.num_gpus < other.num_gpus;
    return one.goodness > other.goodness;
  });
  return front;
}

}  // namespace

std::vector<std::size_t> front_rows(const Report& report) {
  std::vector<std::size_t> rows;
  for (const Offer& offer : front_of(report)) rows.push_back(offer.row);
  return rows;
}

std::string front_text(const Report& report) {
  const std::vector<Offer> front = front_of(report);
  if (front.size() < 2) return "";
  const std::string metric =
      fmt::format("{} ({})", to_text(report.metric), unit_text(report.metric));
  std::vector<Column> columns = {{"GPUs", ColumnType::number, {}},
                                 {metric, ColumnType::number, {}},
                                 {"samples/s a GPU", ColumnType::number, {}},
                                 {"memory of a rank", ColumnType::text, {}},
                                 {"experiment", ColumnType::text, {}}};
  for (std::size_t place = 0; place < std::min(front.size(), most_listed); ++place) {
    const Offer& offer = front[place];
    const Row& row = report.rows[offer.row];
    const auto efficiency = measured_value(report, row, Metric::throughput_per_gpu);
    columns[0].cells.push_back(std::to_string(offer.num_gpus));
    columns[1].cells.push_back(format_number(std::abs(offer.goodness)));
    columns[2].cells.push_back(efficiency ? format_number(efficiency->value) : "");
    columns[3].cells.push_back(format_bytes(offer.memory_bytes));
    columns[4].cells.push_back(row.record->experiment.name);
  }
  return "\nNothing that was measured is better in one of these without being worse in another:\n" +
         pipe_table(columns) +
         (front.size() > most_listed
              ? fmt::format("and {} more, in results.csv\n", front.size() - most_listed)
              : "");
}

}  // namespace dstune
