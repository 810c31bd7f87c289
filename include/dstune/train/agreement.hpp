#pragma once
/// How a group agrees on a failure: the lowest group rank's that has one, with its reason.

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune::train {

/// A workload's report of an experiment that did not end well: becomes the measurement's status.
class RecordedStatus : public Error {
 public:
  RecordedStatus(Status status, const std::string& reason) : Error(reason), status_(status) {}
  [[nodiscard]] Status status() const { return status_; }

 private:
  Status status_;
};

/// An error on a rank, or on the group.
struct Failure {
  Status status = Status::ok;
  std::string reason;
  [[nodiscard]] explicit operator bool() const { return status != Status::ok; }
};

/// Does the work; what it throws becomes a failure, but a CollectiveError passes. Local.
Failure attempt(const std::function<void()>& work);

/// The numbers that a rank puts into an exchange about its failure, and reads out of it: the
/// status, 0 if all is well, and the reason's bytes.
using FailureCode = std::array<double, 2>;
FailureCode failure_code(const Failure& failure);

/// The failure of `group_rank`, whose code everybody knows, with its reason on every rank:
/// "rank 3: …" by its world rank. Collective over the group.
Failure share_failure(ProcessGroup& group, int group_rank, const FailureCode& code,
                      const Failure& mine);

/// One agreement on nothing else. Collective over the group.
Failure agree(ProcessGroup& group, const Failure& mine);

/// Every rank's lines, each line once, in the order of ranks; of a rank as many as a few thousand
/// characters hold. Collective over the group.
std::vector<std::string> share_lines(ProcessGroup& group, const std::vector<std::string>& mine);

}  // namespace dstune::train
