#pragma once
/// CUDA's runtime without CUDA: writes down what it is asked for and fails where it is told to.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cuda/runtime.hpp"
#include "thrown.hpp"

namespace dstune::test {

class FakeRuntime : public cuda::Runtime {
 public:
  static constexpr cuda::Code no_memory = 2, pending = 600, illegal_address = 700;

  std::vector<std::string> calls;
  /// Of these, those that begin with the words.
  [[nodiscard]] std::ptrdiff_t num_calls(std::string_view words) const {
    return std::ranges::count_if(
        calls, [words](const std::string& call) { return call.starts_with(words); });
  }
  /// What a function returns instead, until it is taken out.
  std::map<std::string, cuda::Code> failures;
  /// How often it does so, where it is not for ever.
  std::map<std::string, int> num_failures;
  /// The function that never comes back.
  std::string hangs_in;
  std::atomic<bool> is_stuck = false;  ///< a thread is in it
  int devices = 1;
  bool events_are_reached = true;
  /// Of a library's own, in every graph.
  std::vector<cuda::EventNode> further_nodes;
  /// Where memory begins, past a multiple of 4096.
  std::uintptr_t misplaced_bytes = 0;
  int capability = 80;
  /// Devices that have no access to a peer.
  std::vector<std::pair<int, int>> strangers;
  bool has_context = false;  ///< since set_device()
  std::size_t free_bytes = 1000;

  cuda::Code count_devices(int& count) override {
    if (const cuda::Code code = called("count_devices")) return code;
    count = devices;
    return 0;
  }
  cuda::Code set_device(int device) override {
    has_context = true;
    return called("set_device", fmt::format("set_device {}", device));
  }
  cuda::Code get_properties(int device, cuda::Properties& properties) override {
    properties = {"a GPU", fmt::format("gpu-{}", device), capability};
    return called("get_properties");
  }
  cuda::Code can_access_peer(bool& can, int device, int other) override {
    can = !std::ranges::count(strangers, std::pair(device, other));
    return called("can_access_peer");
  }
  cuda::Code get_version(int& version) override {
    version = 13000;
    return called("get_version");
  }
  cuda::Code get_memory(std::size_t& bytes, std::size_t& total_bytes) override {
    bytes = free_bytes;
    total_bytes = 2000;
    return called("get_memory", {});
  }
  cuda::Code synchronize() override { return called("synchronize"); }
  cuda::Code allocate(void*& memory, std::size_t bytes) override {
    memory = place();
    return called("allocate", fmt::format("allocate {}", bytes));
  }
  cuda::Code free(void* memory) override { return called("free", freed("free", memory)); }
  cuda::Code allocate_host(void*& memory, std::size_t bytes) override {
    memory = place();
    return called("allocate_host", fmt::format("allocate_host {}", bytes));
  }
  cuda::Code free_host(void* memory) override {
    return called("free_host", freed("free_host", memory));
  }
  cuda::Code create_stream(cuda::Stream& stream) override {
    stream = number(++made_);
    return called("create_stream", "create " + name(stream));
  }
  cuda::Code destroy_stream(cuda::Stream stream) override {
    return called("destroy_stream", "destroy " + name(stream));
  }
  cuda::Code create_event(cuda::Event& event, bool takes_time) override {
    event = number(++made_);
    return called("create_event", "create " + name(event) + (takes_time ? " with time" : ""));
  }
  cuda::Code destroy_event(cuda::Event event) override {
    return called("destroy_event", "destroy " + name(event));
  }
  cuda::Code record(cuda::Event event, cuda::Stream stream) override {
    return called("record", "record " + name(event) + " on " + name(stream));
  }
  cuda::Code wait(cuda::Stream stream, cuda::Event event) override {
    return called("wait", name(stream) + " waits for " + name(event));
  }
  cuda::Code query(cuda::Event event) override {
    if (const cuda::Code code = called("query", "query " + name(event))) return code;
    return events_are_reached ? 0 : pending;
  }
  cuda::Code get_milliseconds(float& milliseconds, cuda::Event, cuda::Event) override {
    milliseconds = 2500;
    return called("get_milliseconds");
  }
  cuda::Code copy(void*, const void*, std::size_t bytes, cuda::Stream stream) override {
    return called("copy", fmt::format("copy {} on {}", bytes, name(stream)));
  }
  cuda::Code begin_capture(cuda::Stream stream) override {
    event_nodes_.clear();
    return called("begin_capture", "capture " + name(stream));
  }
  cuda::Code end_capture(cuda::Stream stream, cuda::Graph& graph) override {
    const cuda::Code code = called("end_capture", "end capture of " + name(stream));
    graph = number(code == 0 ? ++made_ : 0);
    return code;
  }
  cuda::Code record_in_graph(cuda::Event event, cuda::Stream stream) override {
    event_nodes_.push_back({number(++made_), event});
    return called("record_in_graph", "record " + name(event) + " in graph on " + name(stream));
  }
  cuda::Code get_event_nodes(cuda::Graph, std::vector<cuda::EventNode>& nodes) override {
    nodes = event_nodes_;
    nodes.insert(nodes.begin(), further_nodes.begin(), further_nodes.end());
    return called("get_event_nodes", {});
  }
  cuda::Code instantiate(cuda::ExecutableGraph& executable, cuda::Graph graph) override {
    const cuda::Code code = called("instantiate", "instantiate " + name(graph));
    if (code == 0) executable = number(++made_);
    return code;
  }
  cuda::Code upload(cuda::ExecutableGraph executable, cuda::Stream stream) override {
    return called("upload", "upload " + name(executable) + " on " + name(stream));
  }
  cuda::Code set_event(cuda::ExecutableGraph executable, cuda::Node node,
                       cuda::Event event) override {
    return called("set_event",
                  "node " + name(node) + " of " + name(executable) + " records " + name(event));
  }
  cuda::Code launch(cuda::ExecutableGraph executable, cuda::Stream stream) override {
    return called("launch", "launch " + name(executable) + " on " + name(stream));
  }
  cuda::Code destroy_executable(cuda::ExecutableGraph executable) override {
    return called("destroy_executable", "destroy executable " + name(executable));
  }
  cuda::Code destroy_graph(cuda::Graph graph) override {
    return called("destroy_graph", "destroy graph " + name(graph));
  }
  void forget_error() override { calls.emplace_back("forget_error"); }
  [[nodiscard]] std::string text(cuda::Code code) const override {
    return fmt::format("cudaError{}: words", code);
  }
  [[nodiscard]] cuda::Code not_ready() const override { return pending; }
  [[nodiscard]] cuda::Code out_of_memory() const override { return no_memory; }

 private:
  void* place() { return number(page_bytes * ++made_ + misplaced_bytes); }
  /// Says so where it is no beginning of what was allocated.
  [[nodiscard]] std::string freed(const std::string& function, void* memory) const {
    const bool is_whole = reinterpret_cast<std::uintptr_t>(memory) % page_bytes == misplaced_bytes;
    return function + (is_whole ? "" : " inside a piece");
  }
  /// Whatever it is that is made.
  struct Number {
    std::uintptr_t value;
    template <class Object>
    operator Object*() const {
      return reinterpret_cast<Object*>(value);
    }
  };
  static Number number(std::uintptr_t value) { return {value}; }
  static std::string name(void* object) {
    return std::to_string(reinterpret_cast<std::uintptr_t>(object));
  }
  cuda::Code called(const std::string& function) { return called(function, function); }
  /// Without words it is not written down.
  cuda::Code called(const std::string& function, const std::string& words) {
    // Whoever is stuck here touches nothing of this any more, so it may go.
    if (function == hangs_in) {
      is_stuck = true;
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    if (!words.empty()) calls.push_back(words);
    const auto failure = failures.find(function);
    if (failure == failures.end()) return 0;
    const auto left = num_failures.find(function);
    return left != num_failures.end() && left->second-- <= 0 ? 0 : failure->second;
  }

  static constexpr std::uintptr_t page_bytes = 4096;

  std::vector<cuda::EventNode> event_nodes_;  ///< of what is captured, or was last
  std::uintptr_t made_ = 0;
};

}  // namespace dstune::test
