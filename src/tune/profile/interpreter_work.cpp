#include "profile/interpreter_work.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/train/executor.hpp"

namespace dstune {
namespace {

constexpr std::size_t num_objects = 1 << 17;  // of 32 bytes: 4 MB
constexpr std::size_t num_names = 1 << 11;
constexpr std::size_t num_dictionaries = 1 << 7;
constexpr std::size_t num_entries = 1 << 6;  // a dictionary has room for twice as many
constexpr std::size_t num_functions = 1 << 9;
constexpr std::size_t function_length = 1 << 6;
constexpr std::size_t num_slots = 1 << 5;  // what is held at a time
/// So many functions of a few hundred bytes are more than 64 KB.
constexpr std::size_t num_handlers = 256;
constexpr std::size_t num_shapes = 8;

struct Object {
  std::int64_t references = 1;
  std::uint32_t kind = 0;  ///< its dictionary
  std::uint32_t name = 0;
  Object* other = nullptr;
  std::uint64_t value = 0;
};

struct Name {
  std::string text;
  std::uint64_t hash = 0;
};

struct Entry {
  const Name* name = nullptr;
  Object* value = nullptr;
};

struct Instruction {
  std::uint8_t handler = 0;
  std::uint32_t operand = 0;
};

/// Pseudo-random numbers, the same on every machine (Steele et al., OOPSLA 2014: splitmix64).
std::uint64_t next_number(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15U;
  std::uint64_t mixed = state;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31);
}

/// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char one : text) hash = (hash ^ static_cast<unsigned char>(one)) * 0x100000001b3U;
  return hash;
}

class Dictionary {
 public:
  void insert(const Name& name, Object& value) {
    std::size_t at = name.hash % entries_.size();
    while (entries_[at].name != nullptr && entries_[at].name != &name)
      at = (at + 1) % entries_.size();
    entries_[at] = {&name, &value};
  }
  /// By the name itself, as interned strings are found.
  [[nodiscard]] Object* find(const Name& name) const {
    std::size_t at = name.hash % entries_.size();
    while (entries_[at].name != nullptr) {
      if (entries_[at].name == &name) return entries_[at].value;
      at = (at + 1) % entries_.size();
    }
    return nullptr;
  }
  /// By its text.
  [[nodiscard]] Object* find(std::string_view text) const {
    const std::uint64_t hash = hash_of(text);
    std::size_t at = hash % entries_.size();
    while (entries_[at].name != nullptr) {
      if (entries_[at].name->hash == hash && entries_[at].name->text == text)
        return entries_[at].value;
      at = (at + 1) % entries_.size();
    }
    return nullptr;
  }

 private:
  std::array<Entry, 2 * num_entries> entries_{};
};

}  // namespace

struct InterpreterWork::State {
  std::vector<Object> objects;  ///< that stay; the others are on the heap and refer to these alone
  std::vector<Name> names;
  std::vector<Dictionary> dictionaries;
  std::vector<Instruction> code;
  std::array<Object*, num_slots> slots{};
  std::size_t top = 0;
  std::size_t next = 0;  ///< instruction
  std::uint64_t sum = 0;

  State() : objects(num_objects), names(num_names), dictionaries(num_dictionaries) {
    std::uint64_t numbers = 1;
    for (Name& name : names) {
      const std::uint64_t number = next_number(numbers);
      name.text = "name_of_" + std::to_string(number % 100'000);
      name.hash = hash_of(name.text);
    }
    for (Object& object : objects) {
      const std::uint64_t number = next_number(numbers);
      object.kind = static_cast<std::uint32_t>(number % num_dictionaries);
      object.name = static_cast<std::uint32_t>((number >> 16) % num_names);
      object.other = &objects[(number >> 32) % num_objects];
      object.value = next_number(numbers);
    }
    for (Dictionary& dictionary : dictionaries)
      for (std::size_t entry = 0; entry < num_entries; ++entry) {
        const std::uint64_t number = next_number(numbers);
        dictionary.insert(names[number % num_names], objects[(number >> 32) % num_objects]);
      }
    for (std::size_t place = 0; place < num_functions * function_length; ++place) {
      const std::uint64_t number = next_number(numbers);
      code.push_back({static_cast<std::uint8_t>(number % num_handlers),
                      static_cast<std::uint32_t>(number >> 32)});
    }
    for (Object*& slot : slots) slot = take(objects[next_number(numbers) % num_objects]);
  }
  ~State() {
    for (Object* const slot : slots) drop(slot);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static Object* take(Object& object) {
    ++object.references;
    return &object;
  }
  static void drop(Object* object) {
    if (--object->references > 0) return;
    drop(object->other);
    delete object;
  }
  [[nodiscard]] Object& held(std::size_t depth) const {
    return *slots[(top + num_slots - depth) % num_slots];
  }
  void push(Object* owned) {
    top = (top + 1) % num_slots;
    drop(std::exchange(slots[top], owned));
  }
  /// A function has objects of its own that it comes back to.
  [[nodiscard]] Object& object_of(const Instruction& instruction) {
    const std::size_t function = next / function_length;
    return objects[(function * 1021 + instruction.operand % 256) % num_objects];
  }
};

namespace {

/// Each is compiled for itself: they differ in a number that no two have in common.
template <std::size_t number, class State>
void handle(State& state, const Instruction& instruction) {
  constexpr std::size_t shape = number % num_shapes;
  constexpr std::uint64_t odd = 2 * number + 1;
  Object& first = state.held(0);
  Object& second = state.held(1 + number % 5);
  if constexpr (shape == 0) {  // a local variable
    Object& object = state.object_of(instruction);
    object.value += odd;
    state.push(State::take(object));
  } else if constexpr (shape == 1) {  // an attribute, else the object's own name
    const Name& wanted = state.names[(instruction.operand + odd) % num_names];
    Object* found = state.dictionaries[first.kind].find(wanted);
    if (found == nullptr) found = state.dictionaries[second.kind].find(state.names[first.name]);
    state.push(State::take(found == nullptr ? *first.other : *found));
  } else if constexpr (shape == 2) {  // a number in a new object
    const std::uint64_t value = first.kind == second.kind
                                    ? first.value * odd + second.value
                                    : first.value ^ (second.value >> number % 13);
    Object& other = state.object_of(instruction);
    state.push(new Object{1, static_cast<std::uint32_t>(value % num_dictionaries),
                          static_cast<std::uint32_t>(value % num_names), State::take(other),
                          value});
  } else if constexpr (shape == 3) {  // attributes of attributes
    Object* object = &first;
    for (std::size_t hop = 0; hop < 2 + number % 3; ++hop) {
      object = object->other;
      state.sum += object->value * odd;
    }
    state.push(State::take(*object));
  } else if constexpr (shape == 4) {  // a branch
    const std::uint64_t mixed = (first.value * odd) ^ second.value;
    if ((mixed >> number % 29 & 1) != 0) state.next += instruction.operand % 4;
    state.sum ^= mixed;
  } else if constexpr (shape == 5) {  // a call's arguments
    constexpr std::size_t size = 2 + number % 6;
    const auto arguments = std::make_unique<Object*[]>(size);
    for (std::size_t place = 0; place < size; ++place)
      arguments[place] = State::take(state.held(place * (1 + number % 4)));
    for (std::size_t place = 0; place < size; ++place) {
      state.sum += arguments[place]->value * odd >> place;
      State::drop(arguments[place]);
    }
    state.push(State::take(state.object_of(instruction)));
  } else if constexpr (shape == 6) {  // a text that is looked up
    const Name& name = state.names[(first.name + odd) % num_names];
    Object* const found = state.dictionaries[number % num_dictionaries].find(
        std::string_view(name.text).substr(0, name.text.size() - (number % 7 == 0 ? 1 : 0)));
    state.sum += found == nullptr ? odd : found->value;
  } else {  // an attribute that is set
    Object& object = *state.object_of(instruction).other;
    object.value = object.value * odd + first.value;
    object.name = static_cast<std::uint32_t>(object.value % num_names);
  }
}

template <class State>
using Handler = void (*)(State&, const Instruction&);

template <class State, std::size_t... numbers>
constexpr std::array<Handler<State>, sizeof...(numbers)> handlers_of(
    std::index_sequence<numbers...>) {
  return {&handle<numbers, State>...};
}

}  // namespace

InterpreterWork::InterpreterWork() : state_(std::make_unique<State>()) {}
InterpreterWork::~InterpreterWork() = default;

void InterpreterWork::pass() {
  static constexpr auto handlers = handlers_of<State>(std::make_index_sequence<num_handlers>());
  State& state = *state_;
  for (int count = 0; count < pass_instructions; ++count) {
    const Instruction& instruction = state.code[state.next % state.code.size()];
    const std::size_t function = state.next / function_length;
    handlers[instruction.handler](state, instruction);
    if (++state.next / function_length == function) continue;
    // The function is over; the data say which one is called next.
    std::uint64_t seed = state.sum ^ state.held(0).value;
    state.next = next_number(seed) % num_functions * function_length;
  }
}

std::uint64_t InterpreterWork::result() const {
  return state_->sum;
}

void InterpreterTime::pass() {
  constexpr int untimed_passes = 1;
  const double began_s = seconds_by(TraceClock::own);
  work_.pass();
  const double pass_s = seconds_by(TraceClock::own) - began_s;
  if (++passes_ <= untimed_passes) return;
  least_s_ = std::min(least_s_.value_or(pass_s), pass_s);
}

void InterpreterTime::complete(int passes) {
  while (passes_ <= passes) pass();
}

}  // namespace dstune
