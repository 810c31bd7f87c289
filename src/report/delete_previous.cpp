#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "dstune/base/file.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "file_names.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

/// Removes a file, a link or an empty folder. What is not there, or not empty, is left.
void remove_one(const fs::path& path) {
  std::error_code cause;
  fs::remove(path, cause);
  if (cause && cause != std::errc::directory_not_empty && cause != std::errc::file_exists)
    throw IoError("can not delete " + path.string() + ": " + cause.message());
}

void remove_file(const fs::path& path) {
  std::error_code cause;
  const fs::file_type type = fs::symlink_status(path, cause).type();
  if (type == fs::file_type::regular || type == fs::file_type::symlink) remove_one(path);
}

/// Names of a temporary file that a killed process left behind.
bool is_temporary(const std::string& name) {
  return name.starts_with(".dstune-") && name.ends_with(".tmp");
}

std::vector<fs::directory_entry> entries(const fs::path& folder) {
  std::error_code cause;
  std::vector<fs::directory_entry> found;
  for (fs::directory_iterator at(folder, cause), end; !cause && at != end; at.increment(cause))
    found.push_back(*at);
  if (cause) throw IoError("can not list " + folder.string() + ": " + cause.message());
  return found;
}

void remove_temporaries(const fs::path& folder) {
  for (const fs::directory_entry& entry : entries(folder))
    if (is_temporary(entry.path().filename().string())) remove_file(entry.path());
}

/// The text of a member, or "".
std::string member(const json::Value& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Is it the folder of an experiment of ours? DeepSpeed's own folders look alike but for the mark.
bool is_marked(const fs::path& folder) {
  std::error_code cause;
  const fs::path path = folder / file_name::experiment;
  if (!fs::is_regular_file(path, cause)) return false;
  const json::Value description = json::Value::parse(read_file(path.string()), nullptr, false);
  return member(description, "written_by") == file_name::writer &&
         member(description, "name") == folder.filename().string();
}

/// The names of the experiments that were dispatched, as far as they can be found.
std::set<std::string> previous_experiments(const std::string& results_dir,
                                           const std::string& journal_path) {
  std::set<std::string> names;
  try {
    for (const JournalContent::Event& event : read_journal(journal_path).events) {
      const std::string kind = member(event.value, "kind");
      if (kind == "started" || kind == "finished") names.insert(member(event.value, "name"));
    }
  } catch (const InputError&) {
    // A damaged journal is deleted like a whole one; the marks below still name the experiments.
    names.clear();
  }
  for (const fs::directory_entry& entry : entries(results_dir)) {
    std::error_code cause;
    if (entry.is_directory(cause) && !entry.is_symlink(cause) && is_marked(entry.path()))
      names.insert(entry.path().filename().string());
  }
  std::erase_if(names,
                [](const std::string& name) { return !file_name::is_experiment_name(name); });
  return names;
}

void remove_experiment(const fs::path& folder) {
  std::error_code cause;
  if (fs::symlink_status(folder, cause).type() != fs::file_type::directory) return;
  remove_temporaries(folder);
  for (const std::string_view name : file_name::in_experiment) remove_file(folder / name);
  remove_one(folder);
}

}  // namespace

void ResultsFolder::delete_previous() {
  const std::set<std::string> names = previous_experiments(results_dir_, journal_path());
  for (const std::string_view name : file_name::in_results) {
    if (name == file_name::journal) continue;
    remove_file(fs::path(results_dir_) / name);
  }
  for (const std::string& name : names) {
    remove_file(fs::path(exps_dir_) / (name + ".json"));
    remove_experiment(fs::path(results_dir_) / name);
  }
  remove_temporaries(results_dir_);
  remove_temporaries(exps_dir_);
  // Last, since it names what is to be deleted: interrupted, the next call finishes the work.
  remove_file(journal_path());
}

}  // namespace dstune
