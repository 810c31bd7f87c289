// How long the page and results.csv of a space take, with 1,000 and with 10,000 members of about 40
// keys, of which a third did not run. Prints processor time, the median of five, and bytes.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <string>

#include "dstune/report/page.hpp"
#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune::bench {
namespace {

constexpr double ms_per_s = 1e3;

double processor_ms() {
  return ms_per_s * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

Experiment member_of(int number) {
  Experiment experiment = test::sample_experiment("member_" + std::to_string(number), number % 4);
  json::Value& config = experiment.ds_config;
  for (int key = 0; key < 32; ++key)
    config["section_" + std::to_string(key / 8)]["some_key_" + std::to_string(key)] = key;
  config["zero_optimization"]["reduce_bucket_size"] = 5e7 * (1 + number % 5);
  config["zero_optimization"]["overlap_comm"] = number / 7 % 2 == 0;
  config["train_micro_batch_size_per_gpu"] = 1 << number % 6;
  config["train_batch_size"] = number;
  return experiment;
}

test::Draft draft_of_many(int count) {
  test::Draft draft;
  for (int number = 0; number < count; ++number) {
    Record record = test::sample_record("", 0.5 + 0.001 * (number % 997));
    record.experiment = member_of(number);
    Row row = test::row_of(record);
    if (number % 3 == 2) {
      row.record.reset();
      row.planned.status = PlanStatus::infeasible;
      row.planned.reason = "needs " + std::to_string(number) + " GiB";
    }
    draft.rows.push_back(std::move(row));
  }
  return draft;
}

/// Returns what `work` returned at last.
template <class Work>
auto timed(const char* name, const Work& work) {
  std::array<double, 5> times_ms{};
  decltype(work()) result{};
  for (double& time_ms : times_ms) {
    const double before_ms = processor_ms();
    result = work();
    time_ms = processor_ms() - before_ms;
  }
  std::ranges::sort(times_ms);
  std::printf("  %-12s %6.1f ms\n", name, times_ms[times_ms.size() / 2]);
  return result;
}

}  // namespace
}  // namespace dstune::bench

int main() {
  using namespace dstune;
  for (const int count : {1000, 10'000}) {
    const test::Concluded concluded(bench::draft_of_many(count));
    std::printf("%d members\n", count);
    const std::string data =
        bench::timed("report.json", [&] { return report_json(concluded, {}, {}).dump(); });
    const std::string page = bench::timed("report.html", [&] { return report_html(data); });
    const std::string table = bench::timed("results.csv", [&] { return results_csv(concluded); });
    bench::timed("its Answer", [&] { return answer_of(concluded.scoreboard); });
    std::printf("  %zu, %zu and %zu bytes\n", data.size(), page.size(), table.size());
  }
}
