// cuBLASLt and cuDNN in streams: the fakes of them do what they are asked for when its turn comes.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "calls.hpp"
#include "fake_blas.hpp"
#include "fake_dnn.hpp"

namespace dstune::kernels::cuda {
namespace {

/// A fault of what was asked for before ends the program: a test would not see it otherwise.
template <class Fake>
Fake& in_streams() {
  static auto& fake = *new Fake;
  fake.takes_default_stream = true;
  fake.enqueue = [](cudaStream_t stream, std::function<void()> work) {
    if (!fake.fault.empty()) {
      std::fprintf(stderr, "emulated library: %s\n", fake.fault.c_str());
      std::abort();
    }
    emulated::ask_stream_to(stream, std::move(work));
  };
  return fake;
}

}  // namespace

const BlasLibrary* blas_library(std::string& /*why_not*/) {
  auto& fake = in_streams<test::FakeBlas>();
  fake.algorithms = 2;
  if (const char* const version = std::getenv("DSTUNE_EMULATED_CUBLASLT_VERSION"))
    fake.version = std::strtoul(version, nullptr, 10);
  return &test::FakeBlas::functions();
}

const DnnLibrary* dnn_library(std::string& /*why_not*/) {
  in_streams<test::FakeDnn>().configurations = 2;
  return &test::FakeDnn::functions();
}

}  // namespace dstune::kernels::cuda
