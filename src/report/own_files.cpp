#include "dstune/report/own_files.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/hash.hpp"
#include "dstune/report/journal.hpp"
#include "entries.hpp"
#include "lock_holder.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

/// A lock in a folder without hard links has its name before its text, for so long at most.
constexpr std::time_t young_lock_s = 60;

std::string header() {
  return json_text({{"written_by", file_name::writer}, {"manifest", 1}}) + "\n";
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
    return entries::text_of(value, "written_by") == file_name::writer &&
           entries::text_of(value, "name") == path.parent_path().string();
  }
  if (name == file_name::exit_status && !is_of_experiment) {
    const json::Value value = parsed();
    return value.size() == 3 && has_all(value, {"exit_code", "reason", "finished_at"});
  }
  if (name == file_name::state && !is_of_experiment) {
    const json::Value value = parsed();
    return entries::text_of(value, "written_by") == file_name::writer && value.contains("phase");
  }
  if (is_of_experiment && (name == file_name::metrics || name == file_name::verified))
    return has_all(parsed(), {"status", "attempt", "overhead_s", "group", "started_at"});
  return false;
}

/// Tells whether a file has no mark of its own. Such a file may be large.
bool is_whole_known_by_hash(const std::string& file) {
  return file == file_name::table || file == file_name::page || file == file_name::page_data;
}

/// Tells whether the file is a journal of ours: it has a whole line of one, or is only the
/// beginning of one. `is_noted`: the manifest says that it was made.
bool is_own_journal(const std::string& content, bool is_noted) {
  if (content.empty()) return is_noted;
  if (content.find('\n') == std::string::npos) return content.starts_with("{\"bytes\":");
  std::string_view rest = content;
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
       rest.remove_prefix(end + 1))
    if (is_journal_line(rest.substr(0, end))) return true;
  return false;
}

/// A short key for what is known of a name: a manifest may have a hundred thousand lines.
std::uint64_t key_of(const std::string& kind, const std::string& name, const std::string& hash) {
  return std::stoull(hash128(kind + "\n" + name + "\n" + hash).substr(0, 16), nullptr, 16);
}

[[noreturn]] void fail_to_write(const std::string& path) {
  throw IoError(fmt::format("can not write {}: {}", path, std::generic_category().message(errno)));
}

}  // namespace

void part_from_other_names(const std::string& path, std::size_t keep_bytes) {
  const auto found = entries::status_of(path);
  if (!found || !S_ISREG(found->st_mode) || found->st_nlink < 2) return;
  write_file_atomically(path, read_file(path).substr(0, keep_bytes));
}

void InputFiles::add(const std::string& path) {
  const auto note = [this](const struct stat& found) {
    files_.emplace(found.st_dev, found.st_ino);
  };
  if (const auto named = entries::status_of(path); named && !S_ISDIR(named->st_mode)) note(*named);
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return;
  if (!S_ISDIR(found.st_mode)) return note(found);
  std::error_code cause;
  for (fs::recursive_directory_iterator at(path, cause), end; !cause && at != end;
       at.increment(cause))
    if (const auto inside = entries::status_of(at->path().string());
        inside && !S_ISDIR(inside->st_mode))
      note(*inside);
}

bool InputFiles::contains(const std::string& path) const {
  if (files_.empty()) return false;
  const auto found = entries::status_of(path);
  return found && files_.contains({found->st_dev, found->st_ino});
}

OwnFiles::OwnFiles(std::string folder, InputFiles inputs)
    : folder_(std::move(folder)), inputs_(std::move(inputs)) {
  look_for_manifest();
}

void OwnFiles::look_for_manifest() {
  if (!entries::is_regular(manifest_path())) return;
  const std::optional<std::string> content = entries::content_of(manifest_path());
  // One that is just being made may be there in part.
  const std::string begin = header();
  if (!content || !(content->starts_with(begin) || begin.starts_with(*content))) return;
  has_manifest_ = true;
  read_manifest();
}

/// Nobody else uses this object, or the mutex is held.
void OwnFiles::read_manifest() {
  for (const Line& line : lines()) {
    if (!line.folder.empty()) known_.insert(key_of("folder", line.folder, ""));
    if (!line.appended.empty()) known_.insert(key_of("appended", line.appended, ""));
    if (!line.file.empty()) known_.insert(key_of("file", line.file, line.hash));
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
  const std::string content = entries::content_of(manifest_path()).value_or("");
  std::string_view rest = content;
  for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;
       rest.remove_prefix(end + 1)) {
    const json::Value value = json::Value::parse(rest.substr(0, end), nullptr, false);
    found.push_back({entries::text_of(value, "file"), entries::text_of(value, "folder"),
                     entries::text_of(value, "appended"), entries::text_of(value, "hash")});
  }
  return found;
}

bool OwnFiles::knows(const std::string& kind, const std::string& name,
                     const std::string& hash) const {
  const std::lock_guard lock(mutex_);
  return known_.contains(key_of(kind, name, hash));
}

void OwnFiles::know(const std::string& kind, const std::string& name, const std::string& hash) {
  const std::lock_guard lock(mutex_);
  known_.insert(key_of(kind, name, hash));
}

bool OwnFiles::is_own(const std::string& file) const {
  // No folder is ours through a link.
  const std::size_t slash = file.find('/');
  if (slash != std::string::npos && !entries::is_folder(path(file.substr(0, slash)))) return false;
  if (!entries::is_regular(path(file)) || inputs_.contains(path(file))) return false;
  if (file == file_name::manifest) return has_manifest_;
  if (const auto hash = is_whole_known_by_hash(file) ? entries::hash_of(path(file)) : std::nullopt)
    return knows("file", file, *hash);
  const std::optional<std::string> content = entries::content_of(path(file));
  if (!content) return false;
  if (file == file_name::journal) return is_own_journal(*content, knows("appended", file, ""));
  return knows("file", file, hash128(*content)) || is_marked(file, *content);
}

std::string OwnFiles::obstacle(const std::string& file,
                               const std::optional<std::string>& hash) const {
  const auto found = entries::status_of(path(file));
  if (!found) return "";
  if (inputs_.contains(path(file)))
    return hash && entries::hash_of(path(file)) == *hash
               ? ""
               : "it is an input of this job, and a file of ours would take its place";
  if (is_own(file)) return "";
  if (S_ISLNK(found->st_mode))
    return "it is a symbolic link, and a file of ours would take its place";
  if (!S_ISREG(found->st_mode)) return "it is no file, and a file of ours would take its place";
  if (hash && entries::hash_of(path(file)) == *hash) return "";
  const bool is_young_lock = file == file_name::lock && found->st_size == 0 &&
                             (has_manifest_ || ::time(nullptr) - found->st_mtime < young_lock_s);
  if (is_young_lock) return "";
  return "it is not a file of dstune-mpi's, and one would take its place";
}

void OwnFiles::adopt(const std::string& file) {
  if (!entries::is_regular(path(file))) return;
  const std::optional<std::string> content = entries::content_of(path(file));
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
  return std::ranges::all_of(entries::names_in(folder_),
                             [](const std::string& name) { return name == file_name::manifest; });
}

bool OwnFiles::owns_folder(const std::string& name) const {
  return knows("folder", name, "");
}

void OwnFiles::begin() {
  const std::lock_guard lock(mutex_);
  if (manifest_) return;
  // The other object has begun it where one folder has results and experiments.
  if (!has_manifest_) look_for_manifest();
  if (!has_manifest_ && entries::status_of(manifest_path()))
    throw IoError(manifest_path() + " is not dstune-mpi's: move it away");
  if (!has_manifest_ && !adopted_.empty()) {
    // All of it or nothing: with a manifest nothing is adopted any more.
    std::string content = header();
    for (const std::string& line : adopted_) content += line;
    write_file_atomically(manifest_path(), content);
    adopted_.clear();
  }
  if (entries::status_of(manifest_path()))
    part_from_other_names(manifest_path(), std::string::npos);
  manifest_.reset(::open(manifest_path().c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!manifest_) fail_to_write(manifest_path());
  has_manifest_ = true;
  // A killed process may have torn the last line.
  const std::string content = entries::content_of(manifest_path()).value_or("");
  const std::string begin = header();
  if (content.size() < begin.size())
    append(begin.substr(content.size()));
  else if (!content.ends_with('\n'))
    append("\n");
}

/// One write, since another job may append to it, too.
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
std::string OwnFiles::obstacle_now(const std::string& file, const std::string& hash) {
  std::string why = obstacle(file, hash);
  if (why.empty() || !has_manifest_) return why;
  read_manifest();
  return obstacle(file, hash);
}

void OwnFiles::write(const std::string& file, std::string_view content, Durability durability,
                     Readers readers) {
  const std::string hash = hash128(content);
  const bool is_known = knows("file", file, hash);
  if (!claims(file, hash, durability)) return;
  // A job that resumes writes what lacks. To look is cheaper than to make a file.
  if (is_known && durability == Durability::rename_only &&
      entries::content_of(path(file)) == content)
    return;
  write_file_atomically(path(file), content, durability, readers);
}

/// Notes the content that the file will have. Returns whether it is to be written.
bool OwnFiles::claims(const std::string& file, const std::string& hash, Durability durability) {
  if (const std::string why = obstacle_now(file, hash); !why.empty())
    throw IoError(fmt::format("can not write {}: {}; move it away", path(file), why));
  // Somebody else's: it is already what it would become.
  if (entries::status_of(path(file)) && !is_own(file)) return false;
  // How a job has ended is known by what it holds: so are the words of ranks that outlive rank 0.
  // Its state, too, which would fill the manifest with lines.
  const bool is_known_by_mark = file == file_name::exit_status || file == file_name::state;
  if (!is_known_by_mark && !knows("file", file, hash)) {
    // Before it has its name: a job that is killed between leaves a line too many.
    add(json_text({{"file", file}, {"hash", hash}}) + "\n", durability);
    know("file", file, hash);
  }
  return true;
}

OwnFilePieces::OwnFilePieces(OwnFiles& files, std::string file)
    : files_(files), file_(std::move(file)), out_(files.path(file_)) {}

void OwnFilePieces::add(std::string_view piece) {
  hash_.add(piece);
  out_.add(piece);
}

void OwnFilePieces::take_place(Durability durability) {
  out_.close(durability);
  if (files_.claims(file_, hash_.text(), durability)) out_.take_place(durability);
}

void OwnFiles::note_appended(const std::string& file) {
  if (knows("appended", file, "")) return;
  add(json_text({{"appended", file}}) + "\n", Durability::synced);
  know("appended", file, "");
}

void OwnFiles::make_folder(const std::string& name) {
  const std::string folder = path(name);
  const auto found = entries::status_of(folder);
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
  if (!owns_folder(name) || !entries::is_folder(path(name))) return;
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

}  // namespace dstune
