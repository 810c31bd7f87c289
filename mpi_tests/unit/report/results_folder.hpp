#pragma once
/// A results folder in a temporary one, and what a run writes into it.

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "dstune/base/file.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {

namespace fs = std::filesystem;

/// Files can not grow beyond so many bytes, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_before_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limited{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_before_)(int) = nullptr;
};

/// The answer where this is all that was measured.
inline test::Concluded optimum_of(const Record& record) {
  test::Draft draft;
  draft.rows = {test::row_of(record)};
  return test::Concluded(draft);
}

class ResultsFolderTest : public testing::Test {
 protected:
  [[nodiscard]] std::string results(const std::string& name) const {
    return (temporary_ / "results/") + name;
  }
  [[nodiscard]] std::string exps(const std::string& name) const {
    return (temporary_ / "exps/") + name;
  }
  [[nodiscard]] json::Value results_json(const std::string& name) const {
    return json::Value::parse(read_file(results(name)));
  }
  /// All paths below the temporary folder.
  [[nodiscard]] std::set<std::string> everything() const {
    std::set<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(temporary_.path()))
      found.insert(fs::relative(entry.path(), temporary_.path()).string());
    return found;
  }

  test::TemporaryFolder temporary_;
  ResultsFolder folder_{temporary_ / "results", temporary_ / "exps"};
};

/// Everything that a run writes, with one experiment.
inline void write_all(ResultsFolder& folder) {
  const Record record = test::sample_record("a");
  Journal journal(folder.journal_path(), 0);
  journal.add(event::job_started({{"version", "1"}}));
  journal.add(event::started("k", "a", 1, {0}));
  journal.commit();
  folder.write_environment({});
  folder.write_experiment(record.experiment);
  folder.write_metrics(record);
  const test::Concluded optimum = optimum_of(record);
  folder.write_optimal(optimum.recommendation(), std::nullopt);
  folder.write_verification(optimum.recommendation(), std::nullopt);
  folder.write_library_choices({{"product", "1 of 3"}});
  folder.write_summary({});
  folder.write_exit_status(ExitCode::ok, "");
}

}  // namespace dstune
