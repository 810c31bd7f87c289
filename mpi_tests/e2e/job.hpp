#pragma once
/// A folder of its own and the released binary in it, started as users start it. Local.

#include <chrono>
#include <filesystem>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.hpp"

namespace dstune::e2e {

using Json = nlohmann::ordered_json;

/// Exit codes of the program.
inline constexpr int done = 0, internal_error = 1, usage = 2, bad_input = 3, nothing_feasible = 4;
inline constexpr int no_device = 6, not_writable = 7, stopped_early = 75;

/// `mpirun -np ranks launcher... dstune-mpi args...`
struct Command {
  int ranks = 1;  ///< 0: without mpirun
  std::vector<std::string> args{};
  std::map<std::string, std::string> environment{};
  std::vector<std::string> launcher{};  ///< words before the binary, on every rank
  std::vector<std::string> program{};   ///< instead of the binary
  double limit_s = 60;                  ///< of a release build on a busy machine
};

class Job {
 public:
  Job();
  /// Removes the folder, unless the test failed: then it says where it is.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] Process start(const Command& command);
  /// Until the end; a run past its limit fails the test.
  Ended run(const Command& command);

  /// The working directory of the job; all names are relative to it.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  void write_text(const std::string& name, const std::string& text) const;
  void write(const std::string& name, const Json& value) const;
  [[nodiscard]] bool exists(const std::string& name) const;
  [[nodiscard]] std::string read(const std::string& name) const;
  /// Fails the test where it is no JSON.
  [[nodiscard]] Json read_json(const std::string& name) const;
  /// Every file and folder below, with the text of the files.
  [[nodiscard]] std::map<std::string, std::string> contents() const;
  /// … without exit_status.json, and its folder where that holds nothing else: what a job that is
  /// refused leaves.
  [[nodiscard]] std::map<std::string, std::string> contents_but_the_end() const;

 private:
  std::filesystem::path root_;
  std::filesystem::path folder_;
  int num_started_ = 0;
};

/// The program that jobs start.
[[nodiscard]] std::string binary();

/// mpirun's words with which ranks live on where another one died; empty: this launcher has none.
[[nodiscard]] std::vector<std::string> recovery_words();

/// All that a failed expectation should show.
std::ostream& operator<<(std::ostream& out, const Ended& ended);

/// The Python environment in which DeepSpeed's engine runs, by DSTUNE_ENGINE_PYTHON; absolute.
/// Empty: nobody names one, and tests of the engine are skipped.
[[nodiscard]] std::string engine_python();
inline constexpr const char* no_engine_python =
    "DSTUNE_ENGINE_PYTHON names no environment with torch and deepspeed";

/// Waits until it holds, as long as the process runs.
template <class Holds>
void wait_until(Process& process, Holds&& holds) {
  while (process.is_running() && !holds())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// How often `part` is in `text`.
[[nodiscard]] int count_of(const std::string& text, const std::string& part);

}  // namespace dstune::e2e
