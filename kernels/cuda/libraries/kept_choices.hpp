#pragma once
/// Choices by time, as they outlive the process. The key is what each was chosen for, in words that
/// name the library with its version and the GPU. The value is the place of the candidate in the
/// library's own order, and the number of candidates. Any thread may call these.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "dstune/kernels/cuda.hpp"

namespace dstune::kernels::cuda {

class KeptChoices {
 public:
  /// The place of what was chosen, from 0. Nothing where nobody has chosen, or where the library
  /// offered another number of candidates then.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& what, std::size_t offered) const;
  /// A choice that was timed just now.
  void keep(const std::string& what, std::size_t place, std::size_t offered);

  /// take_new_cuda_choices(), adopt_cuda_choices().
  [[nodiscard]] CudaChoices take_new();
  void adopt(const CudaChoices& choices);
  /// Another one after others' choices have taken the place of own ones.
  [[nodiscard]] std::uint64_t revision() const;

 private:
  mutable std::mutex mutex_;
  CudaChoices known_;
  CudaChoices new_;
  std::uint64_t revision_ = 0;
};

}  // namespace dstune::kernels::cuda
