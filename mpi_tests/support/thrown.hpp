#pragma once
/// The exceptions of a piece of work.

#include <string>

#include "dstune/base/error.hpp"

namespace dstune::test {

/// The words of the exception of a kind; empty where none is thrown.
template <class Kind, class Work>
std::string thrown(Work&& work) {
  try {
    work();
  } catch (const Kind& error) {
    return error.what();
  }
  return {};
}

/// The cause that ended the collective in the work.
template <class Work>
CollectiveError::Cause why_ended(Work&& work) {
  try {
    work();
  } catch (const CollectiveError& error) {
    return error.why();
  }
  throw LogicError("nothing ended it");
}

}  // namespace dstune::test
