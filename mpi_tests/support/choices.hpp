#pragma once
/// Texts with choices, for tables and golden files of inputs that are almost alike.

#include <algorithm>
#include <string>
#include <vector>

namespace dstune::test {

/// "a(b|c)" is ab and ac; the choices of the last parentheses vary fastest.
inline std::vector<std::string> spelled_out(const std::string& text) {
  const std::size_t begin = text.find('(');
  if (begin == text.npos) return {text};
  const std::size_t end = text.find(')', begin);
  std::vector<std::string> all;
  for (std::size_t from = begin + 1; from <= end;) {
    const std::size_t to = std::min(text.find('|', from), end);
    const std::string chosen = text.substr(0, begin) + text.substr(from, to - from);
    for (const std::string& one : spelled_out(chosen + text.substr(end + 1))) all.push_back(one);
    from = to + 1;
  }
  return all;
}

/// The answers to all choices, one below the other; a single one where they are all the same.
template <class Answer>
std::string answers_to(const std::string& text, const Answer& answer) {
  std::vector<std::string> answers;
  bool are_same = true;
  for (const std::string& one : spelled_out(text)) {
    answers.push_back(answer(one));
    are_same = are_same && answers.back() == answers.front();
  }
  if (are_same) return answers.front();
  std::string all;
  for (const std::string& each : answers) all += (all.empty() ? "" : "\n") + each;
  return all;
}

}  // namespace dstune::test
