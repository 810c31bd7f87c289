#include "dstune/space/deepspeed_installation.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

// The version of DeepSpeed in a folder on Python's path.

std::optional<Version> version_of_tree(const RootedFiles& files, const fs::path& tree) {
  return parse_version(files.first_line(tree / "version.txt"));
}

/// version='0.19.8'
std::optional<Version> version_of_package(const RootedFiles& files, const fs::path& folder) {
  const std::string line = files.first_line(folder / "deepspeed/git_version_info_installed.py");
  if (!line.starts_with("version=")) return std::nullopt;
  return parse_version(trimmed(line.substr(line.find('=') + 1), "'\" "));
}

/// The tree that an editable installation leads to.
std::optional<Version> version_of_editable(const RootedFiles& files, const fs::path& folder,
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
std::optional<Version> version_in(const RootedFiles& files, const fs::path& folder) {
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

std::optional<DeepSpeedInstallation> first_found(const PythonEnvironment& python,
                                                 const UserPython& interpreter) {
  std::optional<DeepSpeedInstallation> first;
  for (const fs::path folder : package_folders(python, interpreter)) {
    const auto version = version_in(python.files(), folder);
    if (!version) continue;
    if (!first) first = {*version, folder.string(), ""};
    if (*version != first->version)
      first->note = fmt::format("{} in {} comes behind it on Python's path", to_text(*version),
                                folder.string());
  }
  return first;
}

/// The first folder on its path that has a package of that name: "torch-2.11.0.dist-info".
std::optional<Version> first_version(const PythonEnvironment& python, const UserPython& interpreter,
                                     const std::string& package) {
  for (const std::string& folder : package_folders(python, interpreter))
    for (const std::string& name : python.files().names(folder))
      if (name.starts_with(package + "-") && name.ends_with(".dist-info"))
        return parse_version(std::string_view(name).substr(package.size() + 1));
  return std::nullopt;
}

}  // namespace

int find_torch(const PythonEnvironment& python) {
  std::optional<UserPython> interpreter;
  if (!python.interpreter.empty())
    interpreter = python_at(python, python.interpreter);
  else if (interpreter = active_python(python); !interpreter)
    if (const auto script = find_on_path(python, "deepspeed"))
      interpreter = python_of_script(python, *script);
  const auto version = interpreter ? first_version(python, *interpreter, "torch") : std::nullopt;
  return version ? torch_number(*version) : 0;
}

int torch_number(const Version& version) {
  return 10000 * version.major + 100 * version.minor;
}

std::string torch_text(int torch) {
  return "PyTorch " + std::to_string(torch / 10000) + "." + std::to_string(torch / 100 % 100);
}

std::optional<DeepSpeedInstallation> find_deepspeed(const PythonEnvironment& python) {
  if (!python.interpreter.empty())
    return first_found(python, python_at(python, python.interpreter));
  std::optional<DeepSpeedInstallation> active, on_path;
  if (const auto interpreter = active_python(python)) active = first_found(python, *interpreter);
  const auto script = find_on_path(python, "deepspeed");
  const auto interpreter = script ? python_of_script(python, *script) : std::nullopt;
  if (interpreter) on_path = first_found(python, *interpreter);
  if (active && on_path && active->version != on_path->version)
    throw Error(fmt::format(
        "the active environment has DeepSpeed {} in {}, and {} on the path belongs to {} in {}",
        to_text(active->version), active->folder, *script, to_text(on_path->version),
        on_path->folder));
  return active ? active : on_path;
}

}  // namespace dstune
