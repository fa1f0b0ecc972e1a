#include "tests/sim/trace.h"

#include <cstdio>
#include <cstring>
#include <type_traits>

#include "common/wire/codec.h"
#include "tests/sim/event_fields.h"

namespace dtrain::sim {
namespace {

// Walks over any field type of events and effects and hands the leaves on: naturals and bytes.
template <class Leaf>
struct Walker {
  Leaf& leaf;

  template <class T>
  void operator()(const char* name, const T& value) {
    leaf.name(name);
    walk(value);
  }
  template <class T>
  void operator()(const char* name, const T& value, wire::Since) {
    (*this)(name, value);
  }

  template <class T>
  void walk(const T& value) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      leaf.natural(static_cast<std::uint64_t>(value));
    } else if constexpr (std::is_same_v<T, std::string>) {
      leaf.bytes(value);
    } else if constexpr (std::is_same_v<T, AssignmentId>) {
      leaf.id(value);
    } else if constexpr (std::is_same_v<T, Duration>) {
      leaf.natural(static_cast<std::uint64_t>(value.count()));
    } else if constexpr (std::is_same_v<T, WallTime> || std::is_same_v<T, Instant>) {
      leaf.natural(static_cast<std::uint64_t>(value.time_since_epoch().count()));
    } else if constexpr (wire::detail::is_vector<T>::value) {
      leaf.natural(value.size());
      for (const auto& element : value) walk(element);
    } else if constexpr (wire::detail::is_map<T>::value) {
      leaf.natural(value.size());
      for (const auto& [key, element] : value) {
        walk(key);
        walk(element);
      }
    } else if constexpr (wire::detail::is_optional<T>::value) {
      leaf.natural(value.has_value());
      if (value) walk(*value);
    } else if constexpr (std::is_same_v<T, Status>) {
      leaf.natural(value.has_value());
      if (!value) walk(value.error());
    } else if constexpr (is_result<T>::value) {
      leaf.natural(value.has_value());
      if (value) walk(*value);
      else walk(value.error());
    } else {
      const_cast<T&>(value).fields(*this);  // shared with the codec; only read here
    }
  }

 private:
  template <class T>
  struct is_result : std::false_type {};
  template <class T>
  struct is_result<Result<T>> : std::true_type {};
};

struct HashLeaf {
  std::uint64_t& hash;
  void name(const char*) {}
  void natural(std::uint64_t n) {
    hash = (hash ^ n) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  void bytes(std::string_view text) {
    natural(text.size());
    for (; text.size() >= 8; text.remove_prefix(8)) {
      std::uint64_t word;
      std::memcpy(&word, text.data(), 8);
      natural(word);
    }
    std::uint64_t rest = 0;
    std::memcpy(&rest, text.data(), text.size());
    natural(rest);
  }
  void id(const AssignmentId& id) {
    natural(id.job);
    natural(id.generation);
    bytes(id.task.role);
    natural(id.task.index);
  }
};

struct TextLeaf {
  std::string& out;
  static constexpr std::size_t kShown = 120;
  void name(const char* name) { out += std::string(" ") + name + "="; }
  void natural(std::uint64_t n) { out += std::to_string(static_cast<std::int64_t>(n)) + ","; }
  void bytes(std::string_view text) {
    for (const char c : text.substr(0, kShown)) out += (c >= ' ' && c < 127) ? c : '.';
    if (text.size() > kShown) out += "...(" + std::to_string(text.size()) + ")";
    out += ",";
  }
  void id(const AssignmentId& id) { out += id.text() + ","; }
};

template <class Variant>
void hash_of(std::uint64_t& hash, Instant at, std::size_t host, const Variant& value) {
  HashLeaf leaf{hash};
  if (host != 0) leaf.natural(host);
  leaf.natural(static_cast<std::uint64_t>(at.time_since_epoch().count()));
  leaf.natural(value.index());
  Walker<HashLeaf> walker{leaf};
  std::visit([&](const auto& e) { visit_fields(walker, e); }, value);
}

template <class Variant>
std::string text_of(const Variant& value) {
  std::string fields;
  TextLeaf leaf{fields};
  Walker<TextLeaf> walker{leaf};
  const std::string_view name = std::visit([&](const auto& e) { return visit_fields(walker, e); }, value);
  return std::string(name) + fields;
}

}  // namespace

void Trace::event(Instant at, const node::Event& event) {
  ++events_;
  hash_of(hash_, at, host_, event);
  if (print_) line(at, "->", text_of(event));
}

void Trace::effect(Instant at, const node::Effect& effect) {
  hash_of(hash_, at, host_, effect);
  if (print_) line(at, "<-", text_of(effect));
}

void Trace::note(Instant at, std::string_view text) {
  HashLeaf leaf{hash_};
  leaf.bytes(text);
  if (print_) line(at, "**", text);
}

void Trace::line(Instant at, std::string_view mark, std::string_view text) {
  const std::string host = several_ ? " sim" + std::to_string(host_) : "";
  std::printf("%s%s %.*s %.*s\n", seconds_text(at).c_str(), host.c_str(), static_cast<int>(mark.size()), mark.data(),
              static_cast<int>(text.size()), text.data());
}

}  // namespace dtrain::sim
