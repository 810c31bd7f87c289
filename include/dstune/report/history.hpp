#pragma once
/// What earlier runs in the same results folder left: the journal's events understood. A record
/// counts only for the same key: configuration, group shape, model, sequence length, target,
/// workload, machine fingerprint and measuring version. Local.

#include <map>
#include <string>

#include "dstune/core/measurement.hpp"
#include "dstune/report/journal.hpp"

namespace dstune {

/// Changes whenever a measured number would mean something else.
inline constexpr int measuring_version = 1;

/// A 128-bit hash in hex of whatever identifies a result; equal values (keys in any order) give
/// equal keys.
std::string record_key(const json::Value& identity);

namespace event {
json::Value job_started(const json::Value& job);  ///< version, time, fingerprint, command, …
json::Value planned(const PlannedExperiment& planned);  ///< for infeasible and pruned members
json::Value started(const std::string& key, const std::string& name, int attempt,
                    const std::vector<int>& world_ranks);
json::Value finished(const std::string& key, const Record& record);
json::Value job_finished(int exit_code, const std::string& reason);
}  // namespace event

struct History {
  std::map<std::string, Record> finished;  ///< by key, the last one
  std::map<std::string, int> deaths;  ///< key → how many jobs in a row died while it was running
  int num_jobs = 0;
};

/// Throws InputError where an event is not one of ours.
History understand(const JournalContent& content, const std::string& path);

}  // namespace dstune
