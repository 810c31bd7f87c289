#pragma once
/// Any operation of a plan, and what the catalogue of operations (arithmetic.hpp,
/// communication.hpp) says of it. Code that treats each in its own way takes all of a kind by
/// visit_kind(), so that it does not compile where one is missing. All functions: Local.

#include <array>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "dstune/plan/operations/arithmetic.hpp"
#include "dstune/plan/operations/communication.hpp"

namespace dstune {
namespace op {

template <class... A, class... B, class... C, class... D, class... E>
std::variant<A..., B..., C..., D..., E...> any_of(OperationList<A...>, OperationList<B...>,
                                                  OperationList<C...>, OperationList<D...>,
                                                  OperationList<E...>);

template <class... Ops>
constexpr std::array<OperationTraits, sizeof...(Ops)> traits_of_all(
    std::type_identity<std::variant<Ops...>>) {
  return {Ops::traits...};
}

}  // namespace op

template <class Op, OperationKind kind>
concept OperationOf = Op::traits.kind == kind;

using Operation = decltype(op::any_of(op::Order(), op::Arithmetic(), op::Transfers(),
                                      op::Collectives(), op::Exchanges()));
/// Plans are built by the thousand: an operation is bytes to copy, and nothing to take apart.
static_assert(std::is_trivially_copyable_v<Operation>);

/// Traits by the operation's index.
inline constexpr std::array operation_traits = op::traits_of_all(std::type_identity<Operation>());

[[nodiscard]] inline const OperationTraits& traits_of(const Operation& operation) {
  return operation_traits[operation.index()];
}
[[nodiscard]] inline OperationKind kind_of(const Operation& operation) {
  return traits_of(operation).kind;
}

/// Nothing of what is no collective.
[[nodiscard]] std::optional<op::Collective> collective_of(const Operation& operation,
                                                          int group_size);

/// visitor(operation), of an operation of one of the kinds; nothing of others. The visitor takes
/// each of these kinds, and need take no others.
template <OperationKind... kinds, class Visitor>
void visit_kind(Visitor&& visitor, const Operation& operation) {
  std::visit(
      [&]<class Op>(const Op& one) {
        if constexpr ((... || OperationOf<Op, kinds>)) visitor(one);
      },
      operation);
}

}  // namespace dstune
