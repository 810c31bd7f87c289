// Members of a large space counted, named, checked and pruned: space_bench SPACE.json
// Prints members a second, how many are pruned, and the most memory that was held.
#include <chrono>
#include <cstdio>

#include <sys/resource.h>

#include "dstune/space/search_space.hpp"

int main(int argc, char** argv) {
  using namespace dstune;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s SPACE.json\n", argv[0]);
    return 2;
  }
  try {
    const auto start = std::chrono::steady_clock::now();
    const JobSpec job = read_job(argv[1], {}, std::nullopt, 1);
    const SearchSpace space(job);
    std::uint64_t num_pruned = 0;
    std::uint64_t name_bytes = 0;
    space.visit(space.size(), [&](const Member& member) {
      if (member.is_pruned) ++num_pruned;
      name_bytes += member.name.size();
      return true;
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto size = static_cast<double>(space.size());
    std::printf(
        "%.0f members in %.2f s: %.0f a second; %llu pruned; names of %.0f bytes; %.0f MiB\n", size,
        took.count(), size / took.count(), static_cast<unsigned long long>(num_pruned),
        static_cast<double>(name_bytes) / size, static_cast<double>(usage.ru_maxrss) / 1024);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
