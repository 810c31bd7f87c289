#include "results.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;

/// Rows of a CSV text (RFC 4180).
std::vector<std::vector<std::string>> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string cell;
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (is_quoted && letter == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      cell += '"';
      ++i;
    } else if (letter == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && (letter == ',' || letter == '\n')) {
      row.push_back(std::exchange(cell, ""));
      if (letter == '\n') rows.push_back(std::exchange(row, {}));
    } else if (is_quoted || letter != '\r') {
      cell += letter;
    }
  }
  return rows;
}

}  // namespace

std::vector<Json> journal(const Job& job) {
  std::vector<Json> events;
  std::istringstream lines(job.read(results + "journal.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json value = Json::parse(line, nullptr, false);
    if (value.is_discarded() || !value.contains("event")) {
      ADD_FAILURE() << "journal.jsonl:" << events.size() + 1 << " is no event: " << line;
      break;
    }
    events.push_back(value["event"]);
  }
  return events;
}

std::vector<std::string> names_of(const std::vector<Json>& events, const std::string& kind,
                                  std::size_t from) {
  std::vector<std::string> names;
  for (std::size_t i = from; i < events.size(); ++i)
    if (events[i].at("kind") == kind) names.push_back(events[i].at("name"));
  return names;
}

int num_finished_so_far(const Job& job) {
  std::ifstream file(job.folder() / results / "journal.jsonl");
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const Json value = Json::parse(line, nullptr, false);
    if (!value.is_discarded() && value["event"]["kind"] == "finished") ++count;
  }
  return count;
}

std::map<std::string, Json> all_metrics(const Job& job) {
  std::map<std::string, Json> found;
  for (const auto& entry : fs::directory_iterator(job.folder() / results)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    const std::string path = results + name + "/metrics.json";
    if (job.exists(path)) found[name] = job.read_json(path);
  }
  return found;
}

std::map<std::string, std::map<std::string, std::string>> results_table(const Job& job) {
  std::map<std::string, std::map<std::string, std::string>> table;
  const auto rows = rows_of(job.read(results + "results.csv"));
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].size(), rows[0].size());
    std::map<std::string, std::string> cells;
    for (std::size_t j = 0; j < std::min(rows[i].size(), rows[0].size()); ++j)
      cells[rows[0][j]] = rows[i][j];
    table[cells["name"]] = cells;
  }
  return table;
}

std::set<int> ranks_of(const Json& metrics) {
  return metrics.at("group").at("world_ranks").get<std::set<int>>();
}

bool is_overlapping(const Json& metrics, const Json& other) {
  // Times of one format and zone compare as texts.
  return metrics.at("started_at").get<std::string>() < other.at("finished_at") &&
         other.at("started_at").get<std::string>() < metrics.at("finished_at");
}

void expect_no_rank_used_twice(const std::map<std::string, Json>& metrics) {
  for (auto one = metrics.begin(); one != metrics.end(); ++one) {
    EXPECT_LE(one->second.at("started_at").get<std::string>(), one->second.at("finished_at"));
    for (auto other = std::next(one); other != metrics.end(); ++other) {
      if (!is_overlapping(one->second, other->second)) continue;
      for (const int rank : ranks_of(one->second)) {
        EXPECT_FALSE(ranks_of(other->second).contains(rank))
            << "rank " << rank << " is in " << one->first << " and " << other->first << " at once";
      }
    }
  }
}

bool have_different_sizes_overlapped(const std::map<std::string, Json>& metrics) {
  for (const auto& [name, one] : metrics) {
    for (const auto& [other_name, other] : metrics)
      if (ranks_of(one).size() != ranks_of(other).size() && is_overlapping(one, other)) return true;
  }
  return false;
}

void expect_exit(const Job& job, const Ended& ended, int exit_code) {
  EXPECT_EQ(ended.exit_code, exit_code) << ended;
  const Json status = exit_status_of(job);
  ASSERT_TRUE(status.is_object());
  EXPECT_EQ(status["exit_code"], exit_code) << status;
  EXPECT_FALSE(status["reason"].get<std::string>().empty());
  EXPECT_TRUE(status["finished_at"].is_string());
}

Json optimal_of(const Job& job) {
  return job.read_json(results + "optimal.json");
}

Json exit_status_of(const Job& job) {
  return job.read_json(results + "exit_status.json");
}

Json printed(const Ended& ended) {
  Json value = Json::parse(ended.out, nullptr, false);
  std::ostringstream text;
  text << "stdout is no JSON object: " << ended;
  if (!value.is_object()) throw std::runtime_error(text.str());
  return value;
}

std::map<std::string, Json> expect_all_ok(const Job& job, const Ended& ended, std::size_t count) {
  expect_exit(job, ended, done);
  std::map<std::string, Json> metrics = all_metrics(job);
  EXPECT_EQ(metrics.size(), count);
  for (const auto& [name, measured] : metrics)
    EXPECT_EQ(measured["status"], "ok") << name << ": " << measured["reason"];
  return metrics;
}

Ended expect_refused(Job& job, const Command& command, int exit_code,
                     const std::vector<std::string>& parts) {
  const auto before = job.contents_but_the_end();
  Ended ended = job.run(command);
  EXPECT_EQ(ended.exit_code, exit_code) << ended;
  for (const std::string& part : parts)
    EXPECT_EQ(count_of(ended.err, part), 1) << "\"" << part << "\" once in\n" << ended;
  EXPECT_EQ(job.contents_but_the_end(), before) << "it writes nothing but exit_status.json";
  return ended;
}

void expect_same_losses(const Json& metrics, const Json& others) {
  const Json& mine = metrics.at("losses");
  const Json& theirs = others.at("losses");
  ASSERT_FALSE(mine.empty());
  ASSERT_FALSE(theirs.empty());
  for (std::size_t step = 0; step < std::min(mine.size(), theirs.size()); ++step)
    EXPECT_EQ(mine[step], theirs[step]) << "step " << step;
}

Json JobTest::plan(std::vector<std::string> args, int exit_code) {
  args.insert(args.begin(), {"--dry-run", "--format", "json"});
  const Ended ended = run(std::move(args));
  EXPECT_EQ(ended.exit_code, exit_code) << ended;
  return printed(ended);
}

void JobTest::wait_for_finished(Process& process, int count) const {
  wait_until(process, [&] { return num_finished_so_far(job_) >= count; });
}

Process JobTest::start_and_wait(int count) {
  Process process = job_.start(command());
  wait_for_finished(process, count);
  return process;
}

double seconds_between(const std::string& begin, const std::string& end) {
  const auto seconds_of = [](const std::string& time) {
    const std::string clock = time.substr(time.find('T') + 1);
    return 3600 * std::stod(clock.substr(0, 2)) + 60 * std::stod(clock.substr(3, 2)) +
           std::stod(clock.substr(6));
  };
  const double between_s = seconds_of(end) - seconds_of(begin);
  return between_s < 0 ? between_s + 86400 : between_s;
}

}  // namespace dstune::e2e
