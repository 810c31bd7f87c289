#include "dstune/report/history.hpp"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "journal/record_json.hpp"

namespace dstune {

namespace event {

json::Value job_started(const json::Value& job, std::chrono::system_clock::time_point time) {
  require(job.is_object(), "what a job started with is an object");
  json::Value value = {{"kind", "job_started"}, {"time", format_time(time)}};
  value.update(job);
  return value;
}

json::Value planned(const PlannedExperiment& planned) {
  const Experiment& experiment = planned.experiment;
  return {{"kind", "planned"},
          {"name", experiment.name},
          {"status", to_text(planned.status)},
          {"reason", planned.reason},
          {"num_gpus", experiment.shape.num_gpus},
          {"num_nodes", experiment.shape.num_nodes},
          {"recompute", to_text(experiment.config.recompute)},
          {"predicted", to_json(planned.predicted)},
          {"ds_config", experiment.ds_config}};
}

json::Value started(const std::string& key, const std::string& name, int attempt,
                    const std::vector<int>& world_ranks,
                    std::chrono::system_clock::time_point time) {
  return {{"kind", "started"}, {"time", format_time(time)}, {"key", key},
          {"name", name},      {"attempt", attempt},        {"world_ranks", world_ranks}};
}

json::Value finished(const std::string& key, const Record& record) {
  json::Value value = {{"kind", "finished"}, {"key", key}};
  value.update(to_json(record));
  return value;
}

json::Value verified(const std::string& key, const std::string& name, const std::string& path,
                     const Measurement& measurement, std::chrono::system_clock::time_point time) {
  return {{"kind", "verified"}, {"time", format_time(time)},          {"key", key}, {"name", name},
          {"path", path},       {"measurement", to_json(measurement)}};
}

json::Value lost(const std::string& key, const std::string& name,
                 const std::vector<int>& lost_ranks, std::chrono::system_clock::time_point time) {
  return {{"kind", "lost"},
          {"time", format_time(time)},
          {"key", key},
          {"name", name},
          {"lost_ranks", lost_ranks}};
}

json::Value repeat_started(const std::string& key, const std::string& name, RepeatKind kind,
                           int round, const std::vector<int>& world_ranks,
                           std::chrono::system_clock::time_point time) {
  return {{"kind", "repeat_started"},
          {"time", format_time(time)},
          {"key", key},
          {"name", name},
          {"purpose", to_text(kind)},
          {"round", round},
          {"world_ranks", world_ranks}};
}

json::Value repeated(const std::string& key, const std::string& name, const Repeat& repeat) {
  json::Value value = {{"kind", "repeated"}, {"key", key}, {"name", name}};
  value.update(to_json(repeat));
  return value;
}

json::Value profile(const std::string& key, const json::Value& profile) {
  return {{"kind", "profile"}, {"key", key}, {"profile", profile}};
}

json::Value job_finished(int exit_code, const std::string& reason,
                         std::chrono::system_clock::time_point time) {
  return {{"kind", "job_finished"},
          {"time", format_time(time)},
          {"exit_code", exit_code},
          {"reason", reason}};
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
    if (!kind) return;
    if (*kind == "job_started")
      start_job(node, problems);
    else if (*kind == "started")
      start(node, problems);
    else if (*kind == "finished")
      finish(node, problems);
    else if (*kind == "lost")
      lose(node, problems);
    else if (*kind == "profile")
      remember_profile(node, problems);
    else if (*kind == "verified")
      verify(node, problems);
    else if (*kind == "repeat_started")
      start_repeat(node, problems);
    else if (*kind == "repeated")
      repeat(node, problems);
    else if (*kind == "job_finished")
      finish_job(node, problems);
    else if (*kind != "planned")
      problems.add(kind_node->problem(
          fmt::format("the event \"{}\" is not known to this release: use the release that wrote "
                      "it, or start over with --overwrite or another --results-dir",
                      *kind)));
  }

  History take_history() {
    bury();
    return std::move(history_);
  }

 private:
  void start_job(const json::Node& node, json::Problems& problems) {
    search_key_.clear();
    if (const auto key = node.find("search_key")) search_key_ = key->string(problems).value_or("");
    bury();
    lost_in_job_.clear();
    ++history_.num_jobs;
  }

  /// What is running was stopped on purpose, which is no death.
  void finish_job(const json::Node& node, json::Problems& problems) {
    forget_running();
    const auto code = node.find("exit_code");
    if (code && code->integer(problems) == 0 && !search_key_.empty())
      history_.complete_searches.insert(search_key_);
  }

  void start(const json::Node& node, json::Problems& problems) {
    if (const auto key = read_key(node, problems)) running_.insert(*key);
  }

  void finish(const json::Node& node, json::Problems& problems) {
    const auto key = read_key(node, problems);
    Record record = record_from_json(node, problems);
    if (!key) return;
    running_.erase(*key);
    history_.deaths.erase(*key);
    lost_in_job_.erase(*key);
    history_.finished[*key] = std::move(record);
  }

  void lose(const json::Node& node, json::Problems& problems) {
    const auto key = read_key(node, problems);
    if (!key) return;
    running_.erase(*key);
    count_death(*key);
  }

  void start_repeat(const json::Node& node, json::Problems& problems) {
    if (const auto key = read_key(node, problems)) repeating_.insert(*key);
  }

  void repeat(const json::Node& node, json::Problems& problems) {
    const auto key = read_key(node, problems);
    Repeat repeat = repeat_from_json(node, problems);
    if (!key) return;
    repeating_.erase(*key);
    history_.repeats[*key].push_back(std::move(repeat));
  }

  void forget_running() {
    running_.clear();
    repeating_.clear();
  }

  void remember_profile(const json::Node& node, json::Problems& problems) {
    const auto key = read_key(node, problems);
    const auto profile = node.find("profile");
    if (!profile) problems.add(node.problem("the event has no \"profile\""));
    if (!key || !profile) return;
    history_.profile_key = *key;
    history_.profile = profile->value();
  }

  void verify(const json::Node& node, json::Problems& problems) {
    const auto key = read_key(node, problems);
    const auto measurement = node.find("measurement");
    if (!measurement) return problems.add(node.problem("\"measurement\" is missing"));
    if (key) history_.verified[*key] = measurement_from_json(*measurement);
  }

  void bury() {
    for (const std::string& key : running_) count_death(key);
    for (const std::string& key : repeating_) ++history_.repeat_deaths[key];
    forget_running();
  }

  /// Deaths are counted in jobs: one that was tried again after a loss, when the job died of that
  /// very loss, died once.
  void count_death(const std::string& key) {
    if (lost_in_job_.insert(key).second) ++history_.deaths[key];
  }

  static std::optional<std::string> read_key(const json::Node& node, json::Problems& problems) {
    if (const auto key = node.find("key")) return key->string(problems);
    problems.add(node.problem("the event has no \"key\""));
    return std::nullopt;
  }

  History history_;
  std::string search_key_;  ///< of the job
  std::set<std::string> running_;
  std::set<std::string> repeating_;
  std::set<std::string> lost_in_job_;
};

}  // namespace

History understand(const JournalContent& content, const std::string& path) {
  // Gives the nodes below their file's name; the events are elsewhere.
  const json::Document document = json::Document::parse("null", path);
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

}  // namespace dstune
