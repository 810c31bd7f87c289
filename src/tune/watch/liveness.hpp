#pragma once
/// A rank decides from these rules whether another of its node still lives, and whether its loss
/// ends this process, too. They know no clock, no process and no memory but what they are told.
/// Local.

#include <cstdint>
#include <optional>
#include <string>

#include "dstune/base/error.hpp"

namespace dstune {

/// One peer, from looks at how often its process has beaten, at equal distances. The looks are
/// counted and not the time: where all ranks of a node are stopped for a while, nobody is missed.
class Liveness {
 public:
  enum class Finding { lives, gone, silent };
  /// After so many looks without a beat it is asked whether there still is a process, and after so
  /// many it counts as stopped.
  static constexpr int quiet_looks = 2, silent_looks = 60;
  /// After so many it is not waited for where the job is over all the same.
  static constexpr int suspect_looks = 20;

  /// `is_gone` is called only where the peer is quiet.
  template <class IsGone>
  Finding look(std::uint64_t beats, IsGone&& is_gone) {
    if (beats != beats_) {
      beats_ = beats;
      num_quiet_ = 0;
      return Finding::lives;
    }
    if (++num_quiet_ < quiet_looks) return Finding::lives;
    if (is_gone()) return Finding::gone;
    return num_quiet_ < silent_looks ? Finding::lives : Finding::silent;
  }

  [[nodiscard]] bool is_suspect() const { return num_quiet_ >= suspect_looks; }

 private:
  std::uint64_t beats_ = 0;
  int num_quiet_ = 0;
};

/// The phase of the job that a rank is in.
enum class JobPhase {
  starting,   ///< it is inside calls that need every rank
  checking,   ///< likewise, in a check, which has no search
  searching,  ///< only rank 0 is needed
  ending      ///< the exit code is decided, and written where it is to be
};

/// A rank that is not there any more.
struct LostRank {
  std::string how;                 ///< "died", "does not answer"
  std::optional<int> exit_code{};  ///< it noted this one before it left
  bool is_gone = false;            ///< its process has ended; else it may be stopped
  int num_looks = 0;               ///< since it was found lost
};

/// After so many looks it is nobody's turn any more to tell what a rank has left with: that takes a
/// message, and what is on its way comes first.
inline constexpr int looks_for_messages = 6;

/// Returns the code with which a rank leaves since that one is lost; nothing where it goes on.
/// `own_code`: the one that is decided, while it ends.
[[nodiscard]] inline std::optional<int> code_after_loss(JobPhase phase, int own_code, int lost_rank,
                                                        const LostRank& lost) {
  if (phase == JobPhase::searching && lost_rank != 0) return std::nullopt;
  if (!lost.exit_code) {
    if (phase == JobPhase::ending) return own_code;
    return static_cast<int>(phase == JobPhase::checking ? ExitCode::no_device
                                                        : ExitCode::stopped_early);
  }
  // Who leaves with 0 has nothing left to do with anybody.
  const bool is_failure = *lost.exit_code != 0 || lost_rank == 0;
  if (phase == JobPhase::ending || !is_failure || lost.num_looks < looks_for_messages)
    return std::nullopt;
  return *lost.exit_code;
}

}  // namespace dstune
