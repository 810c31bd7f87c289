#pragma once
/// What CUDA's handles stand for. All of it is guarded by the engine's lock.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <driver_types.h>

namespace dstune::emulated {

using Clock = std::chrono::steady_clock;

/// Something a stream does: asked again and again, without the lock, until it says that it is done.
using Turn = std::function<bool()>;
/// Made anew each time that it is begun: a graph does it at every launch.
using Task = std::function<Turn()>;

struct Capture;

}  // namespace dstune::emulated

/// cudaGraphNode_t
struct CUgraphNode_st {
  dstune::emulated::Task task;     ///< of a node that is no event's
  CUevent_st* event = nullptr;     ///< that each launch records
  std::vector<std::size_t> after;  ///< nodes of its graph
};

/// cudaGraph_t: nodes in the order in which they were captured, so none is after a later one.
struct CUgraph_st {
  std::deque<CUgraphNode_st> nodes;
};

/// cudaGraphExec_t
struct CUgraphExec_st {
  std::vector<CUgraphNode_st> nodes;
  std::vector<const CUgraphNode_st*> origins;  ///< by which the graph's owner names them
  int device = 0;
  bool is_uploaded = false;
};

/// cudaStream_t
struct CUstream_st {
  int device = 0;
  std::deque<dstune::emulated::Task> tasks;
  dstune::emulated::Turn turn;  ///< of the first, once it is begun
  bool is_leaving = false;      ///< destroyed, with something still to do
  std::shared_ptr<dstune::emulated::Capture> capture;
  std::vector<std::size_t> last;  ///< nodes that what is captured next comes after
};

/// cudaEvent_t
struct CUevent_st {
  int device = 0;
  bool takes_time = true;
  std::int64_t recorded = 0;  ///< how often it was asked for
  std::int64_t reached = 0;   ///< the latest of these that was
  dstune::emulated::Clock::time_point when;
  /// Where it was last recorded in a stream that was captured; never queried then.
  std::shared_ptr<dstune::emulated::Capture> capture;
  std::vector<std::size_t> nodes;  ///< behind which it stands there
};

namespace dstune::emulated {

struct Capture {
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  bool is_over = false;
  bool is_invalid = false;
};

}  // namespace dstune::emulated
