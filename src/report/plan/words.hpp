#pragma once
/// Words and numbers that the parts of a printed plan share. Local.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/report/dry_run.hpp"

namespace dstune::plan_words {

/// The verdict on a member: the planner's where it has one. One that can not run is taken for one
/// that does not fit; a pruned one has none.
[[nodiscard]] MemoryVerdict verdict_of(const PlannedExperiment& planned);
/// "fits", "at the edge", "does not fit", "not known".
[[nodiscard]] std::string_view verdict_text(MemoryVerdict verdict);

/// The bytes that a verdict is about: the target's, of our own step where that is the target.
[[nodiscard]] std::int64_t judged_bytes(const Prediction& predicted);
/// "71.2 of 79.2 GiB"; without a limit "71.2 GiB".
[[nodiscard]] std::string memory_words(std::int64_t bytes, std::int64_t limit_bytes);
/// Bytes of a node's host memory that the target offloads to; 0: none.
[[nodiscard]] std::int64_t node_host_bytes(const PlannedExperiment& planned);

/// At most three digits that count: "2.12", "1230".
[[nodiscard]] std::string short_number(double value);
/// The band of a speed in samples/s, or its one number: "2.1 to 3.2" with " to " between both ends.
/// Empty where there is none.
[[nodiscard]] std::string speed_words(const Prediction& predicted, std::string_view between);
/// "8 GPUs", or "8 ranks" on processors.
[[nodiscard]] std::string ranks_words(const DryRun& plan, int ranks);

/// Ranks that tuning keeps: the machine's, or as many as the largest planned member needs.
[[nodiscard]] int tuning_ranks(const DryRun& plan);

/// Its memory, that of hosts, and its speed: "71.2 of 79.2 GiB, 2.1 to 3.2 samples/s"; maybe empty.
[[nodiscard]] std::string details_of(const DryRun& plan, const PlannedExperiment& planned);
/// The name with the details: "z3_tmbspg8 (71.2 of 79.2 GiB)", or "z3_tmbspg8: 71.2 of 79.2 GiB"
/// with ": " between them. The details alone of what has no name.
[[nodiscard]] std::string described(const DryRun& plan, const PlannedExperiment& planned,
                                    std::string_view between = " ");

/// A sentence without its parts in brackets.
[[nodiscard]] std::string without_brackets(std::string text);
/// The number of characters of a text in UTF-8.
[[nodiscard]] std::size_t num_characters(std::string_view text);
/// The text in lines of at most `width` characters, cut at blanks; 0: one line.
[[nodiscard]] std::vector<std::string> wrapped(std::string text, std::size_t width);

}  // namespace dstune::plan_words
