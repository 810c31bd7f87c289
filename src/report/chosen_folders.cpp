#include "dstune/report/chosen_folders.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/report/journal.hpp"
#include "entries.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// The experiments that a journal names, and that carry our mark.
std::set<std::string> earlier_experiments(const OwnFiles& results, const std::string& journal) {
  std::set<std::string> names;
  std::string_view rest = journal;
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
       rest.remove_prefix(end + 1)) {
    const std::string_view line = rest.substr(0, end);
    if (!is_journal_line(line)) continue;
    const json::Value value = json::Value::parse(line, nullptr, false);
    if (!value.is_object() || !value.contains("event")) continue;
    const json::Value& event = value["event"];
    const std::string kind = entries::text_of(event, "kind");
    if (kind == "started" || kind == "finished") names.insert(entries::text_of(event, "name"));
  }
  for (const std::string& name : entries::names_in(results.folder()))
    if (entries::is_folder(results.path(name)) &&
        results.is_own(name + "/" + std::string(file_name::experiment)))
      names.insert(name);
  std::erase_if(names,
                [](const std::string& name) { return !file_name::is_experiment_name(name); });
  return names;
}

/// A release without manifests has left its journal, which says what it wrote.
void adopt_earlier(OwnFiles& results, OwnFiles& exps) {
  if (results.has_manifest()) return;
  const std::string journal(file_name::journal);
  const bool has_journal = results.is_own(journal);
  const std::optional<std::string> content =
      has_journal ? entries::content_of(results.path(journal)) : std::nullopt;
  if (has_journal) {
    for (const std::string_view name : file_name::in_results) results.adopt(std::string(name));
  } else {
    const std::string status(file_name::exit_status);
    if (results.is_own(status)) results.adopt(status);
  }
  for (const std::string& name : earlier_experiments(results, content.value_or(""))) {
    const std::string description = name + "/" + std::string(file_name::experiment);
    // DeepSpeed may have taken the folder since.
    if (entries::status_of(results.path(description)) && !results.is_own(description)) continue;
    if (!entries::is_folder(results.path(name))) continue;
    results.adopt_folder(name);
    for (const std::string_view file : file_name::in_experiment)
      results.adopt(name + "/" + std::string(file));
    if (!exps.has_manifest()) exps.adopt(name + ".json");
  }
}

/// Tells whether a folder holds nothing but our files, and those that a killed job of ours may have
/// left.
bool is_free(const OwnFiles& files) {
  if (!entries::status_of(files.folder())) return true;
  const std::vector<std::string> names = entries::names_in(files.folder());
  return std::ranges::all_of(names, [&](const std::string& name) {
    return file_name::is_temporary(name) || files.is_own(name);
  });
}

/// The first name that is not ours, for the line that says so.
std::string first_foreign(const OwnFiles& files) {
  for (const std::string& name : entries::names_in(files.folder()))
    if (!file_name::is_temporary(name) && !files.is_own(name)) return name;
  return "something";
}

using Obstacles = std::vector<std::pair<std::string, std::string>>;  ///< file, why

void add_obstacle(Obstacles& found, const OwnFiles& files, const std::string& file) {
  if (std::string why = files.obstacle(file); !why.empty())
    found.emplace_back(files.path(file), std::move(why));
}

Obstacles obstacles_in_results(const OwnFiles& files, const std::set<std::string>& experiments) {
  Obstacles found;
  for (const std::string_view name : file_name::in_results)
    add_obstacle(found, files, std::string(name));
  for (const std::string_view name : {file_name::journal, file_name::manifest, file_name::lock})
    add_obstacle(found, files, std::string(name));
  for (const std::string& name : entries::names_in(files.folder())) {
    if (!experiments.contains(name)) continue;
    if (!entries::is_folder(files.path(name))) {
      const auto status = entries::status_of(files.path(name));
      const bool is_link = status && S_ISLNK(status->st_mode);
      found.emplace_back(files.path(name),
                         fmt::format("it is {}, and a folder of ours would take its place",
                                     is_link ? "a symbolic link" : "no folder"));
      continue;
    }
    for (const std::string_view file : file_name::in_experiment)
      add_obstacle(found, files, name + "/" + std::string(file));
  }
  return found;
}

Obstacles obstacles_in_exps(const OwnFiles& files, const std::set<std::string>& experiments) {
  Obstacles found;
  add_obstacle(found, files, std::string(file_name::manifest));
  for (const std::string& name : entries::names_in(files.folder()))
    if (name.ends_with(".json") && experiments.contains(name.substr(0, name.size() - 5)))
      add_obstacle(found, files, name);
  return found;
}

void add_problems(const Obstacles& obstacles, const char* option, std::vector<Problem>& problems) {
  constexpr std::size_t max_named = 10;
  for (std::size_t i = 0; i < std::min(obstacles.size(), max_named); ++i)
    problems.push_back({obstacles[i].first, "", 0,
                        fmt::format("{}; nothing was changed: move it away, or name another {}",
                                    obstacles[i].second, option)});
  if (obstacles.size() > max_named)
    problems.push_back({obstacles.front().first, "", 0,
                        fmt::format("and {} more of this kind", obstacles.size() - max_named)});
}

void say_moved(const std::string& from, const std::string& what, const std::string& to) {
  log::info(fmt::format(log_text::folder_taken_instead, from, what, to));
}

}  // namespace

BothFolders::BothFolders(const std::string& results_dir, const std::string& exps_dir,
                         const InputFiles& inputs)
    : results(results_dir, inputs), exps(exps_dir, inputs) {
  adopt_earlier(results, exps);
}

namespace {

/// Obstacles in both folders, and the reasons to leave a default one.
struct Look {
  Obstacles in_results, in_exps;
  std::string leaves_results, leaves_exps;
};

std::set<std::string> experiments_in(const BothFolders& both, const ExperimentsAmong& experiments) {
  std::set<std::string> names;
  for (const std::string& name : entries::names_in(both.results.folder()))
    if (file_name::is_experiment_name(name)) names.insert(name);
  for (const std::string& name : entries::names_in(both.exps.folder()))
    if (name.ends_with(".json")) names.insert(name.substr(0, name.size() - 5));
  return names.empty() ? names : experiments(names);
}

Look look(const FolderNames& asked, const ExperimentsAmong& experiments_among,
          const InputFiles& inputs, bool is_held) {
  const BothFolders both(asked.results_dir, asked.exps_dir, inputs);
  const std::set<std::string> experiments = experiments_in(both, experiments_among);
  // Another job may just be writing there: the lock tells, and then there is a second look.
  const bool is_others = !is_held && both.results.is_own(std::string(file_name::lock));
  Look found;
  if (!is_others) found.in_results = obstacles_in_results(both.results, experiments);
  found.in_exps = obstacles_in_exps(both.exps, experiments);
  const auto reason = [&](const OwnFiles& files, const Obstacles& obstacles) -> std::string {
    const auto input = std::ranges::find_if(
        obstacles, [&](const auto& one) { return inputs.contains(one.first); });
    if (input != obstacles.end()) return input->first.substr(files.folder().size() + 1);
    return files.is_ours() || is_free(files) ? "" : first_foreign(files);
  };
  if (asked.is_results_default && !is_others)
    found.leaves_results = reason(both.results, found.in_results);
  if (asked.is_exps_default) found.leaves_exps = reason(both.exps, found.in_exps);
  return found;
}

}  // namespace

FolderNames choose_folders(FolderNames asked, const ExperimentsAmong& experiments,
                           const InputFiles& inputs, bool is_held) {
  Look found = look(asked, experiments, inputs, is_held);
  const auto is_clear = [&] {
    return found.in_results.empty() && found.in_exps.empty() && found.leaves_results.empty() &&
           found.leaves_exps.empty();
  };
  // Manifest and files are not read at one time, and other jobs may share the second folder.
  if (!is_clear()) found = look(asked, experiments, inputs, is_held);
  if (!found.leaves_results.empty()) {
    say_moved(asked.results_dir, found.leaves_results, file_name::other_results);
    asked.results_dir = file_name::other_results;
    asked.is_results_default = false;
  }
  if (!found.leaves_exps.empty()) {
    say_moved(asked.exps_dir, found.leaves_exps, file_name::other_exps);
    asked.exps_dir = file_name::other_exps;
    asked.is_exps_default = false;
  }
  if (!is_clear()) found = look(asked, experiments, inputs, is_held);
  std::vector<Problem> problems;
  add_problems(found.in_results, "--results-dir", problems);
  add_problems(found.in_exps, "--exps-dir", problems);
  if (!problems.empty()) throw InputError(std::move(problems));
  return asked;
}

std::optional<std::string> choose_results_folder(const FolderNames& asked,
                                                 const InputFiles& inputs) {
  const auto can_take = [&](const std::string& folder) {
    const BothFolders both(folder, asked.exps_dir, inputs);
    const OwnFiles& files = both.results;
    return (files.is_ours() || is_free(files) || files.is_own(std::string(file_name::lock))) &&
           std::ranges::all_of(
               std::array{file_name::exit_status, file_name::manifest, file_name::lock},
               [&](std::string_view name) { return files.obstacle(std::string(name)).empty(); });
  };
  if (can_take(asked.results_dir)) return asked.results_dir;
  if (asked.is_results_default && can_take(file_name::other_results))
    return file_name::other_results;
  return std::nullopt;
}

}  // namespace dstune
