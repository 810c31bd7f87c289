#pragma once
/// A channel whose other side a thread of the test serves, as Python's main thread does.

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dstune/instrument/engine/channel.hpp"

namespace dstune::engine {

class ServedChannel {
 public:
  /// What a command is answered with: JSON text.
  using Answer = std::function<std::string(const json::Value& command)>;

  explicit ServedChannel(Answer answer)
      : thread_([this, answer = std::move(answer)] {
          const char* text = channel.exchange(nullptr);
          while (text != nullptr) {
            const json::Value command = json::Value::parse(text);
            {
              const std::lock_guard lock(mutex_);
              commands_.push_back(command);
            }
            const std::string reply = answer(command);
            text = channel.exchange(reply.c_str());
          }
        }) {}
  ~ServedChannel() {
    channel.close(0);
    thread_.join();
  }
  ServedChannel(const ServedChannel&) = delete;
  ServedChannel& operator=(const ServedChannel&) = delete;

  /// That were served so far.
  [[nodiscard]] std::vector<json::Value> commands() const {
    const std::lock_guard lock(mutex_);
    return commands_;
  }

  Channel channel;

 private:
  mutable std::mutex mutex_;
  std::vector<json::Value> commands_;
  std::thread thread_;
};

}  // namespace dstune::engine
