#include "dstune/comm/agreement.hpp"

#include <algorithm>
#include <exception>

namespace dstune {

std::vector<std::string> gather_texts(const Communicator& world, const std::string& mine) {
  const auto* begin = reinterpret_cast<const std::byte*>(mine.data());
  std::vector<std::string> texts;
  for (const Bytes& bytes : world.all_gather({begin, mine.size()}))
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return texts;
}

std::string first_violation(const Communicator& world, const std::function<void()>& work) {
  std::string mine;
  try {
    work();
  } catch (const std::exception& error) {
    mine = error.what();
  }
  const std::vector<std::string> all = gather_texts(world, mine);
  const auto first = std::ranges::find_if_not(all, &std::string::empty);
  if (first == all.end() || first == all.begin()) return all.front();
  return "rank " + std::to_string(first - all.begin()) + ": " + *first;
}

}  // namespace dstune
