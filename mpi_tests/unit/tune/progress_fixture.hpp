#pragma once
/// Progress with a clock of its own, and what it says.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "control/progress.hpp"
#include "samples.hpp"
#include "terminal.hpp"

namespace dstune::test {

/// Keeps the lines, and shows everything on a terminal.
class FakeSink : public ProgressSink {
 public:
  explicit FakeSink(std::size_t columns = 80, std::size_t rows = 24, bool breaks_rows = false)
      : terminal(columns, rows, breaks_rows), size_{columns, rows}, breaks_rows_(breaks_rows) {}

  void say(const std::string& text) override {
    lines.push_back(text);
    terminal.take(text + "\r\n");
  }
  void write(const std::string& codes) override {
    ++num_writes;
    terminal.take(codes);
  }
  [[nodiscard]] TerminalSize size() const override { return size_; }
  [[nodiscard]] bool breaks_rows() const override { return breaks_rows_; }
  void resize(std::size_t columns) {
    size_.columns = columns;
    terminal.resize(columns);
  }

  std::vector<std::string> lines;
  Terminal terminal;
  int num_writes = 0;

 private:
  TerminalSize size_;
  bool breaks_rows_;
};

/// A job from 3:04:05 UTC on.
class ProgressRun {
 public:
  explicit ProgressRun(Progress::Style style, std::shared_ptr<FakeSink> given = nullptr)
      : sink(given ? std::move(given) : std::make_shared<FakeSink>()),
        progress({.style = style, .began = {}, .clock = [this] { return now_; }}, sink) {}

  void pass(double time_s) {
    now_.steady += to_duration(time_s);
    now_.wall +=
        std::chrono::duration_cast<std::chrono::system_clock::duration>(to_duration(time_s));
    progress.tick();
  }
  /// It ends `time_s` later, with samples/s.
  void run(std::size_t member, double throughput, double time_s = 1, bool is_best = false) {
    Record record = sample_record("m" + std::to_string(member), 16 / throughput);
    begin(member, record.experiment);
    pass(time_s);
    if (is_best)
      progress.set_best(BestSoFar{.name = record.experiment.name,
                                  .num_ranks = 2,
                                  .value = throughput,
                                  .is_baseline = member == 0,
                                  .gain = throughput / 20});
    progress.left(member);
    progress.ended(member, record, Metric::throughput, {}, is_best);
    progress.tick();
  }
  void fail(std::size_t member, Status status, const std::string& reason, double time_s = 0.01) {
    Record record = sample_record("m" + std::to_string(member));
    record.measurement.status = status;
    record.measurement.reason = reason;
    begin(member, record.experiment);
    pass(time_s);
    progress.left(member);
    progress.ended(member, record, Metric::throughput, {}, false);
    progress.tick();
  }
  void begin(std::size_t member, const Experiment& experiment) {
    progress.started(member, experiment);
  }

  /// Its lines without their time stamps.
  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> texts;
    for (const std::string& line : sink->lines) texts.push_back(line.substr(line.find(' ') + 1));
    return texts;
  }

 private:
  Moment now_{{}, *parse_time("2026-01-02T03:04:05Z")};

 public:
  std::shared_ptr<FakeSink> sink;
  Progress progress;
};

}  // namespace dstune::test
