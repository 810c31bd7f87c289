#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

class EmbeddingTest : public KernelTest {
 protected:
  std::vector<Buffer> backward(const Values& d_out, const Tokens& tokens, std::int64_t sequence,
                               std::int64_t width, std::int64_t vocabulary,
                               const Values* tokens_before, const Values* positions_before) {
    std::vector<Buffer> d{
        tokens_before != nullptr ? typed(*tokens_before) : poisoned(vocabulary * width),
        positions_before != nullptr ? typed(*positions_before) : poisoned(sequence * width)};
    table().embedding_backward(type(), d[0].data(), d[1].data(), typed(d_out).data(), tokens.data(),
                               static_cast<std::int64_t>(tokens.size()), sequence, width,
                               vocabulary, tokens_before != nullptr, positions_before != nullptr);
    return d;
  }
};

TEST_P(EmbeddingTest, ForwardAddsTokenAndPositionOrType) {
  const std::int64_t vocabulary = 11;
  const std::int64_t sequence = 7;
  for (const std::int64_t width : {48, 65}) {
    for (const bool positions : {true, false}) {
      const auto tokens = random_tokens(2 * sequence, vocabulary, 1);
      const Values token_table = random_values(vocabulary * width, 2);
      const Values position_table = random_values(sequence * width, 3);
      Buffer out = poisoned(2 * sequence * width);
      const Values type_row = random_values(width, 4);
      table().embedding_forward(type(), out.data(), typed(token_table).data(),
                                positions ? typed(position_table).data() : nullptr,
                                positions ? nullptr : typed(type_row).data(), tokens.data(),
                                2 * sequence, sequence, width);
      Values expected;
      for (std::int64_t row = 0; row < 2 * sequence; ++row) {
        for (std::int64_t i = 0; i < width; ++i) {
          const std::int64_t token = tokens[static_cast<std::size_t>(row)];
          double value = token_table[static_cast<std::size_t>(token * width + i)];
          const std::int64_t position = row % sequence;
          value += positions ? position_table[static_cast<std::size_t>(position * width + i)]
                             : type_row[static_cast<std::size_t>(i)];
          expected.push_back(value);
        }
      }
      expect_close(out.values(), expected, tolerance(), "out");
    }
  }
}

TEST_P(EmbeddingTest, BackwardSumsRowsOfEachTokenAndPosition) {
  const std::int64_t sequence = 37;
  const std::int64_t rows = 4 * sequence;
  const std::int64_t vocabulary = 13;
  for (const std::int64_t width : {48, 65, 131}) {
    for (const bool accumulate : {false, true}) {
      const auto tokens = random_tokens(rows, vocabulary - 1, 1);
      const Values d_out = random_values(rows * width, 2);
      const Values tokens_before = random_values(vocabulary * width, 3);
      const Values positions_before = random_values(sequence * width, 4);
      const auto d =
          backward(d_out, tokens, sequence, width, vocabulary,
                   accumulate ? &tokens_before : nullptr, accumulate ? &positions_before : nullptr);
      Values d_tokens = accumulate ? tokens_before : Values(tokens_before.size());
      Values d_positions = accumulate ? positions_before : Values(positions_before.size());
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 0; i < width; ++i) {
          const double value = d_out[static_cast<std::size_t>(row * width + i)];
          const std::int64_t token = tokens[static_cast<std::size_t>(row)];
          d_tokens[static_cast<std::size_t>(token * width + i)] += value;
          d_positions[static_cast<std::size_t>(row % sequence * width + i)] += value;
        }
      }
      // A sum is rounded once to the type, however many rows it has.
      const double once = type() == DType::f32 ? 1e-5 : type() == DType::bf16 ? 0x1p-8 : 0x1p-11;
      expect_close(d[0].values(), d_tokens, once, "d_token_table");
      expect_close(d[1].values(), d_positions, once, "d_position_table");
    }
  }
}

// More rows of a token, and of its neighbours, than any list of them may hold.
TEST_P(EmbeddingTest, BackwardSumsTokensThatAreEverywhere) {
  const std::int64_t rows = 6000;
  const std::int64_t width = 3;
  const std::int64_t vocabulary = 2500;
  Tokens tokens = random_tokens(rows, 2, 1);
  for (std::size_t row = 0; row < 200; ++row) tokens[13 * row] = static_cast<std::int32_t>(7 * row);
  const Values d_out = random_values(rows * width, 2);
  const auto d = backward(d_out, tokens, rows, width, vocabulary, nullptr, nullptr);
  Values d_tokens(static_cast<std::size_t>(vocabulary * width));
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const std::int64_t token = tokens[static_cast<std::size_t>(i / width)];
    d_tokens[static_cast<std::size_t>(token * width + i % width)] +=
        d_out[static_cast<std::size_t>(i)];
  }
  expect_close(d[0].values(), d_tokens, tolerance(), "d_token_table");
}

TEST_P(EmbeddingTest, BackwardIsTheSameInAllWays) {
  const std::int64_t sequence = 128;
  const std::int64_t width = 65;
  const auto tokens = random_tokens(8 * sequence, 50, 1);
  const Values d_out = random_values(8 * sequence * width, 2);
  expect_same_in_all_ways(
      [&] { return backward(d_out, tokens, sequence, width, 51, nullptr, nullptr); });
}

DSTUNE_FOR_TABLES(EmbeddingTest);

}  // namespace
}  // namespace dstune::kernels::test
