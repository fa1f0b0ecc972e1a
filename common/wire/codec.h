// The only encoder and decoder of bytes that cross a process or reach a disk: msgpack maps.
//
// A struct names its fields once, in declaration order:
//
//     template <class V> void fields(V& v) { v("name", name); v("replicas", replicas); }
//
// encode(x) is deterministic: equal values give equal bytes (the ledger's replay check relies on it).
// decode<T>(bytes) reads hostile input: sizes are limited before anything is allocated, unknown keys are
// skipped, missing keys leave the field's default, a value of the wrong type or range is an error that names the
// field. It never throws and never CHECKs. decode_strictly<T>(bytes) takes an unknown key for an error, too: what the ledger is
// made of must mean the same to every program that reads it.
//
// A field of the ledger that came after the first release names the version of the ledger that introduced it
// (common/cluster/versions.h): v("name", name, wire::Since{2}). While it has its type's default it is not written, so that older
// programs read what they know. An enumeration whose values came at different times has since_version(E), found by ADL; so has a
// struct whose older fields got a meaning later.
// needed_version(x) says which version x needs: 1 where all of it is of the first release.
//
// Field types: bool, integers, std::string (bin or str on input), enum class with enum_last(E) found by ADL,
// Duration (int64 ns), Instant (int64 ns), WallTime (int64 ms), std::vector and std::deque (the same bytes), std::set, std::map,
// std::optional, nested structs with fields().
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/base/result.h"
#include "common/base/time.h"
#include "common/wire/since.h"

namespace dtrain::wire {

// Of messages between agents. At most five levels are used; newer versions may nest deeper in what older ones skip.
inline constexpr std::uint32_t kMessageDepth = 16;

struct DecodeLimits {
  std::size_t bytes = 8 << 20;       // of the whole input
  std::uint32_t elements = 200'000;  // of one array or map
  std::uint32_t depth = 32;
};

// Appends msgpack primitives to a string.
class Writer {
 public:
  void map(std::uint32_t size);
  void array(std::uint32_t size);
  void nil();
  void boolean(bool value);
  void integer(std::int64_t value);
  void natural(std::uint64_t value);
  void text(std::string_view value);
  void binary(std::string_view value);
  void reserve(std::size_t bytes) { out_.reserve(bytes); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// One value of a parsed input. Cheap to copy; valid while its Document lives.
class Reader {
 public:
  enum class Kind : unsigned char { nil, boolean, integer, natural, text, array, map, other };
  explicit Reader(const void* object) : object_(object) {}
  Kind kind() const;
  bool boolean() const;
  std::int64_t integer() const;
  std::uint64_t natural() const;
  std::string_view text() const;
  std::uint32_t size() const;            // of an array or map
  Reader at(std::uint32_t i) const;      // element of an array, value of a map entry
  Reader key_at(std::uint32_t i) const;  // key of a map entry
  // The first entry with that key, looked for from entry `from` on and then from the beginning; size() if there is none.
  std::uint32_t find(std::string_view key, std::uint32_t from) const;

 private:
  const void* object_;
};

class Document {
 public:
  static Result<Document> parse(std::string_view bytes, const DecodeLimits& limits = {});
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();
  Reader root() const;

 private:
  struct Impl;
  explicit Document(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// ---------------------------------------------------------------- encoding

template <class T>
void write_value(Writer& w, const T& value);
template <class T>
std::string encode(const T& value);

namespace detail {

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};
template <class T>
struct is_vector<std::deque<T>> : std::true_type {};
template <class T>
struct is_optional : std::false_type {};
template <class T>
struct is_optional<std::optional<T>> : std::true_type {};
template <class T>
struct is_map : std::false_type {};
template <class K, class T>
struct is_map<std::map<K, T>> : std::true_type {};

template <class T>
struct is_set : std::false_type {};
template <class T>
struct is_set<std::set<T>> : std::true_type {};

// True if a later field holds its type's default, and so is not written.
template <class T>
bool is_empty(const T& value) {
  if constexpr (is_vector<T>::value || is_set<T>::value || is_map<T>::value || std::is_same_v<T, std::string>) {
    return value.empty();
  } else if constexpr (is_optional<T>::value) {
    return !value;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, Duration> || std::is_same_v<T, Instant> ||
                       std::is_same_v<T, WallTime>) {
    return value == T{};
  } else {
    static const std::string empty = encode(T{});
    return encode(value) == empty;
  }
}

struct FieldCounter {
  std::uint32_t count = 0;
  template <class T>
  void operator()(const char*, const T&) {
    ++count;
  }
  template <class T>
  void operator()(const char*, const T& value, Since) {
    if (!is_empty(value)) ++count;
  }
};

struct FieldWriter {
  Writer& w;
  template <class T>
  void operator()(std::string_view name, const T& value) {
    w.text(name);
    write_value(w, value);
  }
  template <class T>
  void operator()(std::string_view name, const T& value, Since) {
    if (!is_empty(value)) (*this)(name, value);
  }
};

}  // namespace detail

template <class T>
void write_value(Writer& w, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    w.boolean(value);
  } else if constexpr (std::is_enum_v<T>) {
    w.natural(static_cast<std::uint64_t>(value));
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    w.integer(value);
  } else if constexpr (std::is_integral_v<T>) {
    w.natural(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    w.text(value);
  } else if constexpr (std::is_same_v<T, Duration>) {
    w.integer(value.count());
  } else if constexpr (std::is_same_v<T, Instant> || std::is_same_v<T, WallTime>) {
    w.integer(value.time_since_epoch().count());
  } else if constexpr (detail::is_vector<T>::value || detail::is_set<T>::value) {
    w.array(static_cast<std::uint32_t>(value.size()));
    for (const auto& element : value) write_value(w, element);
  } else if constexpr (detail::is_optional<T>::value) {
    if (value) write_value(w, *value);
    else w.nil();
  } else if constexpr (detail::is_map<T>::value) {
    w.map(static_cast<std::uint32_t>(value.size()));
    for (const auto& [key, element] : value) {
      write_value(w, key);
      write_value(w, element);
    }
  } else {
    auto& fielded = const_cast<T&>(value);  // fields() is shared with the decoder; it only reads here
    detail::FieldCounter counter;
    fielded.fields(counter);
    w.map(counter.count);
    detail::FieldWriter writer{w};
    fielded.fields(writer);
  }
}

template <class T>
std::string encode(const T& value) {
  Writer w;
  write_value(w, value);
  return w.take();
}

// ---------------------------------------------------------------- what a value needs

namespace detail {

template <class T>
void raise_needed(const T& value, std::uint32_t& version);

struct FieldNeeds {
  std::uint32_t& version;
  template <class T>
  void operator()(const char*, const T& value) {
    raise_needed(value, version);
  }
  template <class T>
  void operator()(const char*, const T& value, Since since) {
    if (is_empty(value)) return;
    version = std::max(version, since.version);
    raise_needed(value, version);
  }
};

template <class T>
void raise_needed(const T& value, std::uint32_t& version) {
  if constexpr (std::is_enum_v<T>) {
    if constexpr (requires { since_version(value); }) version = std::max(version, since_version(value));
  } else if constexpr (is_vector<T>::value || is_set<T>::value) {
    for (const auto& element : value) raise_needed(element, version);
  } else if constexpr (is_optional<T>::value) {
    if (value) raise_needed(*value, version);
  } else if constexpr (is_map<T>::value) {
    for (const auto& [key, element] : value) {
      raise_needed(key, version);
      raise_needed(element, version);
    }
  } else if constexpr (requires(T & fielded, FieldNeeds & visitor) { fielded.fields(visitor); }) {
    if constexpr (requires { since_version(value); }) version = std::max(version, since_version(value));
    FieldNeeds visitor{version};
    const_cast<T&>(value).fields(visitor);  // fields() is shared with the decoder; it only reads here
  }
}

}  // namespace detail

template <class T>
std::uint32_t needed_version(const T& value) {
  std::uint32_t version = 1;
  detail::raise_needed(value, version);
  return version;
}

// ---------------------------------------------------------------- decoding

// Collects the first error together with the path of the field it happened at.
class DecodeError {
 public:
  explicit DecodeError(bool strict = false) : strict_(strict) {}
  bool strict() const { return strict_; }  // an unknown key is an error
  void set(std::string_view cause) {
    if (!failed_) cause_ = cause;
    failed_ = true;
  }
  void prefix(std::string_view name) { path_ = path_.empty() ? std::string(name) : std::string(name) + "." + path_; }
  bool failed() const { return failed_; }
  std::string text() const { return path_.empty() ? cause_ : path_ + ": " + cause_; }

 private:
  bool strict_ = false;
  bool failed_ = false;
  std::string cause_, path_;
};

template <class T>
bool read_value(Reader r, T& out, DecodeError& error);

namespace detail {

struct FieldReader {
  Reader map;
  DecodeError& error;
  std::uint32_t hint = 0;  // fields usually arrive in declaration order
  std::vector<bool> found = std::vector<bool>(error.strict() ? map.size() : 0);

  template <class T>
  void operator()(std::string_view name, T& out, Since) {
    (*this)(name, out);
  }
  template <class T>
  void operator()(std::string_view name, T& out) {
    if (error.failed()) return;
    const std::uint32_t i = map.find(name, hint);
    if (i == map.size()) return;
    hint = i + 1;
    if (error.strict()) found[i] = true;
    if (!read_value(map.at(i), out, error)) error.prefix(name);
  }
};

// The first key that no field has, or that came twice, is an error.
void refuse_unknown(const std::vector<bool>& found, Reader map, DecodeError& error);

template <class T>
bool read_integer(Reader r, T& out, DecodeError& error) {
  if (r.kind() == Reader::Kind::natural) {
    const std::uint64_t value = r.natural();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return error.set("number too large"), false;
    out = static_cast<T>(value);
    return true;
  }
  if (r.kind() == Reader::Kind::integer) {
    const std::int64_t value = r.integer();
    if constexpr (std::is_unsigned_v<T>) {
      return error.set("negative number"), false;
    } else {
      if (value < std::numeric_limits<T>::min()) return error.set("number too small"), false;
      out = static_cast<T>(value);
      return true;
    }
  }
  return error.set("expected a number"), false;
}

}  // namespace detail

template <class T>
bool read_value(Reader r, T& out, DecodeError& error) {
  using Kind = Reader::Kind;
  if constexpr (std::is_same_v<T, bool>) {
    if (r.kind() != Kind::boolean) return error.set("expected true or false"), false;
    out = r.boolean();
    return true;
  } else if constexpr (std::is_enum_v<T>) {
    std::uint32_t number = 0;
    if (!detail::read_integer(r, number, error)) return false;
    if (number > static_cast<std::uint32_t>(enum_last(T{}))) return error.set("unknown value"), false;
    out = static_cast<T>(number);
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return detail::read_integer(r, out, error);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (r.kind() != Kind::text) return error.set("expected text"), false;
    out.assign(r.text());
    return true;
  } else if constexpr (std::is_same_v<T, Duration>) {
    std::int64_t count = 0;
    if (!detail::read_integer(r, count, error)) return false;
    out = Duration(count);
    return true;
  } else if constexpr (std::is_same_v<T, Instant> || std::is_same_v<T, WallTime>) {
    std::int64_t count = 0;
    if (!detail::read_integer(r, count, error)) return false;
    out = T(typename T::duration(count));
    return true;
  } else if constexpr (detail::is_vector<T>::value) {
    if (r.kind() != Kind::array) return error.set("expected a list"), false;
    out.clear();
    const std::uint32_t n = r.size();
    for (std::uint32_t i = 0; i < n; ++i) {
      typename T::value_type element{};
      if (!read_value(r.at(i), element, error)) return error.prefix(std::to_string(i)), false;
      out.push_back(std::move(element));
    }
    return true;
  } else if constexpr (detail::is_set<T>::value) {
    if (r.kind() != Kind::array) return error.set("expected a list"), false;
    out.clear();
    const std::uint32_t n = r.size();
    for (std::uint32_t i = 0; i < n; ++i) {
      typename T::key_type element{};
      if (!read_value(r.at(i), element, error)) return error.prefix(std::to_string(i)), false;
      out.insert(std::move(element));
    }
    return true;
  } else if constexpr (detail::is_optional<T>::value) {
    if (r.kind() == Kind::nil) {
      out.reset();
      return true;
    }
    out.emplace();
    return read_value(r, *out, error);
  } else if constexpr (detail::is_map<T>::value) {
    if (r.kind() != Kind::map) return error.set("expected a map"), false;
    out.clear();
    const std::uint32_t n = r.size();
    for (std::uint32_t i = 0; i < n; ++i) {
      typename T::key_type key{};
      if (!read_value(r.key_at(i), key, error)) return false;
      typename T::mapped_type element{};
      if (!read_value(r.at(i), element, error)) return error.prefix(std::to_string(i)), false;
      out.insert_or_assign(std::move(key), std::move(element));
    }
    return true;
  } else {
    if (r.kind() != Kind::map) return error.set("expected a map"), false;
    detail::FieldReader reader{r, error};
    out.fields(reader);
    if (error.strict()) detail::refuse_unknown(reader.found, r, error);
    return !error.failed();
  }
}

template <class T>
Result<T> decode(std::string_view bytes, const DecodeLimits& limits = {}, bool strictly = false) {
  auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  T out{};
  DecodeError error(strictly);
  if (!read_value(document->root(), out, error))
    return fail(ErrorCode::damaged, "could not decode message: " + error.text(), "the sender may run another version of dtrain");
  return out;
}
template <class T>
Result<T> decode_strictly(std::string_view bytes, const DecodeLimits& limits = {}) {
  return decode<T>(bytes, limits, true);
}

}  // namespace dtrain::wire
