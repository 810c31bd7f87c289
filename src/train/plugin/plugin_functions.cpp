#include "dstune/train/plugin_functions.hpp"

#include <map>
#include <mutex>

#include <dlfcn.h>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

template <class Function>
void find(void* library, const char* name, const std::string& path, Function& function) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) throw Error(path + " does not export " + name);
  function = reinterpret_cast<Function>(symbol);
}

PluginFunctions open(const std::string& path) {
  // Everything it needs is looked up now: a missing function is found here and not in a step.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(path + " can not be loaded: " + dlerror() +
                "; link what it needs, and name the folders of its libraries in its RPATH or in "
                "LD_LIBRARY_PATH on every rank");
  }
  PluginFunctions functions;
  find(library, "dstune_workload_build", path, functions.build);
  find(library, "dstune_workload_step", path, functions.step);
  find(library, "dstune_workload_report", path, functions.report);
  find(library, "dstune_workload_destroy", path, functions.destroy);
  return functions;
}

}  // namespace

const PluginFunctions& load_plugin(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, PluginFunctions> loaded;
  const std::lock_guard lock(mutex);
  const auto found = loaded.find(path);
  return found != loaded.end() ? found->second : loaded.emplace(path, open(path)).first->second;
}

}  // namespace dstune
