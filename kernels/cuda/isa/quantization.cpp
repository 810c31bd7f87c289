// Numbers of 8 or 4 bits with a scale for each run of them: ZeRO++'s traffic.
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// A pack of codes, which moves at once.
template <int Bits>
struct alignas(Bits) CodePack {
  std::uint8_t bytes[Bits];

  explicit DSTUNE_FUNCTION CodePack(const Values<pack>& codes) {
    for (int k = 0; k < Bits; ++k) {
      if constexpr (Bits == 8) {
        bytes[k] = static_cast<std::uint8_t>(static_cast<std::int8_t>(codes.of[k]));
      } else {
        bytes[k] =
            byte_of(static_cast<int>(codes.of[2 * k]), static_cast<int>(codes.of[2 * k + 1]));
      }
    }
  }
};

/// A code among those from `codes` on.
template <int Bits>
DSTUNE_FUNCTION float code_at(const std::uint8_t* codes, std::int64_t index) {
  const int byte = codes[index * Bits / 8];
  if (Bits == 8) return static_cast<std::int8_t>(byte);
  return index % 2 == 0 ? low_code(byte) : high_code(byte);
}

/// A block has a run, a whole number of packs, and reads it twice: for its scale and for its codes.
template <int Bits>
struct Quantization {
  std::uint8_t* codes;
  float* scales;
  Input x;
  std::int64_t width;

  template <int N>
  DSTUNE_DEVICE Values<pack> load(std::int64_t index) const {
    if constexpr (N == pack) {
      return x.load<pack>(index);
    } else {
      Values<pack> values;
      for (int k = 0; k < pack; ++k) values.of[k] = x[index + k];
      return values;
    }
  }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t run) const {
    const std::int64_t begin = run * width;
    float largest = 0.0F;
    float non_finite = 0.0F;  // or NaN, where one of them is not finite
    for_row<pack>(block, width, [&](std::int64_t i) {
      const Values<pack> values = load<N>(begin + i);
      for (int k = 0; k < pack; ++k) {
        const float value = to_half(values.of[k]);
        largest = larger(largest, larger(value, -value));
        non_finite += value - value;
      }
    });
    largest = block_largest(block, largest);
    const float factor = factor_of_run(largest + block_sum(block, non_finite), Bits);
    if (block.thread() == 0) scales[run] = 1.0F / factor;
    for_row<pack>(block, width, [&](std::int64_t i) {
      Values<pack> values = load<N>(begin + i);
      for (int k = 0; k < pack; ++k) values.of[k] = codes_of(values.of[k], factor, Bits);
      const CodePack<Bits> of_pack(values);
      std::uint8_t* const to = codes + (begin + i) / pack * Bits;
      if constexpr (N == pack) {
        at_once<CodePack<Bits>>(to) = of_pack;
      } else {
        for (int k = 0; k < Bits; ++k) to[k] = of_pack.bytes[k];
      }
    });
  }
};

template <int Bits>
struct Dequantization {
  Output y;
  const std::uint8_t* codes;
  const float* scales;
  std::int64_t count, group_elements;
  int parts, divisor;

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    const std::int64_t group = i / group_elements;
    Values<N> sum{};
    for (std::int64_t part = 0; part < parts; ++part) {
      const float scale = scales[part * (count / group_elements) + group];
      const std::int64_t index = part * count + i;
      if constexpr (N == pack) {
        const auto of_pack = at_once<CodePack<Bits>>(codes + index / pack * Bits);
        for (int k = 0; k < pack; ++k)
          sum.of[k] += to_half(code_at<Bits>(of_pack.bytes, k) * scale);
      } else {
        sum.of[0] += to_half(code_at<Bits>(codes, index) * scale);
      }
    }
    for (int k = 0; k < N; ++k) sum.of[k] /= static_cast<float>(divisor);
    y.store(i, sum);
  }
};

}  // namespace

void quantize(DType from, int bits, void* codes, float* scales, const void* x, std::int64_t count,
              std::int64_t group_elements) {
  with_either<8, 4>(bits == 8, [&](auto known) {
    const Quantization<known> body{
        static_cast<std::uint8_t*>(codes), scales, {x, from}, group_elements};
    for_rows(count / group_elements, group_elements, body,
             are_rows_packed(group_elements, group_elements, x, codes));
  });
}

void dequantize(DType to, int bits, void* y, const void* codes, const float* scales,
                std::int64_t count, std::int64_t group_elements, int parts, int divisor) {
  with_either<8, 4>(bits == 8, [&](auto known) {
    const Dequantization<known> body{
        {y, to}, static_cast<const std::uint8_t*>(codes), scales, count, group_elements, parts,
        divisor};
    for_elements(count, body, are_packed(y, codes));
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
