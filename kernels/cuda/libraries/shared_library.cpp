#include "shared_library.hpp"

#include <dlfcn.h>

namespace dstune::kernels::cuda {

SharedLibrary::SharedLibrary(const std::string& name)
    : name_(name), library_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ != nullptr) return;
  const char* const said = dlerror();
  const std::string reason = said != nullptr ? said : name + ": not found";
  for (const char* const folder : {DSTUNE_LIBRARY_FOLDERS}) {
    library_ = dlopen((std::string(folder) + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) return;
  }
  throw std::runtime_error(reason);
}

void* SharedLibrary::address_of(const char* name) const {
  void* const address = dlsym(library_, name);
  if (address == nullptr) throw std::runtime_error(name_ + " has no " + name);
  return address;
}

}  // namespace dstune::kernels::cuda
