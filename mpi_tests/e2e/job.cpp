#include "job.hpp"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// What mpirun needs in a bare environment, and none of what a batch system or the caller may say,
/// nor a DeepSpeed that is installed.
std::map<std::string, std::string> base_environment() {
  std::map<std::string, std::string> environment{{"SLURM_JOB_END_TIME", ""},  {"SCR_END_TIME", ""},
                                                 {"FLUX_JOB_EXPIRATION", ""}, {"VIRTUAL_ENV", ""},
                                                 {"CONDA_PREFIX", ""},        {"DSTUNE_INJECT", ""},
                                                 {"DSTUNE_PRETEND_HOSTS", ""}};
  for (const std::string& word : words_of(DSTUNE_E2E_ENVIRONMENT)) {
    const std::size_t at = word.find('=');
    environment[word.substr(0, at)] = word.substr(at + 1);
  }
  return environment;
}

}  // namespace

// DSTUNE_E2E_BINARY in the environment names another build.
std::string binary() {
  const char* const other = std::getenv("DSTUNE_E2E_BINARY");
  return other == nullptr ? DSTUNE_E2E_BINARY : other;
}

Job::Job() {
  std::string pattern = (fs::temp_directory_path() / "dstune-e2e-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("can not make " + pattern);
  root_ = pattern;
  folder_ = root_ / "work";
  fs::create_directory(folder_);
  fs::create_directory(root_ / "tmp");
  // A program that names no interpreter stands before any other.
  fs::create_directory(root_ / "bin");
  std::ofstream(root_ / "bin/deepspeed") << "\n";
  fs::permissions(root_ / "bin/deepspeed", fs::perms::owner_all);
}

Job::~Job() {
  if (testing::Test::HasFailure()) {
    std::cerr << "what the job left is in " << root_ << '\n';
    return;
  }
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

Process Job::start(const Command& command) {
  ++num_started_;
  ProcessSpec spec;
  if (command.ranks > 0) {
    for (const std::string& word : words_of(DSTUNE_E2E_MPIRUN)) spec.words.push_back(word);
    spec.words.push_back(std::to_string(command.ranks));
    for (const std::string& word : words_of(DSTUNE_E2E_MPI_FLAGS)) spec.words.push_back(word);
  }
  spec.words.insert(spec.words.end(), command.launcher.begin(), command.launcher.end());
  if (command.program.empty())
    spec.words.push_back(binary());
  else
    spec.words.insert(spec.words.end(), command.program.begin(), command.program.end());
  spec.words.insert(spec.words.end(), command.args.begin(), command.args.end());
  spec.environment = base_environment();
  // What a killed mpirun leaves goes with the folder.
  spec.environment["TMPDIR"] = (root_ / "tmp").string();
  const char* const path = std::getenv("PATH");
  spec.environment["PATH"] =
      (root_ / "bin").string() + ":" + (path == nullptr ? "/usr/bin:/bin" : path);
  for (const auto& [name, value] : command.environment) spec.environment[name] = value;
  spec.folder = folder_;
  spec.out_path = root_ / ("out." + std::to_string(num_started_));
  spec.err_path = root_ / ("err." + std::to_string(num_started_));
  spec.limit_s = command.limit_s * DSTUNE_E2E_SLOWDOWN;
  return Process(std::move(spec));
}

Ended Job::run(const Command& command) {
  Ended ended = start(command).wait();
  EXPECT_FALSE(ended.is_late) << "killed after " << ended.wall_s << " s\n" << ended;
  return ended;
}

void Job::write_text(const std::string& name, const std::string& text) const {
  const fs::path path = folder_ / name;
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush)) throw std::runtime_error("can not write " + path.string());
}

void Job::write(const std::string& name, const Json& value) const {
  write_text(name, value.dump(2) + "\n");
}

bool Job::exists(const std::string& name) const {
  return fs::exists(folder_ / name);
}

std::string Job::read(const std::string& name) const {
  std::ifstream file(folder_ / name, std::ios::binary);
  EXPECT_TRUE(file) << name << " is missing";
  return {std::istreambuf_iterator<char>(file), {}};
}

Json Job::read_json(const std::string& name) const {
  Json value = Json::parse(read(name), nullptr, false);
  EXPECT_FALSE(value.is_discarded()) << name << " is no JSON";
  return value.is_discarded() ? Json() : value;
}

std::map<std::string, std::string> Job::contents() const {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    const std::string name = fs::relative(entry.path(), folder_).string();
    found[name] = entry.is_regular_file() ? read(name) : "";
  }
  return found;
}

std::map<std::string, std::string> Job::contents_but_the_end() const {
  const std::string folder = "autotuning_results";
  std::map<std::string, std::string> found = contents();
  found.erase(folder + "/exit_status.json");
  const auto next = found.upper_bound(folder);
  if (next == found.end() || !next->first.starts_with(folder + "/")) found.erase(folder);
  return found;
}

std::vector<std::string> recovery_words() {
  return words_of(DSTUNE_E2E_RECOVERY);
}

std::ostream& operator<<(std::ostream& out, const Ended& ended) {
  return out << "exit code " << ended.exit_code << " after " << ended.wall_s << " s\n--- stdout\n"
             << ended.out << "--- stderr\n"
             << ended.err << "---\n";
}

std::string engine_python() {
  const char* const python = std::getenv("DSTUNE_ENGINE_PYTHON");
  return python == nullptr || *python == '\0' ? "" : std::filesystem::absolute(python).string();
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace dstune::e2e
