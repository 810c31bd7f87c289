#include "dstune/engine/interpreter.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "embedded/bootstrap.hpp"
#include "embedded/modules.hpp"

namespace dstune::engine {
namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::optional<std::string> python_in(const fs::path& environment) {
  for (const char* name : {"bin/python", "bin/python3"})
    if (is_program(environment / name)) return (environment / name).string();
  return std::nullopt;
}

std::optional<std::string> find_on_path(const std::string& name, const Variables& variable) {
  const std::string folders = variable("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (const std::string_view folder : split(folders, ':')) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (is_program(candidate)) return fs::absolute(candidate).lexically_normal().string();
  }
  return std::nullopt;
}

/// What the first line of a script names: "#!/venv/bin/python", "#!/usr/bin/env python3".
std::optional<std::string> interpreter_of(const std::string& script, const Variables& variable) {
  std::ifstream file(script);
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("#!")) return std::nullopt;
  std::vector<std::string> words;
  for (const std::string_view word : split(trimmed(std::string_view(line).substr(2)), ' '))
    if (!word.empty()) words.emplace_back(word);
  if (words.empty()) return std::nullopt;
  if (words.front().ends_with("/env") && words.size() > 1) return find_on_path(words[1], variable);
  const bool is_python = fs::path(words.front()).filename().string().starts_with("python");
  return is_python && is_program(words.front()) ? std::optional(words.front()) : std::nullopt;
}

Interpreter named_interpreter(const std::string& given, const std::string& folder) {
  const fs::path path = fs::absolute(fs::path(folder) / given).lexically_normal();
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (const auto python = python_in(path)) return {*python, ""};
    return {"", path.string() + " has no bin/python: name the folder of a virtual environment"};
  }
  if (is_program(path)) return {path.string(), ""};
  return {"", path.string() +
                  " is no program: name a Python interpreter, or the folder of a virtual "
                  "environment"};
}

}  // namespace

std::optional<std::string> process_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

Interpreter find_interpreter(const std::string& given, const std::string& folder,
                             const Variables& variable) {
  if (!given.empty()) return named_interpreter(given, folder);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto environment = variable(name);
    if (!environment) continue;
    if (const auto python = python_in(*environment)) return {*python, ""};
  }
  if (const auto launcher = find_on_path("deepspeed", variable))
    if (const auto python = interpreter_of(*launcher, variable)) return {*python, ""};
  if (const auto python = find_on_path("python3", variable)) return {*python, ""};
  return {"",
          "no Python is found: activate the environment of your training, or name it as "
          "\"python\": \"path of a virtual environment or interpreter\""};
}

std::optional<EngineRequest> engine_request(const std::string& space_path, bool verify) {
  EngineRequest request{"", fs::path(space_path).parent_path().string()};
  const auto with_python_of = [&](const json::Node& object) {
    const auto python = object.find("python");
    if (python && python->is_string()) request.python = python->value().get<std::string>();
    return request;
  };
  const auto is_engine = [](const json::Node& word) {
    return word.is_string() && lower_case(word.value().get<std::string>()) == "deepspeed";
  };
  try {
    const json::Document document = json::Document::read(space_path);
    const auto section = document.node().find("dstune");
    if (section && section->is_object()) {
      const auto beside = section->find("verify");
      if (beside && beside->is_object()) return with_python_of(*beside);
      const auto workload = section->find("workload");
      if (workload && is_engine(*workload)) return request;
      if (workload && workload->is_object()) {
        const auto type = workload->find("type");
        if (type && is_engine(*type)) return with_python_of(*workload);
      }
    }
    return verify ? std::optional(request) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::string> python_command(const std::string& python, const std::string& library,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command{python, "-c", std::string(embedded::bootstrap), library};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

const char* module_source(const std::string& module) {
  const auto found =
      std::ranges::find(embedded::modules, std::string_view(module), &embedded::Module::name);
  return found == embedded::modules.end() ? nullptr : found->source;
}

}  // namespace dstune::engine
