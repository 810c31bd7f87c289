// Writes docs/space.schema.json and the last part of docs/space.md from the tables of keys.
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "dstune/space/reference.hpp"

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) std::cerr << "can not write " << path << '\n';
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: dstune-reference FOLDER  (with space.md)\n";
    return 2;
  }
  const std::string folder = argv[1];
  const std::string page = folder + "/space.md";
  const bool is_written = write(page, dstune::with_reference(read(page))) &&
                          write(folder + "/space.schema.json", dstune::space_schema_text());
  return is_written ? 0 : 1;
}
