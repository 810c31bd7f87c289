#pragma once
/// Tests of lost ranks share this: jobs of six experiments, their end, and what resumes. Local.

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "results.hpp"

namespace dstune::e2e {

using Clock = std::chrono::steady_clock;

constexpr int num_experiments = 6;
/// From the loss of a rank to the end of the others, beside what the search itself takes.
constexpr auto end_limit = std::chrono::seconds(60);

/// The processes of the ranks, once so many have started.
inline std::map<int, pid_t> wait_for_ranks(Process& process, int count) {
  std::map<int, pid_t> ranks;
  wait_until(process, [&] {
    ranks = process.ranks();
    return ranks.size() == static_cast<std::size_t>(count);
  });
  return ranks;
}

/// Fails the test unless all ranks end within the limit from then on.
inline Ended expect_end_in_time(Process& process, const std::map<int, pid_t>& ranks,
                                Clock::time_point lost_at) {
  Ended ended = process.wait();
  const auto are_left = [&] {
    return std::ranges::any_of(ranks, [](const auto& rank) { return is_alive(rank.second); });
  };
  const auto limit = lost_at + end_limit;
  while (are_left() && Clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(ended.is_late || are_left()) << ended;
  EXPECT_LT(Clock::now(), limit) << ended;
  return ended;
}

/// Events of the journal, while the job may still write it.
inline std::vector<Json> events_so_far(const Job& job) {
  std::vector<Json> events;
  if (!job.exists(results + "journal.jsonl")) return events;
  std::string text = job.read(results + "journal.jsonl");
  text.resize(text.rfind('\n') + 1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    events.push_back(Json::parse(line, nullptr, false)["event"]);
  return events;
}

/// The same command, undisturbed: it ends, and starts nothing that `before` has as finished.
inline void expect_resumed(Job& job, const Command& command, const std::vector<Json>& before) {
  const Ended ended = job.run(command);
  expect_exit(job, ended, done);
  const auto finished = names_of(before, "finished");
  const auto all = journal(job);
  ASSERT_GE(all.size(), before.size());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), all.begin())) << "a line is lost";
  for (const std::string& name : names_of(all, "started", before.size()))
    EXPECT_EQ(std::ranges::count(finished, name), 0) << name << " had finished";
  const auto all_finished = names_of(all, "finished");
  EXPECT_EQ(std::set(all_finished.begin(), all_finished.end()).size(), num_experiments);
  EXPECT_EQ(all_finished.size(), num_experiments);
}

}  // namespace dstune::e2e
