#pragma once
/// A block's shared memory, every access to which is watched: whoever reads or writes a word that
/// another thread wrote, or writes one that another thread read, needs a barrier between.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace dstune::test {

class SharedMemory {
 public:
  void clear(std::size_t bytes) {
    bytes_.assign(bytes, std::byte{0xff});
    words_.assign((bytes + word_bytes - 1) / word_bytes, {});
    epoch_ = 1;
  }
  /// All threads were at a barrier.
  void pass_barrier() { ++epoch_; }
  [[nodiscard]] const std::int64_t& epoch() const { return epoch_; }
  /// The first thing that was wrong; empty: nothing.
  [[nodiscard]] const std::string& fault() const { return fault_; }

  template <class T>
  T read(int thread, std::int64_t offset) {
    T value{};
    if (!is_element<T>(thread, offset)) return value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    for (std::size_t i = 0; i < sizeof(T) / word_bytes; ++i) {
      Word& word = words_[static_cast<std::size_t>(offset) / word_bytes + i];
      if (word.written == 0) set_fault("read before it is written", thread, offset);
      if (word.written == epoch_ && word.writer != thread)
        set_fault("a race: read after another thread's write", thread, offset);
      word.reader = word.read == epoch_ && word.reader != thread ? Word::several : thread;
      word.read = epoch_;
    }
    return value;
  }

  template <class T>
  void write(int thread, std::int64_t offset, T value) {
    if (!is_element<T>(thread, offset)) return;
    std::memcpy(bytes_.data() + offset, &value, sizeof(T));
    for (std::size_t i = 0; i < sizeof(T) / word_bytes; ++i) {
      Word& word = words_[static_cast<std::size_t>(offset) / word_bytes + i];
      if (word.written == epoch_ && word.writer != thread)
        set_fault("a race: written after another thread's write", thread, offset);
      if (word.read == epoch_ && word.reader != thread)
        set_fault("a race: written after another thread's read", thread, offset);
      word.writer = thread;
      word.written = epoch_;
    }
  }

 private:
  static constexpr std::size_t word_bytes = 4;

  /// Who was there, and when: epochs are counted by barriers, from 1.
  struct Word {
    static constexpr int several = -1;
    std::int64_t written = 0;
    std::int64_t read = 0;
    int writer = 0;
    int reader = 0;  ///< or several
  };

  template <class T>
  bool is_element(int thread, std::int64_t offset) {
    static_assert(sizeof(T) % word_bytes == 0);
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    if (offset < 0 || offset + size > static_cast<std::int64_t>(bytes_.size())) {
      set_fault("outside the launch's", thread, offset);
      return false;
    }
    if (offset % size != 0) set_fault("not where such an element can be", thread, offset);
    return true;
  }

  void set_fault(const char* what, int thread, std::int64_t offset) {
    if (!fault_.empty()) return;
    fault_ = std::string("shared memory: ") + what + " (thread " + std::to_string(thread) +
             ", byte " + std::to_string(offset) + ")";
  }

  std::vector<std::byte> bytes_;
  std::vector<Word> words_;
  std::int64_t epoch_ = 1;
  std::string fault_;
};

}  // namespace dstune::test
