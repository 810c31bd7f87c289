// Jobs in which little or nothing can be searched: each ends with the right code, says why, and
// ends in the same way when it is started again.
#include <array>
#include <cstddef>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

/// The values that a cell of the matrix can have; the first of each is the cheapest one.
struct Dimension {
  std::string name;
  std::vector<std::string> values;
};
enum Place : std::size_t { workload, tuner, ending, ranks, size, start, num_dimensions };
const std::array<Dimension, num_dimensions> dimensions = {{
    {"workload", {"replay", "plugin", "step", "engine"}},
    {"tuner", {"gridsearch", "random", "model_based", "race"}},
    {"ending",
     {"no_group", "pruned", "infeasible", "one", "two", "failed", "out_of_memory", "timed_out",
      "first_failed"}},
    {"ranks", {"1", "2"}},
    {"size", {"listed", "integer", "auto"}},
    {"start", {"resumed", "fresh"}},
}};

/// A value of each dimension.
using Cell = std::array<std::string, num_dimensions>;

/// The plan alone finds that nothing fits, and it plans for our own step only.
bool is_possible(const Cell& cell) {
  return cell[ending] != "infeasible" || cell[workload] == "step";
}

/// Those of which the predicate holds.
template <class Predicate>
std::vector<Cell> cells_where(Predicate is_taken) {
  std::vector<Cell> cells{{}};
  for (std::size_t place = 0; place < num_dimensions; ++place) {
    std::vector<Cell> longer;
    for (const Cell& cell : cells)
      for (const std::string& value : dimensions[place].values) {
        longer.push_back(cell);
        longer.back()[place] = value;
      }
    cells = std::move(longer);
  }
  std::erase_if(cells, [&](const Cell& cell) { return !is_possible(cell) || !is_taken(cell); });
  return cells;
}

std::vector<Cell> all_cells() {
  return cells_where([](const Cell&) { return true; });
}

using Value = std::pair<std::size_t, std::string>;
using Pair = std::pair<Value, Value>;

std::set<Pair> pairs_of(const Cell& cell) {
  std::set<Pair> pairs;
  for (std::size_t one = 0; one < num_dimensions; ++one)
    for (std::size_t other = one + 1; other < num_dimensions; ++other)
      pairs.insert({{one, cell[one]}, {other, cell[other]}});
  return pairs;
}

/// The cells in which most pairs of values meet that did not meet in those before; of equal ones
/// the cheaper, until all pairs have met.
std::vector<Cell> with_most_pairs(const std::vector<Cell>& cells, std::size_t at_most) {
  std::set<Pair> left;
  for (const Cell& cell : cells) left.merge(pairs_of(cell));
  std::vector<Cell> chosen;
  while (!left.empty() && chosen.size() < at_most) {
    const Cell* best = nullptr;
    std::size_t most = 0;
    for (const Cell& cell : cells) {
      std::size_t count = 0;
      for (const Pair& pair : pairs_of(cell)) count += left.count(pair);
      if (count <= most) continue;
      best = &cell;
      most = count;
    }
    for (const Pair& pair : pairs_of(*best)) left.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

std::vector<Cell> cells_with_all_pairs() {
  const auto cells = cells_where([](const Cell& cell) { return cell[workload] != "engine"; });
  return with_most_pairs(cells, cells.size());
}

/// Those of a replay; one that is resumed was fresh before.
std::vector<Cell> cells_of_replay() {
  return cells_where(
      [](const Cell& cell) { return cell[workload] == "replay" && cell[start] == "resumed"; });
}

/// The engine meets each value of each dimension; a job of it takes many seconds.
std::vector<Cell> cells_of_engine() {
  const auto cells = cells_where([](const Cell& cell) { return cell[workload] == "engine"; });
  return with_most_pairs(cells, dimensions[ending].values.size());
}

bool all_fail(const Cell& cell) {
  return cell[ending] == "failed" || cell[ending] == "out_of_memory" || cell[ending] == "timed_out";
}

int expected_code(const Cell& cell) {
  if (cell[ending] == "no_group" || cell[ending] == "pruned") return bad_input;
  return cell[ending] == "infeasible" || all_fail(cell) ? nothing_feasible : done;
}

/// Ends as the cell says; "one" and "two" end well.
constexpr const char* script = R"(import argparse
import time

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--ending", default="")
args = deepspeed.add_config_arguments(parser).parse_args()
deepspeed.init_distributed()
if args.ending == "failed":
    raise ValueError("as it was told")
if args.ending == "out_of_memory":
    raise MemoryError
while args.ending == "timed_out":
    time.sleep(0.01)
model = torch.nn.Linear(8, 8)
data = torch.utils.data.TensorDataset(torch.randn(4096, 8))
engine, _, loader, _ = deepspeed.initialize(
    args=args, model=model, model_parameters=model.parameters(), training_data=data)
is_first = engine.zero_optimization_stage() == 0 and engine.train_micro_batch_size_per_gpu() == 2
if args.ending == "first_failed" and is_first:
    raise ValueError("as it was told")
for x, in loader:
    engine.backward(engine(x).square().mean())
    engine.step()
)";

/// The smallest micro-batch; what the plug-in does wrong it does with that one.
constexpr int smallest = 2;
constexpr int largest = 4;

Json space_of(const Cell& cell) {
  const bool is_one = cell[ending] == "one";
  Json space = transformer_space({cell[ending] == "no_group" ? 64 : 1});
  space["autotuning"]["tuner_type"] = cell[tuner];
  space["zero_optimization"]["stage"] = is_one ? Json(0) : Json{0, 1};
  const bool has_one_size = is_one || (cell[workload] == "plugin" && all_fail(cell));
  if (cell[size] == "listed") {
    space["train_micro_batch_size_per_gpu"] =
        has_one_size ? Json{smallest} : Json{smallest, largest};
  } else {
    Json& tuning = space["autotuning"];
    tuning["max_train_micro_batch_size_per_gpu"] = has_one_size ? smallest : largest;
    // An integer would give way to smaller ones, and the plug-in is right with these.
    tuning["min_train_micro_batch_size_per_gpu"] = smallest;
    space["train_micro_batch_size_per_gpu"] = cell[size] == "auto" ? Json("auto") : Json(smallest);
  }
  if (cell[ending] == "pruned") space["autotuning"]["max_train_batch_size"] = 1;
  if (cell[ending] == "infeasible") space["dstune"]["device_memory"] = "64KiB";
  return space;
}

Json table_of(const Cell& cell) {
  Json table;
  for (const int stage : {0, 1})
    for (int micro_batch = smallest; micro_batch <= largest; ++micro_batch) {
      const bool is_first = stage == 0 && micro_batch == smallest;
      Json& row = table[short_name(stage, micro_batch)];
      if (all_fail(cell) || (cell[ending] == "first_failed" && is_first))
        row = {{"status", all_fail(cell) ? cell[ending] : "failed"}};
      else
        row = {{"step_time_s", 0.1 + 0.01 * micro_batch}, {"peak_memory_bytes", 1000}};
    }
  return table;
}

std::string plugin_action(const Cell& cell) {
  if (cell[ending] == "failed" || cell[ending] == "first_failed") return "fail in build";
  if (cell[ending] == "out_of_memory") return "out of memory in build";
  return cell[ending] == "timed_out" ? "wait for the end" : "nothing";
}

std::string injection(const Cell& cell) {
  const auto on_each_rank = [&](const std::string& fault, const std::string& experiment) {
    std::string text;
    for (const char* const rank : {"0", "1"})
      text.append(text.empty() ? "" : ",")
          .append(fault)
          .append("@")
          .append(rank)
          .append(":")
          .append(experiment);
    return text;
  };
  if (cell[ending] == "failed") return on_each_rank("throw", "*");
  if (cell[ending] == "out_of_memory") return on_each_rank("oom", "*");
  if (cell[ending] == "timed_out") return on_each_rank("hang", "*");
  return cell[ending] == "first_failed" ? on_each_rank("throw", short_name(0, smallest)) : "";
}

class MatrixTest : public testing::TestWithParam<Cell> {
 protected:
  MatrixTest() {
    Json space = space_of(cell_);
    command_ = {.ranks = std::stoi(cell_[ranks]), .args = {"space.json"}};
    if (cell_[workload] == "replay") {
      space["dstune"]["workload"] = {{"type", "replay"}, {"table", "table.json"}};
      job_.write("table.json", table_of(cell_));
    } else if (cell_[workload] == "plugin") {
      space["dstune"]["workload"] = {
          {"type", "plugin"}, {"library", "libmine.so"}, {"do", plugin_action(cell_)}};
      std::filesystem::copy_file(std::string(DSTUNE_TEST_PLUGINS) + "/libtest_plugin_good.so",
                                 job_.folder() / "libmine.so");
    } else if (cell_[workload] == "engine") {
      space["dstune"]["workload"] = {{"type", "deepspeed"}, {"python", engine_python()}};
      space["dstune"]["training_command"] = "deepspeed train.py --ending " + cell_[ending];
      space["optimizer"]["params"]["torch_adam"] = true;
      job_.write_text("train.py", script);
    } else {
      command_.environment["DSTUNE_INJECT"] = injection(cell_);
    }
    if (cell_[ending] == "timed_out")
      command_.args.insert(command_.args.end(),
                           {"--trial-timeout", cell_[workload] == "engine" ? "5s" : "1s"});
    write_transformer(job_, space);
  }

  void run_once() {
    const Ended ended = job_.run(command_);
    const int code = expected_code(cell_);
    EXPECT_EQ(ended.exit_code, code) << ended;
    for (const char* const words : {"internal error", "Signal: ", "terminate called"})
      EXPECT_EQ(count_of(ended.err, words), 0) << ended;
    if (code == bad_input) {
      EXPECT_GT(count_of(ended.err, "space.json"), 0) << "the place is named" << ended;
      EXPECT_FALSE(job_.exists(results + "journal.jsonl"));
      return;
    }
    expect_exit(job_, ended, code);
    expect_reasons(ended);
    EXPECT_EQ(job_.exists(results + "ds_config_optimal.json"), code == done) << ended;
  }

  /// A member that did not end well says why, in the table of all and in the summary.
  void expect_reasons(const Ended& ended) {
    const auto rows = results_table(job_);
    EXPECT_FALSE(rows.empty()) << ended;
    for (const auto& [name, row] : rows) {
      const std::string& status = row.at("status");
      if (all_fail(cell_) || cell_[ending] == "infeasible") {
        EXPECT_NE(status, "ok") << name;
      }
      if (status == "ok" || status == "raced_out") continue;
      EXPECT_FALSE(row.at("reason").empty()) << name << " " << status;
    }
    if (expected_code(cell_) == nothing_feasible) {
      EXPECT_EQ(count_of(job_.read(results + "exit_status.json"), "no member can run"),
                cell_[ending] == "infeasible" ? 1 : 0);
      EXPECT_GT(count_of(ended.out, cell_[ending]), 0) << ended;
      EXPECT_GT(count_of(job_.read(results + "summary.txt"), cell_[ending]), 0) << ended;
    }
    if (all_fail(cell_) && cell_[workload] == "replay") {
      EXPECT_GT(count_of(ended.out, "recorded as " + cell_[ending]), 0) << ended;
    }
  }

  const Cell cell_ = GetParam();
  Command command_;
  Job job_;
};

TEST_P(MatrixTest, EndsRightlyAndSaysWhy) {
  if (cell_[workload] == "engine" && engine_python().empty()) GTEST_SKIP() << no_engine_python;
  run_once();
  if (cell_[start] == "fresh" || expected_code(cell_) == bad_input || HasFailure()) return;
  const auto before = journal(job_);
  run_once();
  const auto after = journal(job_);
  EXPECT_TRUE(names_of(after, "started", before.size()).empty())
      << "a search that is complete repeats nothing";
}

/// "race_infeasible_np1_step_auto_fresh"
std::string name_of(const testing::TestParamInfo<Cell>& info) {
  const Cell& cell = info.param;
  return cell[tuner] + "_" + cell[ending] + "_np" + cell[ranks] + "_" + cell[workload] + "_" +
         cell[size] + "_" + cell[start];
}

INSTANTIATE_TEST_SUITE_P(Pairs, MatrixTest, testing::ValuesIn(cells_with_all_pairs()), name_of);
INSTANTIATE_TEST_SUITE_P(Engine, MatrixTest, testing::ValuesIn(cells_of_engine()), name_of);
INSTANTIATE_TEST_SUITE_P(Replay, MatrixTest, testing::ValuesIn(cells_of_replay()), name_of);
// The full product, by --gtest_filter and --gtest_also_run_disabled_tests.
INSTANTIATE_TEST_SUITE_P(DISABLED_All, MatrixTest, testing::ValuesIn(all_cells()), name_of);

}  // namespace
}  // namespace dstune::e2e
