#include "kept_choices.hpp"

#include <charconv>
#include <string_view>
#include <utility>

namespace dstune::kernels::cuda {
namespace {

constexpr std::string_view of = " of ";

/// "3 of 24"
std::string text_of_place(std::size_t place, std::size_t offered) {
  return std::to_string(place) + std::string(of) + std::to_string(offered);
}

}  // namespace

std::optional<std::size_t> KeptChoices::find(const std::string& what, std::size_t offered) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(what);
  if (found == known_.end()) return std::nullopt;
  const std::string& text = found->second;
  std::size_t place = 0;
  std::from_chars(text.data(), text.data() + text.size(), place);
  // So a text that is no place is none.
  if (place >= offered || text != text_of_place(place, offered)) return std::nullopt;
  return place;
}

void KeptChoices::keep(const std::string& what, std::size_t place, std::size_t offered) {
  const std::lock_guard lock(mutex_);
  known_[what] = new_[what] = text_of_place(place, offered);
}

CudaChoices KeptChoices::take_new() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_, {});
}

void KeptChoices::adopt(const CudaChoices& choices) {
  const std::lock_guard lock(mutex_);
  for (const auto& [what, place] : choices) {
    new_.erase(what);
    std::string& own = known_[what];
    if (own == place) continue;
    own = place;
    ++revision_;
  }
}

std::uint64_t KeptChoices::revision() const {
  const std::lock_guard lock(mutex_);
  return revision_;
}

}  // namespace dstune::kernels::cuda
