// The functions that Python calls in the program, which it has loaded as a library. The names are
// the library's only symbols (exports.map).

#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "dstune/base/output.hpp"
#include "dstune/base/signals.hpp"
#include "dstune/instrument/engine/channel.hpp"
#include "dstune/instrument/engine/interpreter.hpp"
#include "program.hpp"

namespace {

using dstune::engine::Channel;

/// For Python to leave by itself, which flushes what it has printed.
constexpr std::chrono::seconds leave_timeout{5};

void run(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const int exit_code =
      dstune::run_program(static_cast<int>(arguments.size()), pointers.data(), "");
  dstune::flush_output();
  Channel& channel = *Channel::current();
  channel.close(exit_code);
  // Python's main thread may be stuck in what it runs; it has nothing more to do here.
  if (!channel.wait_closed(leave_timeout)) _exit(exit_code);
}

}  // namespace

extern "C" {

const char* dstune_engine_source(const char* module) {
  return dstune::engine::module_source(module);
}

void dstune_engine_begin(int argc, char** argv) {
  // The calling thread's, and so of all that it starts from now on.
  dstune::block_stop_signals();
  // The output of the user's code is no result.
  dstune::redirect_output();
  Channel::open();
  std::thread(run, std::vector<std::string>(argv, argv + argc)).detach();
}

const char* dstune_engine_exchange(const char* reply) {
  return Channel::current()->exchange(reply);
}

int dstune_engine_wait_interrupt() {
  return Channel::current()->wait_interrupt();
}

void dstune_engine_note_sockets(const int* sockets, int count) {
  Channel::current()->note_sockets(
      std::span(sockets, count > 0 ? static_cast<std::size_t>(count) : 0));
}

void dstune_engine_note_progress(const char* text) {
  Channel::current()->note_progress(text);
}

int dstune_engine_exit_code() {
  return Channel::current()->exit_code();
}
}
