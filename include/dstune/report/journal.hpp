#pragma once
/// The journal: what happened, in order, durable before anything depends on it. One JSON line an
/// event: {"bytes":N,"crc32":"89abcdef","event":{…}}, N and the checksum of the event's own text.
/// Rank 0 is its only writer. The state that earlier runs in the same results folder left is
/// understood from these events. Local.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/piece_hash.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

/// The content of a journal: its events and how many bytes of the file they are.
struct JournalContent {
  struct Event {
    int line;
    json::Value value;
  };
  std::vector<Event> events;
  std::size_t valid_bytes = 0;
};

/// Reads a journal; a missing file is an empty one. A torn tail (a last line without its line end,
/// whole or not) is dropped, any other damage throws InputError with the line. Throws IoError where
/// the file can not be read.
JournalContent read_journal(const std::string& path);
/// Tells whether the line, without its end, is one that a journal has: length and checksum are
/// right.
[[nodiscard]] bool is_journal_line(std::string_view line);

class Journal {
 public:
  /// Opens for appending behind `keep_bytes`. Throws IoError, of a symbolic link, too. `check`, if
  /// any, throws where this job must not write any more; each commit asks it.
  Journal(const std::string& path, std::size_t keep_bytes, std::function<void()> check = {});
  /// Adds an event to the next commit.
  void add(const json::Value& event);
  /// From here on records are added by their difference from this member's. `last_base`: what
  /// those before differ from (History::base).
  void begin_records(const PlannedExperiment& first, const json::Value& last_base);
  /// Adds the end of an experiment; whole, before begin_records().
  void add_finished(const std::string& key, const Record& record);
  /// Writes what was added in one piece and syncs it; does nothing where nothing was. Throws
  /// IoError, and after that for ever: what follows a failed write could not be read back. A file
  /// that was removed, replaced, shortened or extended meanwhile is an error, and stays as it is.
  void commit();
  /// Throws IoError where this job must not write, or the file is another one by now; for whoever
  /// replaces files beside it.
  void check() const;

 private:
  std::string path_;
  AppendFile file_;
  std::function<void()> check_;
  std::string pending_;
  json::Value base_;
  bool has_failed_ = false;
};

/// CRC-32 (ISO-HDLC, polynomial 0xEDB88320).
std::uint32_t crc32(std::string_view bytes);

/// Changes whenever a measured number would mean something else.
inline constexpr int measuring_version = 1;

/// The hash128() (base/hash.hpp) of whatever identifies a result: configuration, group shape,
/// model, sequence length, target, workload, machine fingerprint and measuring version. A record
/// counts only for the same key. Equal values give equal keys: the keys of objects in any order,
/// 5e8 and 500000000, -0.0 and 0.
std::string record_key(const json::Value& identity);
/// The same of a long list, whose elements come one after the other.
class ListKey {
 public:
  explicit ListKey(std::size_t size);
  void add(const json::Value& element);
  /// Once all elements are there.
  [[nodiscard]] std::string text();

 private:
  PieceHash hash_;
};

/// All members that will not run, as one event: how many, why, and the names of the first. It is as
/// large for a million of them as for a thousand.
class MembersLeftOut {
 public:
  /// So many are named.
  static constexpr std::size_t max_named = 1000;

  void add(const PlannedExperiment& member);
  [[nodiscard]] bool empty() const { return groups_.empty(); }
  [[nodiscard]] json::Value event() const;

 private:
  /// They have one status and reason, figures in it aside.
  struct Group {
    std::string first_reason, pruned_because;
    std::size_t count = 0;
    std::vector<std::string> names;
  };
  std::map<std::pair<std::string, std::string>, Group> groups_;  ///< by status and reason
  std::size_t num_named_ = 0;
};

/// The events of the journal: each is an object with its `kind` (docs/fields.md). Times are UTC.
namespace event {
using Time = std::chrono::system_clock::time_point;
inline Time now() {
  return std::chrono::system_clock::now();
}

/// `job`, an object: version, fingerprint, command, … beside kind and time.
json::Value job_started(const json::Value& job, Time time = now());
/// The space's first member as a record has it: its records differ from this.
json::Value base(const PlannedExperiment& first);
json::Value started(const std::string& key, const std::string& name, int attempt,
                    const std::vector<int>& world_ranks, Time time = now());
json::Value finished(const std::string& key, const Record& record);
/// The same by what is not as in `base`, which is the last base() before it. Reading restores it
/// exactly, order of keys included.
json::Value finished(const std::string& key, const Record& record, const json::Value& base);
/// A configuration was measured in DeepSpeed itself. `path`: of the folder that says it.
json::Value verified(const std::string& key, const std::string& name, const std::string& path,
                     const Measurement& measurement, Time time = now());
/// A rank died in it and it is to be tried again: one death.
json::Value lost(const std::string& key, const std::string& name,
                 const std::vector<int>& lost_ranks, Time time = now());
/// A configuration that was measured is run once more …
json::Value repeat_started(const std::string& key, const std::string& name, RepeatKind kind,
                           int round, const std::vector<int>& world_ranks, Time time = now());
/// … and was.
json::Value repeated(const std::string& key, const std::string& name, const Repeat& repeat);
/// The machine was measured: the profile, and the key of what was to be measured.
json::Value profile(const std::string& key, const json::Value& profile);
/// The costs of DeepSpeed's work were measured here: the constants, and the key of what was
/// measured.
json::Value target(const std::string& key, const json::Value& constants);
json::Value job_finished(int exit_code, const std::string& reason, Time time = now());
}  // namespace event

/// The search that a record was measured for; empty where the journal does not say it.
struct MeasuredFor {
  std::string search_key, metric;
};

struct History {
  std::map<std::string, Record> finished;           ///< by key, the last one
  std::map<std::string, MeasuredFor> measured_for;  ///< of the same keys
  std::map<std::string, Measurement> verified;      ///< by key, the last one
  std::map<std::string, int> deaths;  ///< key → how many jobs in a row died while it was running
  /// The keys among these for which at the last death nothing else was running, or ranks of its own
  /// group were lost.
  std::set<std::string> died_alone;
  /// A rank of its group was seen to be lost, and not only the whole job.
  std::set<std::string> seen_to_die;
  /// key → tries of what failed and is to run again, which is in `finished` no more
  std::map<std::string, int> retried;
  std::map<std::string, std::vector<Repeat>> repeats;  ///< by key, in order
  /// … the metric of the job that made each of them; empty where the journal does not say it.
  std::map<std::string, std::vector<std::string>> metrics_of_repeats;
  std::map<std::string, int> repeat_deaths;  ///< key → jobs that died while it alone was repeated
  std::set<std::string> interrupted_repeats;  ///< jobs died while it was, beside others too
  /// `search_key` of jobs that ended with 0, and of searches that ended within a job.
  std::set<std::string> complete_searches;
  int num_jobs = 0;
  /// The time of these jobs, from their start to the last that they wrote: seconds, and the same
  /// times ranks. Journals of earlier releases do not say how many ranks a job had: 0 of them.
  double spent_s = 0, spent_rank_s = 0;
  std::string profile_key;  ///< of the last profile; empty where there is none
  json::Value profile;
  std::string target_key;  ///< of the last measured constants of the target; likewise
  json::Value target;
  json::Value base;  ///< the last base() of records; null where there is none
};

/// An experiment that was started and neither finished nor followed by job_finished before the next
/// job_started or the end died with its job; finishing it later clears its deaths. Members of an
/// event that are not known are ignored. Throws InputError with the line where an event is not one
/// of ours, or its members have the wrong type.
History understand(const JournalContent& content, const std::string& path);

/// Moves what failed or timed out, of these keys, from what is known to what is to run again; so
/// does what died with its jobs. Returns how many.
std::size_t forget_failed(History& history, const std::vector<std::string>& keys);

/// Forgets what was raced out in a search by another metric: it was stopped for being worse there,
/// which says nothing of this one, and half a run makes no answer. Finals of that search are
/// repeats of this one. Returns how many were forgotten.
std::size_t forget_other_races(History& history, const std::vector<std::string>& keys,
                               std::string_view metric);

}  // namespace dstune
