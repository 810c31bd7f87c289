// The Hjson reader against what the Python package makes of the same texts
// (data/hjson_vectors.json; scripts/tools/check_hjson.py checks the file against the package), and
// against the reader of JSON.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"

namespace dstune::json {
namespace {

/// The value as JSON, or "refused".
std::string read_hjson_text(const std::string& text) {
  try {
    return Document::parse_hjson(text, "f.hjson").root().dump();
  } catch (const InputError&) {
    return "refused";
  }
}

TEST(HjsonVectorsTest, MeanWhatTheyMeanToThePackage) {
  const Document vectors = Document::read(DSTUNE_TEST_DATA "/hjson_vectors.json");
  ASSERT_GE(vectors.root().size(), 250U);
  for (const Value& vector : vectors.root()) {
    const auto& text = vector["text"].get_ref<const std::string&>();
    SCOPED_TRACE(text);
    if (vector.contains("refused")) {
      EXPECT_EQ(read_hjson_text(text), "refused");
      continue;
    }
    const std::string got = read_hjson_text(text);
    ASSERT_NE(got, "refused");
    // Values are compared: the package writes integral floats as integers.
    EXPECT_EQ(Value::parse(got), vector["value"]) << got;
  }
}

TEST(HjsonVectorsTest, FilesOfJsonMeanTheSame) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(DSTUNE_SPACES)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path());
    const std::string text = read_file(entry.path().string());
    const Document json = Document::parse(text, "f.json");
    const Document hjson = Document::parse_hjson(text, "f.hjson");
    EXPECT_EQ(json.root().dump(), hjson.root().dump());
    ++files;
  }
  EXPECT_GE(files, 5U);
}

}  // namespace
}  // namespace dstune::json
