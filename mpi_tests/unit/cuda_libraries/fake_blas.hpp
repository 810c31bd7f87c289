#pragma once
/// cuBLASLt's functions on a processor: it reads the descriptors that it is given as the library's
/// manual says, and does in double what they describe. What no GPU would accept is a fault.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "libraries/libraries.hpp"

namespace dstune::kernels::test {

/// Works by one of several algorithms, numbered from 0.
struct FakeBlas {
  FakeBlas();  ///< what the functions act on from now on
  ~FakeBlas();
  FakeBlas(const FakeBlas&) = delete;
  FakeBlas& operator=(const FakeBlas&) = delete;
  static const cuda::BlasLibrary& functions();

  std::size_t version = 130100;
  int algorithms = 1;
  bool adds_bias = true;              ///< or has no algorithm that does
  bool activates = true;              ///< likewise
  bool sums = true;                   ///< likewise
  std::set<int> failing;              ///< algorithms that refuse to run
  int failing_call = -1;              ///< the number of a call that fails, whichever it is
  std::string fault;                  ///< the first
  bool takes_default_stream = false;  ///< or finds that a stream was forgotten
  /// Has a product done at its time; at first: at once.
  std::function<void(cudaStream_t, std::function<void()>)> enqueue =
      [](cudaStream_t, const std::function<void()>& product) { product(); };

  int calls = 0;
  int searches = 0;
  std::vector<cublasLtEpilogue_t> searched;   ///< for
  int alive = 0;                              ///< things made and not destroyed
  std::vector<int> runs;                      ///< the algorithm of each
  std::vector<cublasLtEpilogue_t> epilogues;  ///< likewise
};

}  // namespace dstune::kernels::test
