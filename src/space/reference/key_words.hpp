#pragma once
/// Facts of a row in words, which the pages and the schema share. Local.

#include <string>
#include <string_view>

#include "dstune/core/settings.hpp"

namespace dstune {

/// "1, 2", where a knob does not act at all stages.
[[nodiscard]] std::string stages_of(const Knob& knob);
/// The first letter as a capital, unless the text begins with a name, such as `a_key`.
[[nodiscard]] std::string capitalized(std::string_view words);
/// "from 0.17.6; before 0.19.6 default `false`"
[[nodiscard]] std::string releases_of(const Knob& knob);

}  // namespace dstune
