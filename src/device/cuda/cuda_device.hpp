#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dstune/device/cuda.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

/// A rank's place, and what else it knows of GPUs.
struct DeviceRequest {
  int rank_of_node = 0;
  std::int64_t host_limit_bytes = 0;
  int threads = 1;
  /// Returns the free bytes of a GPU's memory, whoever uses it, without a context; nothing where
  /// nobody can tell. May be empty.
  std::function<std::optional<std::int64_t>(const std::string& uuid)> free_bytes{};
  /// Makes libraries take what they take at their first use. May be empty.
  std::function<void()> use_libraries{};
};

class CudaDevice : public Device {
 public:
  /// Does what make_cuda_device does, for any runtime and table.
  CudaDevice(Runtime& runtime, const kernels::Table& table, const DeviceRequest& request,
             CudaGpu* gpu);

  [[nodiscard]] bool is_lost() override {
    return runtime_.is_given_up() || has_lost_context(runtime_);
  }
  [[nodiscard]] DeviceState drain(std::chrono::duration<double> limit) override;
  [[nodiscard]] std::optional<std::int64_t> taken_bytes() override;
  void begin_thread() override;

 private:
  struct Found {
    Parts parts;
    CudaGpu gpu;
    /// Without a context where that could be told, else with it.
    std::function<std::optional<std::int64_t>()> free_bytes;
    std::int64_t free_bytes_before;
  };
  static Found find(Runtime& runtime, const kernels::Table& table, const DeviceRequest& request);
  CudaDevice(Runtime& runtime, Found found, CudaGpu* gpu);

  Runtime& runtime_;
  int number_;
  std::function<std::optional<std::int64_t>()> free_bytes_;
  std::int64_t free_bytes_before_;
  DeviceState given_up_as_ = DeviceState::lost;
};

/// Does what make_device_like_cuda does, for any runtime and table.
std::unique_ptr<Device> make_device_like(Runtime& runtime, const kernels::Table& table,
                                         const DeviceRequest& request, CudaGpu* gpu);

/// Has the table multiply and attend once, a little, and waits for the GPU: what libraries take of
/// its memory for handles and their first kernels is taken then. Throws DeviceError, OutOfMemory,
/// CollectiveError (the waiter's: the runtime is given up then), and what the table's functions
/// throw.
void use_libraries(Runtime& runtime, const kernels::Table& table, const Waiter& waiter);

/// The functions that a table lacks, "matmul, quantize"; empty where it is whole.
std::string missing_kernels(const kernels::Table& table);

}  // namespace dstune::cuda
