#include "prediction_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "row.hpp"
#include "table.hpp"

namespace dstune {

namespace {

/// The last ones are listed: what was learned on the way shows in them.
constexpr std::size_t most_records_listed = 50;

double measured_throughput(const Record& record) {
  return value_in(record, Metric::throughput)->value;
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t one, std::size_t other) { return values[one] < values[other]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double shared = static_cast<double>(first + end - 1) / 2;
    for (; first < end; ++first) ranks[order[first]] = shared;
  }
  return ranks;
}

}  // namespace

std::optional<double> prediction_error(const Record& record) {
  const auto measured = value_in(record, Metric::throughput);
  if (!measured || !record.predicted.throughput) return std::nullopt;
  return *record.predicted.throughput / measured->value - 1;
}

std::optional<double> rank_correlation(const std::vector<double>& one,
                                       const std::vector<double>& other) {
  if (one.size() < 2) return std::nullopt;
  const std::vector<double> x = ranks_of(one);
  const std::vector<double> y = ranks_of(other);
  const double mean = static_cast<double>(one.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

std::string prediction_text(const Report& report) {
  std::vector<const Record*> records;
  for (const Row& row : report.rows) {
    if (row.record && prediction_error(*row.record)) records.push_back(&*row.record);
  }
  if (records.empty()) return "";
  std::stable_sort(records.begin(), records.end(), [](const Record* one, const Record* other) {
    return one->finished_at < other->finished_at;
  });
  std::vector<Column> columns = {{"experiment", ColumnType::text, {}},
                                 {"predicted samples/s", ColumnType::number, {}},
                                 {"measured", ColumnType::number, {}},
                                 {"error, %", ColumnType::number, {}},
                                 {"mean error so far, %", ColumnType::number, {}}};
  std::vector<double> predicted, measured;
  double sum_of_errors = 0;
  const std::size_t first_listed = records.size() - std::min(records.size(), most_records_listed);
  for (const Record* record : records) {
    const double error = *prediction_error(*record);
    sum_of_errors += std::abs(error);
    predicted.push_back(*record->predicted.throughput);
    measured.push_back(measured_throughput(*record));
    if (predicted.size() <= first_listed) continue;
    columns[0].cells.push_back(record->experiment.name);
    columns[1].cells.push_back(fmt::format("{:.4g}", predicted.back()));
    columns[2].cells.push_back(fmt::format("{:.4g}", measured.back()));
    columns[3].cells.push_back(fmt::format("{:+.1f}", 100 * error));
    columns[4].cells.push_back(
        fmt::format("{:.1f}", 100 * sum_of_errors / static_cast<double>(predicted.size())));
  }
  std::string text = "\nPredicted before each ran, in the order in which they ended";
  if (first_listed > 0)
    text += fmt::format(" (the last {} of {})", most_records_listed, records.size());
  text += ":\n" + pipe_table(columns);
  const double mean_error = 100 * sum_of_errors / static_cast<double>(records.size());
  text += fmt::format("Predicted throughput: mean error {:.1f} % over {} experiment{}", mean_error,
                      records.size(), records.size() == 1 ? "" : "s");
  if (const auto correlation = rank_correlation(predicted, measured))
    text += fmt::format(", rank correlation {:.3f}", *correlation);
  return text + ".\n";
}

}  // namespace dstune
