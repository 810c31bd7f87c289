#include "dstune/train/agreement.hpp"

#include <algorithm>
#include <functional>
#include <new>
#include <set>
#include <span>
#include <string_view>

#include "dstune/base/text.hpp"
#include "dstune/kernels/cuda.hpp"

namespace dstune::train {
namespace {

/// Reasons travel through exchange(), which carries numbers: as many characters a number as a
/// double holds exactly, and as many numbers as one exchange takes.
constexpr std::size_t characters_a_number = 6;
constexpr std::size_t numbers_an_exchange = 32;
constexpr std::size_t longest_reason = 4 * characters_a_number * numbers_an_exchange;

double pack(const std::string& text, std::size_t begin) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < characters_a_number && begin + i < text.size(); ++i)
    bits |= std::uint64_t{static_cast<unsigned char>(text[begin + i])} << (8 * i);
  return static_cast<double>(bits);
}

void unpack(double number, std::string& text, std::size_t length) {
  const auto bits = static_cast<std::uint64_t>(number);
  for (std::size_t i = 0; i < characters_a_number && text.size() < length; ++i)
    text.push_back(static_cast<char>(bits >> (8 * i) & 0xFF));
}

/// The sender's text on every rank. Collective over the group.
std::string share_text(ProcessGroup& group, int sender, const std::string& mine,
                       std::size_t length) {
  std::string text;
  for (std::size_t begin = 0; begin < length;) {
    const std::size_t left = (length - begin + characters_a_number - 1) / characters_a_number;
    const std::size_t count = std::min(left, numbers_an_exchange);
    std::array<double, numbers_an_exchange> numbers{};
    for (std::size_t i = 0; i < count && group.group_rank() == sender; ++i)
      numbers[i] = pack(mine, begin + i * characters_a_number);
    const std::vector<double> all = group.exchange(std::span(numbers).first(count));
    for (std::size_t i = 0; i < count; ++i)
      unpack(all[static_cast<std::size_t>(sender) * count + i], text, length);
    begin += count * characters_a_number;
  }
  return text;
}

/// Short enough, and for files and messages whatever a library has said.
std::string cut(std::string reason) {
  if (reason.size() > longest_reason) reason.resize(longest_reason);
  return printable(reason);
}

}  // namespace

Failure attempt(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const CollectiveError&) {
    throw;
  } catch (const RecordedStatus& error) {
    return {error.status(), cut(error.what())};
  } catch (const OutOfMemory& error) {
    return {Status::out_of_memory, cut(error.what())};
  } catch (const kernels::CudaOutOfMemory& error) {
    return {Status::out_of_memory, cut(error.what())};
  } catch (const std::bad_alloc&) {
    return {Status::out_of_memory, "the host refused an allocation"};
  } catch (const std::exception& error) {
    return {Status::failed, cut(error.what())};
  }
}

FailureCode failure_code(const Failure& failure) {
  return {static_cast<double>(failure.status), static_cast<double>(failure.reason.size())};
}

Failure share_failure(ProcessGroup& group, int group_rank, const FailureCode& code,
                      const Failure& mine) {
  const int world_rank = group.world_ranks()[static_cast<std::size_t>(group_rank)];
  const std::string reason =
      share_text(group, group_rank, mine.reason, static_cast<std::size_t>(code[1]));
  return {static_cast<Status>(static_cast<int>(code[0])),
          "rank " + std::to_string(world_rank) + ": " + reason};
}

Failure agree(ProcessGroup& group, const Failure& mine) {
  const std::vector<double> all = group.exchange(failure_code(mine));
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto at = 2 * static_cast<std::size_t>(rank);
    const FailureCode theirs{all[at], all[at + 1]};
    if (theirs[0] != static_cast<double>(Status::ok))
      return share_failure(group, rank, theirs, mine);
  }
  return {};
}

std::vector<std::string> share_lines(ProcessGroup& group, const std::vector<std::string>& mine) {
  constexpr std::size_t longest = 4096;
  std::string text;
  for (const std::string& line : mine)
    if (text.size() + line.size() < longest) text += (text.empty() ? "" : "\n") + printable(line);
  // Equal texts travel once. The hash has as many bits as a double holds exactly.
  const double hash = static_cast<double>(std::hash<std::string>()(text) >> 12);
  const std::vector<double> all =
      group.exchange(std::array{static_cast<double>(text.size()), hash});
  std::set<double> known;
  std::vector<std::string> lines;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto at = 2 * static_cast<std::size_t>(rank);
    if (all[at] == 0 || !known.insert(all[at + 1]).second) continue;
    const std::string theirs = share_text(group, rank, text, static_cast<std::size_t>(all[at]));
    for (const std::string_view line : lines_of(theirs))
      if (std::ranges::find(lines, line) == lines.end()) lines.emplace_back(line);
  }
  return lines;
}

}  // namespace dstune::train
