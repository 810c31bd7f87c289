#pragma once
/// What plans may take of the GPUs once libraries and communicators have taken theirs, which the
/// limit that they were made for could only guess.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "dstune/search/planner.hpp"
#include "dstune/tune/environment_info.hpp"

namespace dstune {

/// The least of the ranks that told: what was free of a GPU at the start, less what it has lost
/// since then. `before_bytes`, `after_bytes`: what it had lost beside the arena, by world rank.
/// Nothing where a rank shares its GPU, since nobody can tell who took what then. Local.
std::optional<std::int64_t> room_on_gpus(const std::vector<RankDevice>& devices,
                                         const std::vector<std::int64_t>& before_bytes,
                                         const std::map<int, std::int64_t>& after_bytes);

/// Makes planned members infeasible that need more of the device than that, unless they have run:
/// those are given. Local.
std::vector<std::size_t> drop_what_lacks_room(PlannedSpace& space, std::int64_t room_bytes,
                                              const std::function<bool(std::size_t)>& has_run);

}  // namespace dstune
