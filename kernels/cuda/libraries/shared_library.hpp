#pragma once
/// Libraries that are looked for when the program runs, so that it starts without them.

#include <stdexcept>
#include <string>

namespace dstune::kernels::cuda {

class SharedLibrary {
 public:
  /// As the dynamic linker finds it, else in the folders of the toolkit and of cuDNN that this was
  /// built with.
  /// Stays loaded. std::runtime_error with the linker's words.
  explicit SharedLibrary(const std::string& name);

  /// function = the library's of that name. std::runtime_error where it has none.
  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(address_of(name));
  }

 private:
  [[nodiscard]] void* address_of(const char* name) const;

  std::string name_;
  void* library_ = nullptr;
};

}  // namespace dstune::kernels::cuda
