// Writes docs/space.schema.json and the last part of docs/space.md from the tables of keys.
#include <exception>
#include <iostream>
#include <string>

#include "dstune/base/file.hpp"
#include "dstune/space/reference.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: dstune-reference FOLDER  (with space.md)\n";
    return 2;
  }
  try {
    const std::string folder = argv[1];
    const std::string page = folder + "/space.md";
    dstune::write_file_atomically(page, dstune::with_reference(dstune::read_file(page)));
    dstune::write_file_atomically(folder + "/space.schema.json", dstune::space_schema_text());
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
