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

constexpr std::size_t most_offers_listed = 30;

std::int64_t memory_bytes(const Record& record) {
  return record.predicted.target_memory_bytes > 0 ? record.predicted.target_memory_bytes
                                                  : record.measurement.peak_memory.total_bytes;
}

bool beats(const Offer& one, const Offer& other, bool is_less_better) {
  const double gain = is_less_better ? other.value - one.value : one.value - other.value;
  if (gain < 0 || one.num_gpus > other.num_gpus || one.memory_bytes > other.memory_bytes)
    return false;
  return gain > 0 || one.num_gpus < other.num_gpus || one.memory_bytes < other.memory_bytes ||
         one.row < other.row;
}

}  // namespace

std::vector<Offer> offers_of(const Report& report) {
  const bool is_less_better = is_minimised(report.metric);
  std::vector<Offer> offers;
  for (std::size_t index = 0; index < report.rows.size(); ++index) {
    const Row& row = report.rows[index];
    const auto value = ranked_value(report, row);
    if (!value || !std::isfinite(value->value)) continue;
    offers.push_back({index, value->value, row.record->experiment.shape.size(),
                      memory_bytes(*row.record), false});
  }
  for (Offer& offer : offers)
    offer.is_on_front = std::none_of(offers.begin(), offers.end(), [&](const Offer& other) {
      return beats(other, offer, is_less_better);
    });
  std::stable_sort(offers.begin(), offers.end(), [&](const Offer& one, const Offer& other) {
    if (one.num_gpus != other.num_gpus) return one.num_gpus < other.num_gpus;
    return is_less_better ? one.value < other.value : one.value > other.value;
  });
  return offers;
}

std::vector<Offer> front_of(const Report& report) {
  std::vector<Offer> front = offers_of(report);
  std::erase_if(front, [](const Offer& offer) { return !offer.is_on_front; });
  return front;
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
  for (std::size_t place = 0; place < std::min(front.size(), most_offers_listed); ++place) {
    const Offer& offer = front[place];
    const Row& row = report.rows[offer.row];
    const auto efficiency = measured_value(report, row, Metric::throughput_per_gpu);
    columns[0].cells.push_back(std::to_string(offer.num_gpus));
    columns[1].cells.push_back(format_number(offer.value));
    columns[2].cells.push_back(efficiency ? format_number(efficiency->value) : "");
    columns[3].cells.push_back(format_bytes(offer.memory_bytes));
    columns[4].cells.push_back(row.record->experiment.name);
  }
  return "\nNothing that was measured is better in one of these without being worse in another:\n" +
         pipe_table(columns) +
         (front.size() > most_offers_listed
              ? fmt::format("and {} more, in results.csv\n", front.size() - most_offers_listed)
              : "");
}

}  // namespace dstune
