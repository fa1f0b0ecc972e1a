// What Event and Effect have in common: each is one of many structs, and how it is made, copied, moved and destroyed is compiled once,
// in event.cpp and effect.cpp. A variant would have all of that compiled again, for all alternatives, by every file that makes one of them,
// which takes longer than the rest of such a file.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

namespace dtrain::node {

// The index of T among the alternatives, or the number of alternatives if T is none of them.
template <class T, class Variant>
inline constexpr std::size_t kPlaceAmong = 0;
template <class T, class... All>
inline constexpr std::size_t kPlaceAmong<T, std::variant<All...>> = [] {
  std::size_t place = 0;
  (void)((std::is_same_v<T, All> || (++place, false)) || ...);
  return place;
}();

template <class T, class Variant>
concept AlternativeOf = kPlaceAmong<std::remove_cvref_t<T>, Variant> < std::variant_size_v<Variant>;

// A value of one of the alternatives, passed to a function that does not know its type.
struct Alternative {
  template <class Variant, class T>
  static Alternative among(T&& value) {
    return {kPlaceAmong<std::remove_cvref_t<T>, Variant>, &value,
            std::is_lvalue_reference_v<T> || std::is_const_v<std::remove_reference_t<T>>};
  }
  std::size_t place = 0;
  const void* value = nullptr;
  bool copied = false;  // false: the value is moved from
};

template <class Variant, std::size_t place>
Variant made_at(const Alternative& from) {
  using T = std::variant_alternative_t<place, Variant>;
  const T& value = *static_cast<const T*>(from.value);
  if (from.copied) return Variant(std::in_place_index<place>, value);
  return Variant(std::in_place_index<place>, std::move(const_cast<T&>(value)));
}
template <class Variant, std::size_t... places>
Variant made_of(const Alternative& from, std::index_sequence<places...>) {
  static constexpr Variant (*kMakers[])(const Alternative&) = {&made_at<Variant, places>...};
  return kMakers[from.place](from);
}
template <class Variant>
Variant made_of(const Alternative& from) {
  return made_of<Variant>(from, std::make_index_sequence<std::variant_size_v<Variant>>());
}

}  // namespace dtrain::node
