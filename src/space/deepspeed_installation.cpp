#include "dstune/space/deepspeed_installation.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_file = 1 << 20;

/// Files below a root, without errors: what can not be read is not there.
class Files {
 public:
  explicit Files(const PythonEnvironment& python) : python_(&python) {}

  [[nodiscard]] fs::path place(const fs::path& path) const {
    return python_->root.empty() ? path : fs::path(python_->root) / path.relative_path();
  }
  [[nodiscard]] bool is_there(const fs::path& path) const {
    std::error_code ignored;
    return fs::exists(place(path), ignored);
  }
  [[nodiscard]] std::string text(const fs::path& path) const {
    std::error_code ignored;
    if (!fs::is_regular_file(place(path), ignored)) return "";
    try {
      return read_file(place(path).string(), longest_file);
    } catch (const Error&) {
      return "";
    }
  }
  [[nodiscard]] std::string first_line(const fs::path& path) const {
    const std::string all = text(path);
    return std::string(trimmed(all.substr(0, all.find('\n'))));
  }
  /// Sorted.
  [[nodiscard]] std::vector<std::string> names(const fs::path& folder) const {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(place(folder), error), end; !error && at != end;
         at.increment(error))
      names.push_back(at->path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  /// The program's own name, where a link has another.
  [[nodiscard]] std::string program(const fs::path& path) const {
    std::error_code error;
    const fs::path leads_to = fs::read_symlink(place(path), error);
    return (error ? path : leads_to).filename().string();
  }
  [[nodiscard]] std::string_view variable(std::string_view name) const {
    const auto found = python_->variables.find(name);
    return found == python_->variables.end() ? std::string_view() : found->second;
  }
  [[nodiscard]] std::optional<fs::path> on_path(const std::string& program) const {
    for (const std::string_view folder : split(variable("PATH"), ':'))
      if (folder.starts_with('/') && is_there(fs::path(folder) / program))
        return fs::path(folder) / program;
    return std::nullopt;
  }

 private:
  const PythonEnvironment* python_;
};

/// "3.11" of "python3.11" and "3.11.2", or nothing.
std::string minor_version(std::string_view text) {
  const std::size_t digit = text.find_first_of("0123456789");
  const auto version = digit == text.npos ? std::nullopt : parse_version(text.substr(digit));
  return version ? fmt::format("{}.{}", version->major, version->minor) : "";
}

// What a folder on Python's path says of DeepSpeed.

std::optional<Version> version_of_tree(const Files& files, const fs::path& tree) {
  return parse_version(files.first_line(tree / "version.txt"));
}

/// version='0.19.8'
std::optional<Version> version_of_package(const Files& files, const fs::path& folder) {
  const std::string line = files.first_line(folder / "deepspeed/git_version_info_installed.py");
  if (!line.starts_with("version=")) return std::nullopt;
  return parse_version(trimmed(line.substr(line.find('=') + 1), "'\" "));
}

/// The tree that an editable installation leads to.
std::optional<Version> version_of_editable(const Files& files, const fs::path& folder,
                                           const std::string& name) {
  std::vector<std::string> trees;
  if (name.ends_with(".dist-info")) {
    const auto url = json::Value::parse(files.text(folder / name / "direct_url.json"), nullptr,
                                        /*allow_exceptions=*/false);
    if (!url.is_object() || !url.contains("dir_info") || !url.contains("url")) return std::nullopt;
    const std::string at = url["url"].is_string() ? url["url"].get<std::string>() : "";
    if (at.starts_with("file://")) trees.push_back(at.substr(7));
  } else if (name.ends_with(".pth") || name == "deepspeed.egg-link") {
    const std::string all = files.text(folder / name);
    for (const std::string_view line : lines_of(all)) trees.emplace_back(trimmed(line));
  }
  for (const std::string& tree : trees)
    if (tree.starts_with('/') && files.is_there(fs::path(tree) / "deepspeed"))
      if (const auto version = version_of_tree(files, tree)) return version;
  return std::nullopt;
}

/// The folder's own package, or its name in what pip or setuptools left; else a link to a tree.
std::optional<Version> version_in(const Files& files, const fs::path& folder) {
  if (const auto version = version_of_package(files, folder)) return version;
  std::optional<Version> named, linked;
  for (const std::string& name : files.names(folder)) {
    const bool is_link = name.ends_with(".pth") || name == "deepspeed.egg-link";
    const bool is_named = name.starts_with("deepspeed-") &&
                          (name.ends_with(".dist-info") || name.ends_with(".egg-info"));
    if (!is_link && !is_named) continue;
    if (const auto version = version_of_editable(files, folder, name)) linked = version;
    const std::string_view stem = std::string_view(name).substr(0, name.rfind('.'));
    if (is_named) named = std::max(named, parse_version(stem.substr(stem.find('-') + 1)));
  }
  if (linked) return linked;
  if (named) return named;
  if (!files.is_there(folder / "deepspeed/__init__.py")) return std::nullopt;
  return version_of_tree(files, folder);
}

// Where Python looks.

/// The folders of packages of an installation that has `minor`, or any where that is not known.
void add_packages(const Files& files, const fs::path& prefix, const std::string& minor,
                  std::vector<fs::path>& folders) {
  for (const char* lib : {"lib", "lib64"})
    for (const std::string& name : files.names(prefix / lib)) {
      if (!name.starts_with("python3")) continue;
      const bool is_of_any = name == "python3";  // Debian's
      if (!is_of_any && !minor.empty() && name != "python" + minor) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        folders.push_back(prefix / lib / name / packages);
    }
}

struct Interpreter {
  fs::path prefix;
  std::string program;  ///< "python3.11"; empty: not known
};

std::vector<fs::path> search_path(const Files& files, const Interpreter& interpreter) {
  std::vector<fs::path> folders;
  for (const std::string_view folder : split(files.variable("PYTHONPATH"), ':'))
    if (folder.starts_with('/')) folders.emplace_back(folder);
  const fs::path& prefix = interpreter.prefix;
  std::string minor = minor_version(interpreter.program);
  bool has_system = true;
  if (const std::string settings = files.text(prefix / "pyvenv.cfg"); !settings.empty()) {
    has_system = lower_case(settings).find("include-system-site-packages = true") != settings.npos;
    if (const std::size_t at = settings.find("version"); minor.empty() && at != settings.npos)
      minor = minor_version(settings.substr(at));
    add_packages(files, prefix, minor, folders);
  }
  if (!has_system) return folders;
  fs::path user = files.variable("PYTHONUSERBASE");
  if (user.empty()) user = fs::path(files.variable("HOME")) / ".local";
  if (files.variable("PYTHONNOUSERSITE").empty() && user.is_absolute())
    add_packages(files, user, minor, folders);
  const bool is_venv = files.is_there(prefix / "pyvenv.cfg");
  const fs::path base = is_venv ? "/usr" : prefix;
  // Debian's Python looks there first.
  if (base == "/usr") add_packages(files, "/usr/local", minor, folders);
  add_packages(files, base, minor, folders);
  return folders;
}

/// Of an environment's folder, or of a program in its `bin`.
Interpreter interpreter_at(const Files& files, const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(files.place(path), ignored)) {
    for (const char* name : {"bin/python3", "bin/python"})
      if (files.is_there(path / name)) return {path, files.program(path / name)};
    return {path, ""};
  }
  return {path.parent_path().parent_path(), files.program(path)};
}

/// The interpreter that a script's first lines name.
std::optional<Interpreter> interpreter_of(const Files& files, const fs::path& script) {
  const std::string all = files.text(script);
  std::string line(all.starts_with("#!") ? trimmed(all.substr(2, all.find('\n') - 2)) : "");
  // A path that is too long for a first line stands in the second.
  const std::size_t exec = all.find("'''exec' ");
  if (line == "/bin/sh" && exec != all.npos)
    line = trimmed(all.substr(exec + 9, all.find('"', exec + 10) - exec - 9), "\" ");
  if (line.starts_with("/usr/bin/env ")) {
    const auto program = files.on_path(std::string(trimmed(line.substr(13))));
    line = program ? program->string() : "";
  }
  line = line.substr(0, line.find(' '));
  if (!line.starts_with('/')) return std::nullopt;
  return interpreter_at(files, line);
}

std::optional<DeepSpeedInstallation> first_found(const Files& files,
                                                 const Interpreter& interpreter) {
  std::optional<DeepSpeedInstallation> first;
  for (const fs::path& folder : search_path(files, interpreter)) {
    const auto version = version_in(files, folder);
    if (!version) continue;
    if (!first) first = {*version, folder.string(), ""};
    if (*version != first->version)
      first->note = fmt::format("{} in {} comes behind it on Python's path", to_text(*version),
                                folder.string());
  }
  return first;
}

}  // namespace

PythonEnvironment own_python_environment() {
  PythonEnvironment python;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = std::min(text.find('='), text.size());
    python.variables.emplace(text.substr(0, equals),
                             text.substr(std::min(equals + 1, text.size())));
  }
  return python;
}

std::optional<DeepSpeedInstallation> find_deepspeed(const PythonEnvironment& python) {
  const Files files(python);
  if (!python.interpreter.empty())
    return first_found(files, interpreter_at(files, python.interpreter));
  std::optional<DeepSpeedInstallation> active, on_path;
  std::string_view environment = files.variable("VIRTUAL_ENV");
  if (environment.empty()) environment = files.variable("CONDA_PREFIX");
  if (!environment.empty()) active = first_found(files, interpreter_at(files, environment));
  const auto script = files.on_path("deepspeed");
  const auto interpreter = script ? interpreter_of(files, *script) : std::nullopt;
  if (interpreter) on_path = first_found(files, *interpreter);
  if (active && on_path && active->version != on_path->version)
    throw Error(fmt::format(
        "the active environment has DeepSpeed {} in {}, and {} on the path belongs to {} in {}",
        to_text(active->version), active->folder, script->string(), to_text(on_path->version),
        on_path->folder));
  return active ? active : on_path;
}

}  // namespace dstune
