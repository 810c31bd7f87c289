#pragma once
/// The functions of NVIDIA's management library, so that they can be tested without one.

#include <memory>

#include "dstune/device/nvml.hpp"

namespace dstune::nvml {

/// nvmlMemory_t
struct Memory {
  unsigned long long total, free, used;
};

/// nvmlProcessInfo_t of the functions that end in _v3.
struct ProcessInfo {
  unsigned int number;
  unsigned long long bytes;
  unsigned int gpu_instance, compute_instance;
};

/// The functions that the driver's library exports; enums are ints there.
struct Functions {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*handle_by_uuid)(const char*, Device*);
  int (*total_energy)(Device, unsigned long long*);
  int (*power_usage)(Device, unsigned int*);
  int (*clock_info)(Device, int, unsigned int*);
  int (*max_clock_info)(Device, int, unsigned int*);

  // Null where the library has none.
  int (*temperature)(Device, int, unsigned int*);
  int (*throttle_reasons)(Device, unsigned long long*);
  int (*memory_info)(Device, Memory*);
  int (*is_instance)(Device, unsigned int*);
  int (*whole_of_instance)(Device, Device*);
  int (*mig_mode)(Device, unsigned int* now, unsigned int* pending);
  int (*compute_mode)(Device, int*);
  int (*ecc_mode)(Device, int* now, int* pending);
  int (*ecc_errors)(Device, int kind, int counter, unsigned long long*);
  int (*pages_pending)(Device, int*);
  int (*remapped_rows)(Device, unsigned int* corrected, unsigned int* uncorrected,
                       unsigned int* pending, unsigned int* failed);
  int (*pcie_width)(Device, unsigned int*);
  int (*max_pcie_width)(Device, unsigned int*);
  int (*pcie_generation)(Device, unsigned int*);
  int (*max_pcie_generation)(Device, unsigned int*);
  int (*nvlink_state)(Device, unsigned int link, int*);
  int (*processes)(Device, unsigned int* count, ProcessInfo*);
  int (*cuda_version)(int*);
};

/// The library of these functions, which is initialized.
std::shared_ptr<Library> library_of(const Functions& functions);

}  // namespace dstune::nvml
