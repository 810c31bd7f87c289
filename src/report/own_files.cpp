#include "dstune/report/own_files.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/report/journal.hpp"
#include "lock_holder.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

/// For one that is made in a folder without hard links: it has its name before its text.
constexpr std::time_t young_lock_s = 60;

std::string header() {
  return json_text({{"written_by", file_name::writer}, {"manifest", 1}}) + "\n";
}

std::optional<struct stat> status_of(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
  return found;
}

bool is_regular(const std::string& path) {
  const auto found = status_of(path);
  return found && S_ISREG(found->st_mode);
}

bool is_folder(const std::string& path) {
  const auto found = status_of(path);
  return found && S_ISDIR(found->st_mode);
}

std::optional<std::string> content_of(const std::string& path) {
  try {
    return read_file(path);
  } catch (const IoError&) {
    return std::nullopt;  // what can not be read can not be known
  }
}

std::string text_of(const json::Value& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool has_all(const json::Value& object, std::initializer_list<const char*> keys) {
  return object.is_object() &&
         std::ranges::all_of(keys, [&](const char* key) { return object.contains(key); });
}

/// Marks in the files themselves: they hold where a power cut took the manifest's last lines.
bool is_marked(const std::string& file, const std::string& content) {
  const fs::path path(file);
  const std::string name = path.filename().string();
  const bool is_of_experiment = path.has_parent_path();
  if (name == file_name::lock && !is_of_experiment) return !LockHolder::parse(content).host.empty();
  const auto parsed = [&] { return json::Value::parse(content, nullptr, false); };
  if (name == file_name::experiment && is_of_experiment) {
    const json::Value value = parsed();
    return text_of(value, "written_by") == file_name::writer &&
           text_of(value, "name") == path.parent_path().string();
  }
  if (name == file_name::exit_status && !is_of_experiment) {
    const json::Value value = parsed();
    return value.size() == 3 && has_all(value, {"exit_code", "reason", "finished_at"});
  }
  if (is_of_experiment && (name == file_name::metrics || name == file_name::verified))
    return has_all(parsed(), {"status", "attempt", "overhead_s", "group", "started_at"});
  return false;
}

/// Whether the file is a journal of ours: a whole line of it is, or all it holds is the beginning
/// of one. `is_noted`: the manifest says that it was made.
bool is_own_journal(const std::string& content, bool is_noted) {
  if (content.empty()) return is_noted;
  if (content.find('\n') == std::string::npos) return content.starts_with("{\"bytes\":");
  std::string_view rest = content;
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
       rest.remove_prefix(end + 1))
    if (is_journal_line(rest.substr(0, end))) return true;
  return false;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code cause;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, cause), end; !cause && at != end; at.increment(cause))
    names.push_back(at->path().filename().string());
  if (cause && cause != std::errc::no_such_file_or_directory && cause != std::errc::not_a_directory)
    throw IoError("can not list " + folder + ": " + cause.message());
  return names;
}

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
    const std::string kind = text_of(event, "kind");
    if (kind == "started" || kind == "finished") names.insert(text_of(event, "name"));
  }
  for (const std::string& name : names_in(results.folder()))
    if (is_folder(results.path(name)) &&
        results.is_own(name + "/" + std::string(file_name::experiment)))
      names.insert(name);
  std::erase_if(names,
                [](const std::string& name) { return !file_name::is_experiment_name(name); });
  return names;
}

/// What a release without manifests has left: its journal says what it wrote.
void adopt_earlier(OwnFiles& results, OwnFiles& exps) {
  if (results.has_manifest()) return;
  const std::string journal(file_name::journal);
  const bool has_journal = results.is_own(journal);
  const std::optional<std::string> content =
      has_journal ? content_of(results.path(journal)) : std::nullopt;
  if (has_journal) {
    for (const std::string_view name : file_name::in_results) results.adopt(std::string(name));
  } else {
    const std::string status(file_name::exit_status);
    if (results.is_own(status)) results.adopt(status);
  }
  for (const std::string& name : earlier_experiments(results, content.value_or(""))) {
    const std::string description = name + "/" + std::string(file_name::experiment);
    // DeepSpeed may have taken the folder since.
    if (status_of(results.path(description)) && !results.is_own(description)) continue;
    if (!is_folder(results.path(name))) continue;
    results.adopt_folder(name);
    for (const std::string_view file : file_name::in_experiment)
      results.adopt(name + "/" + std::string(file));
    if (!exps.has_manifest()) exps.adopt(name + ".json");
  }
}

/// Whether a folder holds nothing, but for what a killed job of ours may have left.
bool is_free(const OwnFiles& files) {
  if (!status_of(files.folder())) return true;
  const std::vector<std::string> names = names_in(files.folder());
  return std::ranges::all_of(names, [&](const std::string& name) {
    return file_name::is_temporary(name) || files.is_own(name);
  });
}

/// What there is that is not ours, for the line that says so.
std::string first_foreign(const OwnFiles& files) {
  for (const std::string& name : names_in(files.folder()))
    if (!file_name::is_temporary(name) && !files.is_own(name)) return name;
  return "something";
}

[[noreturn]] void fail_to_write(const std::string& path) {
  throw IoError(fmt::format("can not write {}: {}", path, std::generic_category().message(errno)));
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
  for (const std::string& name : names_in(files.folder())) {
    if (!experiments.contains(name)) continue;
    if (!is_folder(files.path(name))) {
      found.emplace_back(files.path(name), "a folder of ours would take its place");
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
  for (const std::string& name : names_in(files.folder()))
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
  log::info(
      fmt::format("{} holds what is not dstune-mpi's ({}): {} is taken instead", from, what, to));
}

}  // namespace

void part_from_other_names(const std::string& path, std::size_t keep_bytes) {
  const auto found = status_of(path);
  if (!found || !S_ISREG(found->st_mode) || found->st_nlink < 2) return;
  write_file_atomically(path, read_file(path).substr(0, keep_bytes));
}

void InputFiles::add(const std::string& path) {
  const auto note = [this](const struct stat& found) {
    files_.emplace(found.st_dev, found.st_ino);
  };
  if (const auto named = status_of(path); named && !S_ISDIR(named->st_mode)) note(*named);
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return;
  if (!S_ISDIR(found.st_mode)) return note(found);
  std::error_code cause;
  for (fs::recursive_directory_iterator at(path, cause), end; !cause && at != end;
       at.increment(cause))
    if (const auto inside = status_of(at->path().string()); inside && !S_ISDIR(inside->st_mode))
      note(*inside);
}

bool InputFiles::contains(const std::string& path) const {
  if (files_.empty()) return false;
  const auto found = status_of(path);
  return found && files_.contains({found->st_dev, found->st_ino});
}

OwnFiles::OwnFiles(std::string folder, InputFiles inputs)
    : folder_(std::move(folder)), inputs_(std::move(inputs)) {
  if (!is_regular(manifest_path())) return;
  const std::optional<std::string> content = content_of(manifest_path());
  // Of one that is just being made there may be a part.
  const std::string begin = header();
  if (!content || !(content->starts_with(begin) || begin.starts_with(*content))) return;
  has_manifest_ = true;
  read_manifest();
}

void OwnFiles::read_manifest() {
  for (const Line& line : lines()) {
    if (!line.folder.empty()) know("folder", line.folder, "");
    if (!line.appended.empty()) know("appended", line.appended, "");
    if (!line.file.empty()) know("file", line.file, line.hash);
  }
}

std::string OwnFiles::path(std::string_view file) const {
  return fmt::format("{}/{}", folder_, file);
}

std::string OwnFiles::manifest_path() const {
  return path(file_name::manifest);
}

/// A line that was torn is none.
std::vector<OwnFiles::Line> OwnFiles::lines() const {
  std::vector<Line> found;
  const std::string content = content_of(manifest_path()).value_or("");
  std::string_view rest = content;
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
       rest.remove_prefix(end + 1)) {
    const json::Value value = json::Value::parse(rest.substr(0, end), nullptr, false);
    found.push_back({text_of(value, "file"), text_of(value, "folder"), text_of(value, "appended"),
                     text_of(value, "hash")});
  }
  return found;
}

bool OwnFiles::knows(const std::string& kind, const std::string& name,
                     const std::string& hash) const {
  const std::string key = hash128(kind + "\n" + name + "\n" + hash);
  const std::lock_guard lock(mutex_);
  return known_.contains(std::stoull(key.substr(0, 16), nullptr, 16));
}

void OwnFiles::know(const std::string& kind, const std::string& name, const std::string& hash) {
  const std::string key = hash128(kind + "\n" + name + "\n" + hash);
  const std::lock_guard lock(mutex_);
  known_.insert(std::stoull(key.substr(0, 16), nullptr, 16));
}

bool OwnFiles::is_own(const std::string& file) const {
  // No folder is ours through a link.
  const std::size_t slash = file.find('/');
  if (slash != std::string::npos && !is_folder(path(file.substr(0, slash)))) return false;
  if (!is_regular(path(file)) || inputs_.contains(path(file))) return false;
  if (file == file_name::manifest) return has_manifest_;
  const std::optional<std::string> content = content_of(path(file));
  if (!content) return false;
  if (file == file_name::journal) return is_own_journal(*content, knows("appended", file, ""));
  return knows("file", file, hash128(*content)) || is_marked(file, *content);
}

std::string OwnFiles::obstacle(const std::string& file,
                               std::optional<std::string_view> content) const {
  const auto found = status_of(path(file));
  if (!found) return "";
  if (inputs_.contains(path(file)))
    return content && content_of(path(file)) == *content
               ? ""
               : "it is an input of this job, and a file of ours would take its place";
  if (is_own(file)) return "";
  if (S_ISLNK(found->st_mode))
    return "it is a symbolic link, and a file of ours would take its place";
  if (!S_ISREG(found->st_mode)) return "it is no file, and a file of ours would take its place";
  if (content && content_of(path(file)) == *content) return "";
  const bool is_young_lock = file == file_name::lock && found->st_size == 0 &&
                             (has_manifest_ || ::time(nullptr) - found->st_mtime < young_lock_s);
  if (is_young_lock) return "";
  return "it is not a file of dstune-mpi's, and one would take its place";
}

void OwnFiles::adopt(const std::string& file) {
  if (!is_regular(path(file))) return;
  const std::optional<std::string> content = content_of(path(file));
  if (!content) return;
  const std::string hash = hash128(*content);
  know("file", file, hash);
  adopted_.push_back(json_text({{"file", file}, {"hash", hash}}) + "\n");
}

void OwnFiles::adopt_folder(const std::string& name) {
  know("folder", name, "");
  adopted_.push_back(json_text({{"folder", name}}) + "\n");
}

std::set<std::string> OwnFiles::folders() const {
  std::set<std::string> names;
  for (const Line& line : lines())
    if (!line.folder.empty()) names.insert(line.folder);
  return names;
}

std::set<std::string> OwnFiles::files() const {
  std::set<std::string> names;
  for (const Line& line : lines())
    if (!line.file.empty()) names.insert(line.file);
  return names;
}

bool OwnFiles::is_empty() const {
  return std::ranges::all_of(names_in(folder_),
                             [](const std::string& name) { return name == file_name::manifest; });
}

bool OwnFiles::owns_folder(const std::string& name) const {
  return knows("folder", name, "");
}

void OwnFiles::begin() {
  const std::lock_guard lock(mutex_);
  if (manifest_) return;
  if (!has_manifest_ && status_of(manifest_path()))
    throw IoError(manifest_path() + " is not dstune-mpi's: move it away");
  if (!has_manifest_ && !adopted_.empty()) {
    // All of it or nothing: with a manifest nothing is adopted any more.
    std::string content = header();
    for (const std::string& line : adopted_) content += line;
    write_file_atomically(manifest_path(), content);
    adopted_.clear();
  }
  if (status_of(manifest_path())) part_from_other_names(manifest_path(), std::string::npos);
  manifest_.reset(::open(manifest_path().c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!manifest_) fail_to_write(manifest_path());
  has_manifest_ = true;
  // A killed process may have torn the last line.
  const std::string content = content_of(manifest_path()).value_or("");
  const std::string begin = header();
  if (content.size() < begin.size())
    append(begin.substr(content.size()));
  else if (!content.ends_with('\n'))
    append("\n");
}

/// In one write: another job may append to it, too.
void OwnFiles::append(std::string_view text) {
  const ssize_t written = ::write(manifest_.value(), text.data(), text.size());
  if (written < 0) fail_to_write(manifest_path());
  if (static_cast<std::size_t>(written) != text.size()) {
    errno = ENOSPC;
    fail_to_write(manifest_path());
  }
}

void OwnFiles::add(const std::string& line, Durability durability) {
  begin();
  const std::lock_guard lock(mutex_);
  append(line);
  if (durability == Durability::synced && ::fdatasync(manifest_.value()) != 0)
    fail_to_write(manifest_path());
}

/// Another job may share the folder of the experiments.
std::string OwnFiles::obstacle_now(const std::string& file, std::string_view content) {
  std::string why = obstacle(file, content);
  if (why.empty() || !has_manifest_) return why;
  read_manifest();
  return obstacle(file, content);
}

void OwnFiles::write(const std::string& file, std::string_view content, Durability durability,
                     Readers readers) {
  if (const std::string why = obstacle_now(file, content); !why.empty())
    throw IoError(fmt::format("can not write {}: {}; move it away", path(file), why));
  // Somebody else's: it is already what it would become.
  if (status_of(path(file)) && !is_own(file)) return;
  const std::string hash = hash128(content);
  // How a job has ended is known by what it holds: so are the words of ranks that outlive rank 0.
  if (file != file_name::exit_status && !knows("file", file, hash)) {
    // Before it has its name: a job that is killed between leaves a line too many.
    add(json_text({{"file", file}, {"hash", hash}}) + "\n", durability);
    know("file", file, hash);
  }
  write_file_atomically(path(file), content, durability, readers);
}

void OwnFiles::note_appended(const std::string& file) {
  if (knows("appended", file, "")) return;
  add(json_text({{"appended", file}}) + "\n", Durability::synced);
  know("appended", file, "");
}

void OwnFiles::make_folder(const std::string& name) {
  const std::string folder = path(name);
  const auto found = status_of(folder);
  if (found && S_ISDIR(found->st_mode)) return;
  if (!found && !owns_folder(name)) {
    add(json_text({{"folder", name}}) + "\n", Durability::rename_only);
    know("folder", name, "");
  }
  if (::mkdir(folder.c_str(), 0777) == 0) return;
  const int cause = errno;
  throw IoError(
      fmt::format("can not create folder {}: {}", folder,
                  found && S_ISLNK(found->st_mode)
                      ? "a symbolic link is there, and nothing is written through one; remove it"
                      : std::generic_category().message(cause)));
}

void OwnFiles::remove(const std::string& file) {
  if (!is_own(file)) return;
  if (::unlink(path(file).c_str()) != 0 && errno != ENOENT)
    throw IoError(
        fmt::format("can not delete {}: {}", path(file), std::generic_category().message(errno)));
}

void OwnFiles::remove_folder(const std::string& name) {
  if (!owns_folder(name) || !is_folder(path(name))) return;
  if (::rmdir(path(name).c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST)
    throw IoError(
        fmt::format("can not delete {}: {}", path(name), std::generic_category().message(errno)));
}

void OwnFiles::remove_manifest() {
  const std::lock_guard lock(mutex_);
  manifest_.reset();
  known_.clear();
  adopted_.clear();
  if (!has_manifest_) return;
  if (::unlink(manifest_path().c_str()) != 0 && errno != ENOENT)
    throw IoError(fmt::format("can not delete {}: {}", manifest_path(),
                              std::generic_category().message(errno)));
  has_manifest_ = false;
}

BothFolders::BothFolders(const std::string& results_dir, const std::string& exps_dir,
                         const InputFiles& inputs)
    : results(results_dir, inputs), exps(exps_dir, inputs) {
  adopt_earlier(results, exps);
}

namespace {

/// What is in the way in both folders, and what of a default one is reason enough to leave it.
struct Look {
  Obstacles in_results, in_exps;
  std::string leaves_results, leaves_exps;
};

Look look(const FolderNames& asked, const std::set<std::string>& experiments,
          const InputFiles& inputs, bool is_held) {
  const BothFolders both(asked.results_dir, asked.exps_dir, inputs);
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

FolderNames choose_folders(FolderNames asked, const std::set<std::string>& experiments,
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
