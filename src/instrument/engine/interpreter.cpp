#include "dstune/instrument/engine/interpreter.hpp"

#include <algorithm>
#include <filesystem>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/space/config_document.hpp"
#include "embedded/bootstrap.hpp"
#include "embedded/modules.hpp"

namespace dstune::engine {

namespace fs = std::filesystem;

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
    const json::Document document = read_config_document(space_path);
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
    if (verify) return request;
    if (section && section->is_object()) {
      const auto target = section->find("target");
      const auto measure = target && target->is_object() ? target->find("measure") : std::nullopt;
      if (measure && measure->value() == true) return with_python_of(*target);
    }
    return std::nullopt;
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
