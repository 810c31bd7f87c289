// Writes what follows from tables: docs/keys.md, docs/options.md and docs/space.schema.json, or the
// manual pages and the shells' completions.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

#include "dstune/base/file.hpp"
#include "dstune/space/reference.hpp"
#include "manuals.hpp"

namespace {

void write_docs(const std::string& folder) {
  dstune::write_file_atomically(folder + "/keys.md", dstune::keys_page());
  dstune::write_file_atomically(folder + "/space.schema.json", dstune::space_schema_text());
  dstune::write_file_atomically(folder + "/options.md", dstune::options_page());
}

void write_manuals(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const dstune::Release release{DSTUNE_VERSION,
                                dstune::release_date(std::getenv("SOURCE_DATE_EPOCH"))};
  for (const dstune::Manual& manual : dstune::manuals(release))
    dstune::write_file_atomically(folder + "/" + manual.file, manual.text);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "docs" && what != "manuals") {
    std::cerr << "usage: dstune-reference docs FOLDER\n"
                 "       dstune-reference manuals FOLDER\n";
    return 2;
  }
  try {
    what == "docs" ? write_docs(argv[2]) : write_manuals(argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
