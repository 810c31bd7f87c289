// Runs every file of the folders that are given through the fuzzer's entry function, so that the
// corpus is a test wherever no fuzzer is built. Fails where an invariant does, and where there is
// no file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "dstune/base/file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      if (entry.is_regular_file()) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    // Named before it runs: a crash leaves no other trace of which file it was.
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    const std::string content = dstune::read_file(path);
    try {
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
    } catch (const std::exception& error) {
      std::printf("failed: %s\n", error.what());
      return 1;
    }
  }
  std::printf("%zu files\n", paths.size());
  return paths.empty() ? 1 : 0;
}
