#include <algorithm>
#include <chrono>
#include <concepts>
#include <optional>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/archive.hpp"
#include "dstune/report/journal.hpp"
#include "journal/records.hpp"

namespace dstune {

namespace {

using event::Time;

// The events. add(): what they have behind their kind, time, key and name, in this order.

struct JobStarted {
  static constexpr std::string_view kind = "job_started";
  Time time;
  std::string search_key{};  ///< one of those that the job brings
  std::string metric{};      ///< of the job; earlier releases did not write it
  double elapsed_s = 0;      ///< of the job, before
  int num_ranks = 0;
  static void add(auto& archive, auto& event) {
    archive("search_key", event.search_key, {.nothing = json::Nothing::omitted});
    archive("metric", event.metric, {.nothing = json::Nothing::omitted});
    archive("elapsed_s", event.elapsed_s, {.nothing = json::Nothing::omitted});
    archive("num_ranks", event.num_ranks, {.nothing = json::Nothing::omitted});
  }
};

struct Started {
  static constexpr std::string_view kind = "started";
  Time time;
  std::string key, name;
  int attempt = 1;
  std::vector<int> world_ranks;
  static void add(auto& archive, auto& event) {
    archive("attempt", event.attempt);
    archive("world_ranks", event.world_ranks);
  }
};

struct Finished {
  static constexpr std::string_view kind = "finished";
  std::string key;
  Record record;
  static void add(auto& archive, auto& event) { members(archive, event.record); }
};

struct Verified {
  static constexpr std::string_view kind = "verified";
  Time time;
  std::string key, name, path;
  Measurement measurement;
  static void add(auto& archive, auto& event) {
    archive("path", event.path);
    archive("measurement", event.measurement, {.missing = "\"measurement\" is missing"});
  }
};

struct Lost {
  static constexpr std::string_view kind = "lost";
  Time time;
  std::string key, name;
  std::vector<int> lost_ranks;
  static void add(auto& archive, auto& event) { archive("lost_ranks", event.lost_ranks); }
};

struct RepeatStarted {
  static constexpr std::string_view kind = "repeat_started";
  Time time;
  std::string key, name;
  RepeatKind purpose = RepeatKind::final_round;
  int round = 1;
  std::vector<int> world_ranks;
  static void add(auto& archive, auto& event) {
    archive("purpose", event.purpose);
    archive("round", event.round);
    archive("world_ranks", event.world_ranks);
  }
};

struct Repeated {
  static constexpr std::string_view kind = "repeated";
  std::string key, name;
  Repeat repeat;
  static void add(auto& archive, auto& event) { members(archive, event.repeat); }
};

struct Profile {
  static constexpr std::string_view kind = "profile";
  std::string key;
  json::Value profile;
  static void add(auto& archive, auto& event) {
    archive("profile", event.profile, {.missing = "the event has no \"profile\""});
  }
};

struct Target {
  static constexpr std::string_view kind = "target";
  std::string key;
  json::Value constants;
  static void add(auto& archive, auto& event) {
    archive("constants", event.constants, {.missing = "the event has no \"constants\""});
  }
};

/// Earlier releases wrote it where one search followed another in a job.
struct SearchFinished {
  static constexpr std::string_view kind = "search_finished";
  Time time;
  std::string search_key;
  static void add(auto& archive, auto& event) { archive("search_key", event.search_key); }
};

struct JobFinished {
  static constexpr std::string_view kind = "job_finished";
  Time time;
  int exit_code = -1;
  std::string reason;
  static void add(auto& archive, auto& event) {
    archive("exit_code", event.exit_code);
    archive("reason", event.reason);
  }
};

template <class Body>
concept IsEvent = std::convertible_to<decltype(Body::kind), std::string_view>;

/// An event as a line has it.
template <class Archive, IsEvent Body>
void members(Archive& archive, Body& event) {
  archive.rules(json::lenient);
  archive.constant("kind", event.kind, "");
  if constexpr (requires { event.time; }) archive("time", event.time);
  if constexpr (requires { event.key; })
    archive("key", event.key, {.missing = "the event has no \"key\""});
  if constexpr (requires { event.name; }) archive("name", event.name);
  event.add(archive, event);
}

}  // namespace

namespace event {

json::Value job_started(const json::Value& job, Time time) {
  require(job.is_object(), "a job's start is an object");
  json::Value value = json::write(JobStarted{.time = time});
  value.update(job);
  return value;
}

json::Value started(const std::string& key, const std::string& name, int attempt,
                    const std::vector<int>& world_ranks, Time time) {
  return json::write(Started{time, key, name, attempt, world_ranks});
}

json::Value finished(const std::string& key, const Record& record) {
  return json::write(Finished{key, record});
}

json::Value verified(const std::string& key, const std::string& name, const std::string& path,
                     const Measurement& measurement, Time time) {
  return json::write(Verified{time, key, name, path, measurement});
}

json::Value lost(const std::string& key, const std::string& name,
                 const std::vector<int>& lost_ranks, Time time) {
  return json::write(Lost{time, key, name, lost_ranks});
}

json::Value repeat_started(const std::string& key, const std::string& name, RepeatKind kind,
                           int round, const std::vector<int>& world_ranks, Time time) {
  return json::write(RepeatStarted{time, key, name, kind, round, world_ranks});
}

json::Value repeated(const std::string& key, const std::string& name, const Repeat& repeat) {
  return json::write(Repeated{key, name, repeat});
}

json::Value profile(const std::string& key, const json::Value& profile) {
  return json::write(Profile{key, profile});
}

json::Value target(const std::string& key, const json::Value& constants) {
  return json::write(Target{key, constants});
}

json::Value job_finished(int exit_code, const std::string& reason, Time time) {
  return json::write(JobFinished{time, exit_code, reason});
}

}  // namespace event

namespace {

/// Follows the events; what is still running when the next job starts died with its own.
class Reading {
 public:
  void take(const json::Node& node, json::Problems& problems) {
    const auto kind_node = node.find("kind");
    if (!kind_node) {
      problems.add(node.problem("the event has no \"kind\""));
      return;
    }
    const auto kind = kind_node->string(problems);
    // Members that will not run: one for each in journals of earlier releases.
    if (!kind || *kind == not_planned_kind || *kind == "planned") return;
    if (*kind == base_kind) {
      history_.base = node.value();
      return;
    }
    if (*kind == Finished::kind && is_difference(node.value())) {
      take_difference(node, problems);
      return;
    }
    const bool is_known =
        is<JobStarted>(*kind, node, problems) || is<Started>(*kind, node, problems) ||
        is<Finished>(*kind, node, problems) || is<Lost>(*kind, node, problems) ||
        is<Profile>(*kind, node, problems) || is<Target>(*kind, node, problems) ||
        is<Verified>(*kind, node, problems) || is<RepeatStarted>(*kind, node, problems) ||
        is<Repeated>(*kind, node, problems) || is<SearchFinished>(*kind, node, problems) ||
        is<JobFinished>(*kind, node, problems);
    if (!is_known) {
      problems.add(kind_node->problem(
          fmt::format("the event \"{}\" is not known to this release: use the release that wrote "
                      "it, or start over with --overwrite or another --results-dir",
                      *kind)));
    }
  }

  History take_history() {
    count_running_deaths();
    end_job();
    return std::move(history_);
  }

 private:
  void take_difference(const json::Node& node, json::Problems& problems) {
    const std::optional<json::Value> whole = whole_record(node.value(), history_.base);
    if (whole) {
      is<Finished>(Finished::kind, json::Node(node.document(), *whole, ""), problems);
    } else {
      problems.add(node.problem("its changes do not fit the \"base\" before it"));
    }
  }

  /// Takes the event where it is of this kind.
  template <class Body>
  bool is(std::string_view kind, const json::Node& node, json::Problems& problems) {
    if (kind != Body::kind) return false;
    Body event;
    json::read(node, event, problems);
    if (!problems.empty()) return true;
    note_time(event);
    take(std::move(event));
    return true;
  }

  /// When the job wrote this, as far as the event says.
  template <class Body>
  void note_time(const Body& event) {
    if constexpr (requires { event.time; }) {
      at_ = event.time;
    } else if constexpr (requires { event.record.finished_at; }) {
      at_ = std::max(at_, event.record.finished_at);
    } else if constexpr (requires { event.repeat.finished_at; }) {
      at_ = std::max(at_, event.repeat.finished_at);
    }
    if (job_ && at_ > job_->last && !std::is_same_v<Body, JobStarted>) job_->last = at_;
  }

  /// Adds up what the job before took.
  void end_job() {
    // A job without the time of its start tells nothing.
    if (!job_ || job_->began == Time{}) return;
    const double spent_s =
        job_->elapsed_s + std::chrono::duration<double>(job_->last - job_->began).count();
    history_.spent_s += spent_s;
    history_.spent_rank_s += spent_s * job_->num_ranks;
    job_.reset();
  }

  void take(JobStarted event) {
    count_running_deaths();
    end_job();
    job_ = Job{event.time, event.time, event.elapsed_s, event.num_ranks};
    measured_for_ = {std::move(event.search_key), std::move(event.metric)};
    lost_in_job_.clear();
    ++history_.num_jobs;
  }
  /// The job stopped its running experiments on purpose, which is no death.
  void take(const JobFinished& event) {
    forget_running();
    if (event.exit_code == 0 && !measured_for_.search_key.empty())
      history_.complete_searches.insert(measured_for_.search_key);
  }
  void take(SearchFinished event) {
    history_.complete_searches.insert(std::move(event.search_key));
  }
  void take(const Started& event) { running_.insert(event.key); }
  void take(Finished event) {
    running_.erase(event.key);
    history_.deaths.erase(event.key);
    history_.died_alone.erase(event.key);
    history_.seen_to_die.erase(event.key);
    lost_in_job_.erase(event.key);
    history_.measured_for[event.key] = measured_for_;
    history_.finished[event.key] = std::move(event.record);
  }
  void take(const Lost& event) {
    running_.erase(event.key);
    history_.seen_to_die.insert(event.key);
    count_death(event.key, true);
  }
  /// A control is short, of a member that ran well: it is not blamed where a job dies.
  void take(const RepeatStarted& event) {
    (event.purpose == RepeatKind::control ? controlling_ : repeating_).insert(event.key);
  }
  void take(Repeated event) {
    (event.repeat.kind == RepeatKind::control ? controlling_ : repeating_).erase(event.key);
    history_.metrics_of_repeats[event.key].push_back(measured_for_.metric);
    history_.repeats[event.key].push_back(std::move(event.repeat));
  }
  void take(Profile event) {
    history_.profile_key = std::move(event.key);
    history_.profile = std::move(event.profile);
  }
  void take(Target event) {
    history_.target_key = std::move(event.key);
    history_.target = std::move(event.constants);
  }
  void take(Verified event) { history_.verified[event.key] = std::move(event.measurement); }

  void forget_running() {
    running_.clear();
    repeating_.clear();
    controlling_.clear();
  }

  void count_running_deaths() {
    const bool is_alone = running_.size() + repeating_.size() + controlling_.size() == 1;
    for (const std::string& key : running_) count_death(key, is_alone);
    history_.interrupted_repeats.insert(repeating_.begin(), repeating_.end());
    for (const std::string& key : repeating_)
      if (is_alone) ++history_.repeat_deaths[key];
    forget_running();
  }

  /// Deaths are counted in jobs: one that was tried again after a loss, when the job died of that
  /// very loss, died once.
  void count_death(const std::string& key, bool is_alone) {
    if (lost_in_job_.insert(key).second) ++history_.deaths[key];
    if (is_alone)
      history_.died_alone.insert(key);
    else
      history_.died_alone.erase(key);
  }

  struct Job {
    Time began, last;  ///< last: of what it wrote
    double elapsed_s = 0;
    int num_ranks = 0;
  };

  History history_;
  std::optional<Job> job_;
  Time at_{};
  MeasuredFor measured_for_;  ///< of the job
  std::set<std::string> running_;
  std::set<std::string> repeating_, controlling_;
  std::set<std::string> lost_in_job_;
};

}  // namespace

History understand(const JournalContent& content, const std::string& path) {
  // Gives the nodes below their file's name; the events are elsewhere.
  const json::Document document = json::Document::of({}, path);
  Reading reading;
  for (const JournalContent::Event& event : content.events) {
    json::Problems found;
    try {
      reading.take(json::Node(document, event.value, ""), found);
      found.check();
    } catch (const InputError& error) {
      std::vector<Problem> problems = error.problems();
      for (Problem& problem : problems) problem.line = event.line;
      throw InputError(std::move(problems));
    }
  }
  return reading.take_history();
}

std::size_t forget_failed(History& history, const std::vector<std::string>& keys) {
  const auto has_failed = [](const Measurement& measurement) {
    return measurement.status == Status::failed || measurement.status == Status::timed_out;
  };
  std::size_t count = 0;
  for (const std::string& key : keys) {
    const auto known = history.finished.find(key);
    const auto died = history.deaths.find(key);
    if (known != history.finished.end() && has_failed(known->second.measurement)) {
      history.retried[key] = known->second.attempt;
      history.finished.erase(known);
    } else if (died != history.deaths.end() && history.died_alone.contains(key)) {
      history.retried[key] = died->second;
    } else {
      continue;
    }
    history.deaths.erase(key);
    history.died_alone.erase(key);
    history.seen_to_die.erase(key);
    ++count;
  }
  return count;
}

std::size_t forget_other_races(History& history, const std::vector<std::string>& keys,
                               std::string_view metric) {
  std::size_t count = 0;
  for (const std::string& key : keys) {
    const auto repeats = history.repeats.find(key);
    const auto made_for = history.metrics_of_repeats.find(key);
    if (repeats != history.repeats.end() && made_for != history.metrics_of_repeats.end()) {
      const std::vector<std::string>& metrics = made_for->second;
      for (std::size_t each = 0; each < metrics.size(); ++each)
        if (!metrics[each].empty() && metrics[each] != metric &&
            repeats->second[each].kind == RepeatKind::final_round)
          repeats->second[each].kind = RepeatKind::spread;
    }
    const auto known = history.finished.find(key);
    if (known == history.finished.end() || known->second.measurement.status != Status::raced_out)
      continue;
    const auto found = history.measured_for.find(key);
    if (found == history.measured_for.end() || found->second.metric.empty() ||
        found->second.metric == metric)
      continue;
    history.finished.erase(known);
    ++count;
  }
  return count;
}

}  // namespace dstune
