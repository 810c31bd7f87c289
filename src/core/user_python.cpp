#include "dstune/core/user_python.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/deepspeed_version.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

/// "python3.12" of bin/python -> python3 -> python3.12: the first name with a minor version.
std::string program_name(const RootedFiles& files, fs::path path) {
  constexpr int most_links = 8;
  for (int links = 0; links < most_links; ++links) {
    const std::string name = path.filename().string();
    const fs::path leads_to = files.target(path);
    if (name.find('.') != name.npos || leads_to == path) return name;
    path = leads_to;
  }
  return path.filename().string();
}

/// The words of a script's first lines, as they have them; empty: none.
std::vector<std::string> words_of_first_line(const std::string& script) {
  if (!script.starts_with("#!")) return {};
  std::string line(trimmed(script.substr(2, script.find('\n') - 2)));
  // A path that is too long for a first line stands in the second.
  constexpr std::string_view exec = "'''exec' ";
  const std::size_t second = script.find(exec);
  if (line == "/bin/sh" && second != script.npos) {
    const std::string rest =
        script.substr(second + exec.size(), script.find('\n', second) - second - exec.size());
    if (rest.starts_with('"')) return {rest.substr(1, rest.find('"', 1) - 1)};
    line = rest;
  }
  std::vector<std::string> words;
  for (const std::string_view word : split(line, ' '))
    if (!word.empty()) words.emplace_back(word);
  return words;
}

/// The folders of packages of an installation that has `minor`, or any where that is not known.
void add_packages(const RootedFiles& files, const fs::path& prefix, const std::string& minor,
                  std::vector<std::string>& folders) {
  for (const char* lib : {"lib", "lib64"})
    for (const std::string& name : files.names(prefix / lib)) {
      if (!name.starts_with("python3")) continue;
      const bool is_of_any = name == "python3";  // Debian's
      if (!is_of_any && !minor.empty() && name != "python" + minor) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        folders.push_back((prefix / lib / name / packages).string());
    }
}

FoundPython named_python(const PythonEnvironment& environment) {
  const std::string path = absolute_path(environment.interpreter);
  const UserPython python = python_at(environment, path);
  if (!python.path.empty()) return {python.path, ""};
  if (environment.files().is_folder(path))
    return {"", path + " has no bin/python: name the folder of a virtual environment"};
  return {"", path +
                  " is no program: name a Python interpreter, or the folder of a virtual "
                  "environment"};
}

}  // namespace

std::string_view PythonEnvironment::variable(std::string_view name) const {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string_view() : found->second;
}

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

UserPython python_at(const PythonEnvironment& environment, const std::string& path) {
  const RootedFiles files = environment.files();
  if (!files.is_folder(path)) {
    const fs::path program = path;
    return {files.is_program(program) ? path : "", program.parent_path().parent_path().string(),
            program_name(files, program)};
  }
  for (const char* name : {"bin/python", "bin/python3"}) {
    const fs::path program = fs::path(path) / name;
    if (files.is_program(program)) return {program.string(), path, program_name(files, program)};
  }
  return {"", path, ""};
}

std::optional<UserPython> active_python(const PythonEnvironment& environment) {
  std::optional<UserPython> first;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string folder(environment.variable(name));
    if (folder.empty()) continue;
    const UserPython python = python_at(environment, folder);
    if (!python.path.empty()) return python;
    if (!first) first = python;
  }
  return first;
}

std::optional<UserPython> python_of_script(const PythonEnvironment& environment,
                                           const std::string& script) {
  const RootedFiles files = environment.files();
  std::vector<std::string> words = words_of_first_line(files.text(script));
  if (words.empty()) return std::nullopt;
  if (words.front().ends_with("/env")) {
    const auto name = std::ranges::find_if(words.begin() + 1, words.end(),
                                           [](const auto& word) { return !word.starts_with('-'); });
    const auto program = name == words.end() ? std::nullopt : find_on_path(environment, *name);
    if (!program) return std::nullopt;
    words.front() = *program;
  }
  const fs::path path = words.front();
  const bool is_python = path.filename().string().starts_with("python");
  if (!is_python || !path.is_absolute() || !files.is_program(path)) return std::nullopt;
  return python_at(environment, path.string());
}

std::optional<std::string> find_on_path(const PythonEnvironment& environment,
                                        const std::string& name) {
  std::string_view folders = environment.variable("PATH");
  if (folders.empty()) folders = "/usr/local/bin:/usr/bin:/bin";
  const RootedFiles files = environment.files();
  for (const std::string_view folder : split(folders, ':')) {
    const std::string path = absolute_path(fs::path(folder.empty() ? "." : folder) / name);
    if (files.is_program(path)) return path;
  }
  return std::nullopt;
}

FoundPython find_python(const PythonEnvironment& environment) {
  if (!environment.interpreter.empty()) return named_python(environment);
  if (const auto active = active_python(environment); active && !active->path.empty())
    return {active->path, ""};
  if (const auto launcher = find_on_path(environment, "deepspeed"))
    if (const auto python = python_of_script(environment, *launcher)) return {python->path, ""};
  if (const auto python = find_on_path(environment, "python3")) return {*python, ""};
  return {"",
          "no Python is found: activate the environment of your training, or name its folder or "
          "interpreter as \"python\" in dstune.workload or dstune.verify"};
}

std::vector<std::string> package_folders(const PythonEnvironment& python,
                                         const UserPython& interpreter) {
  const RootedFiles files = python.files();
  std::vector<std::string> folders;
  for (const std::string_view folder : split(python.variable("PYTHONPATH"), ':'))
    if (folder.starts_with('/')) folders.emplace_back(folder);
  const fs::path prefix = interpreter.prefix;
  std::string minor = python_minor(interpreter.program);
  bool has_system = true;
  if (const std::string settings = files.text(prefix / "pyvenv.cfg"); !settings.empty()) {
    has_system = lower_case(settings).find("include-system-site-packages = true") != settings.npos;
    if (const std::size_t at = settings.find("version"); minor.empty() && at != settings.npos)
      minor = python_minor(settings.substr(at));
    add_packages(files, prefix, minor, folders);
  }
  if (!has_system) return folders;
  fs::path user = python.variable("PYTHONUSERBASE");
  if (user.empty()) user = fs::path(python.variable("HOME")) / ".local";
  if (python.variable("PYTHONNOUSERSITE").empty() && user.is_absolute())
    add_packages(files, user, minor, folders);
  const bool is_venv = files.is_there(prefix / "pyvenv.cfg");
  const fs::path base = is_venv ? "/usr" : prefix;
  // Debian's Python looks there first.
  if (base == "/usr") add_packages(files, "/usr/local", minor, folders);
  add_packages(files, base, minor, folders);
  return folders;
}

std::vector<std::string> nvidia_library_folders(const PythonEnvironment& environment) {
  const FoundPython python = find_python(environment);
  if (python.path.empty()) return {};
  const RootedFiles files = environment.files();
  std::vector<std::string> folders;
  for (const fs::path packages :
       package_folders(environment, python_at(environment, python.path))) {
    for (const std::string& name : files.names(packages / "nvidia"))
      if (const fs::path lib = packages / "nvidia" / name / "lib"; files.is_folder(lib.string()))
        folders.push_back(lib.string());
  }
  return folders;
}

std::vector<std::string> gpu_library_folders(const PythonEnvironment& environment) {
  const RootedFiles files = environment.files();
  std::vector<std::string> folders = nvidia_library_folders(environment);
  const auto add = [&](const fs::path& prefix) {
    for (const char* name : {"lib64", "lib"}) {
      const std::string folder = (prefix / name).string();
      const bool is_new = std::find(folders.begin(), folders.end(), folder) == folders.end();
      if (is_new && files.is_folder(folder)) folders.push_back(folder);
    }
  };
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT", "CUDNN_HOME", "NCCL_HOME"})
    if (const fs::path prefix = environment.variable(name); prefix.is_absolute()) add(prefix);
  add("/usr/local/cuda");
  return folders;
}

std::string python_minor(std::string_view text) {
  const std::size_t digit = text.find_first_of("0123456789");
  const auto version = digit == text.npos ? std::nullopt : parse_version(text.substr(digit));
  return version ? fmt::format("{}.{}", version->major, version->minor) : "";
}

}  // namespace dstune
