#pragma once
/// The part of CUDA's runtime that is used, so that order and failures can be tested without a GPU,
/// and memory that is taken by it. All functions of the runtime but those that say otherwise return
/// a cudaError_t, 0 where nothing failed.

#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "dstune/device/memory.hpp"

// CUDA's own types, as its headers declare them.
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;

namespace dstune::cuda {

/// cudaStream_t, cudaEvent_t, cudaGraph_t, cudaGraphExec_t, cudaGraphNode_t.
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraph_st*;
using ExecutableGraph = CUgraphExec_st*;
using Node = CUgraphNode_st*;
using Code = int;

struct Properties {
  std::string name;    ///< "NVIDIA H200"
  std::string uuid;    ///< of the GPU, or of the part of one that a process was given
  int capability = 0;  ///< 90: compute capability 9.0
};

/// A node of a graph that records an event.
struct EventNode {
  Node node = nullptr;
  Event event = nullptr;
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual Code count_devices(int& count) = 0;
  /// Sets the device of the calling thread.
  virtual Code set_device(int device) = 0;
  virtual Code get_properties(int device, Properties& properties) = 0;
  /// Tells whether that device's kernels may read and write the memory of the other one. Both make
  /// no context.
  virtual Code can_access_peer(bool& can, int device, int other) = 0;
  /// 13000: CUDA 13.0
  virtual Code get_version(int& version) = 0;
  virtual Code get_memory(std::size_t& free_bytes, std::size_t& total_bytes) = 0;
  /// Waits, for ever where it must, until the GPU of the calling thread has done all that this
  /// process asked it for.
  virtual Code synchronize() = 0;

  virtual Code allocate(void*& memory, std::size_t bytes) = 0;
  virtual Code free(void* memory) = 0;
  /// Pinned, for all GPUs.
  virtual Code allocate_host(void*& memory, std::size_t bytes) = 0;
  virtual Code free_host(void* memory) = 0;

  /// Does not wait for CUDA's default stream.
  virtual Code create_stream(Stream& stream) = 0;
  virtual Code destroy_stream(Stream stream) = 0;
  virtual Code create_event(Event& event, bool takes_time) = 0;
  virtual Code destroy_event(Event event) = 0;
  virtual Code record(Event event, Stream stream) = 0;
  virtual Code wait(Stream stream, Event event) = 0;
  /// not_ready() before the event is reached.
  virtual Code query(Event event) = 0;
  virtual Code get_milliseconds(float& milliseconds, Event first, Event second) = 0;
  virtual Code copy(void* to, const void* from, std::size_t bytes, Stream stream) = 0;

  /// Begins to capture what this thread asks of the stream, and of those that wait for it. Calls
  /// that are not allowed meanwhile are those of this thread alone.
  virtual Code begin_capture(Stream stream) = 0;
  /// The same thread ends the capture. No graph where the capture was invalidated.
  virtual Code end_capture(Stream stream, Graph& graph) = 0;
  /// While the stream is captured: each launch of the graph records the event.
  virtual Code record_in_graph(Event event, Stream stream) = 0;
  virtual Code get_event_nodes(Graph graph, std::vector<EventNode>& nodes) = 0;
  virtual Code instantiate(ExecutableGraph& executable, Graph graph) = 0;
  /// Takes what a launch would else take of the GPU's memory at the first time.
  virtual Code upload(ExecutableGraph executable, Stream stream) = 0;
  /// Sets what the node of the graph records in launches to come.
  virtual Code set_event(ExecutableGraph executable, Node node, Event event) = 0;
  virtual Code launch(ExecutableGraph executable, Stream stream) = 0;
  virtual Code destroy_executable(ExecutableGraph executable) = 0;
  virtual Code destroy_graph(Graph graph) = 0;

  /// Queues::begin_range() and end_range().
  virtual void begin_range(const char* /*name*/) {}
  virtual void end_range() noexcept {}

  /// Later calls do not report it again, unless the context is lost.
  virtual void forget_error() = 0;
  /// "cudaErrorMemoryAllocation: out of memory"
  [[nodiscard]] virtual std::string text(Code code) const = 0;
  [[nodiscard]] virtual Code not_ready() const = 0;
  [[nodiscard]] virtual Code out_of_memory() const = 0;

  /// From here on nothing is given back: that might wait for a GPU that does not answer, and what
  /// it still writes to must be nobody else's. The end of the process does it. For good; by any
  /// thread.
  void give_up() { is_given_up_ = true; }
  [[nodiscard]] bool is_given_up() const { return is_given_up_; }

 private:
  std::atomic<bool> is_given_up_ = false;
};

/// Tells whether the context is lost: every later call reports the error that corrupts it.
bool has_lost_context(Runtime& runtime);

/// Throws with CUDA's words and what was tried: OutOfMemory where the GPU's memory lacks (`bytes`
/// of it, 0: nobody says how many), else DeviceError, which says where the process can use the GPU
/// no more.
void check(Runtime& runtime, Code code, const char* what, std::size_t bytes = 0);

/// CUDA's own; null in a build without it.
Runtime* native_runtime();

/// Memory of a GPU, or pinned memory of its host: from multiples of 4096 on, also where CUDA, which
/// promises 256, begins in between.
class CudaMemory : public MemorySource {
 public:
  enum class Kind { device, pinned };
  CudaMemory(Runtime& runtime, Kind kind) : runtime_(runtime), is_pinned_(kind == Kind::pinned) {}

  std::byte* take(std::int64_t bytes) override;
  void give_back(std::byte* begin, std::int64_t bytes) noexcept override;

 private:
  void* allocate(std::int64_t bytes);
  void free(void* memory) noexcept;

  Runtime& runtime_;
  bool is_pinned_;
  std::map<std::byte*, void*> misplaced_;  ///< what lies in a larger piece, and that
};

}  // namespace dstune::cuda
