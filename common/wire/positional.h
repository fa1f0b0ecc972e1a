// Messages whose size and speed matter: structs as msgpack arrays, with fields by position instead of by name.
//
// A struct's order is stated once (wire/gossip_fields.h):
//
//   template <class V> void fields(V& v, Ref<V, Nack> x) { v.number("sequence", x.sequence); }
//
// Three visitors use it: Extent finds how many trailing fields have their default and are left out; Put writes to a
// Writer, or to a Sizer, which only counts; Get reads untrusted input. Fields are only ever appended: a shorter array,
// and nil in any place, leave the default; a longer one is cut. A choice that this version does not know makes Get skip
// the innermost list element that holds it. Get never throws and never CHECKs; names occur only in its errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/member_id.h"
#include "common/wire/codec.h"

namespace dtrain::wire::positional {

template <class V, class T>
using Ref = typename V::template Ref<T>;

inline constexpr std::size_t kIdBytes = 16;

// Counts what a Writer would append.
class Sizer {
 public:
  void array(std::uint32_t size) { total_ += size < 16 ? 1 : size < 65536 ? 3 : 5; }
  void nil() { ++total_; }
  void natural(std::uint64_t value) { total_ += value < 128 ? 1 : value < 256 ? 2 : value < 65536 ? 3 : value <= 0xffffffffu ? 5 : 9; }
  void integer(std::int64_t value) {
    if (value >= 0) return natural(static_cast<std::uint64_t>(value));
    total_ += value >= -32 ? 1 : value >= -128 ? 2 : value >= -32768 ? 3 : value >= INT32_MIN ? 5 : 9;
  }
  void text(std::string_view value) {
    total_ += value.size() + (value.size() < 32 ? 1 : value.size() < 256 ? 2 : value.size() < 65536 ? 3 : 5);
  }
  void binary(std::string_view value) { total_ += value.size() + (value.size() < 256 ? 2 : value.size() < 65536 ? 3 : 5); }
  std::size_t total() const { return total_; }

 private:
  std::size_t total_ = 0;
};

// Text for people as it is sent: printable ASCII, cut at the limit.
inline std::string plain(std::string_view text, std::size_t limit) {
  std::string out(text.substr(0, limit));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

// ---------------------------------------------------------------- writing

// Counts the fields up to the last one that is not its default.
class Extent {
 public:
  template <class T>
  using Ref = const T&;
  template <class T>
  void number(const char*, const T& value) {
    field(value != 0);
  }
  template <class E>
  void choice(const char*, const E& value) {
    field(static_cast<int>(value) != 0);
  }
  void flag(const char*, bool value) { field(value); }
  void id(const char*, const MemberId& value) { field(!value.none()); }
  void word(const char*, const std::string& value, std::size_t) { field(!value.empty()); }
  void prose(const char*, const std::string& value, std::size_t) { field(!value.empty()); }
  void bytes(const char*, const std::string& value, std::size_t) { field(!value.empty()); }
  template <class T>
  void nested(const char*, const T&) {
    field(true);
  }
  template <class T>
  void shared(const char*, const std::shared_ptr<const T>& value) {
    field(value != nullptr);
  }
  template <class T>
  void list(const char*, const std::vector<T>& value, std::size_t) {
    field(!value.empty());
  }
  void keep() { count_ = fields_; }  // count all fields up to here, default or not

  std::uint32_t count() const { return count_; }

 private:
  void field(bool set) {
    ++fields_;
    if (set) count_ = fields_;
  }
  std::uint32_t fields_ = 0, count_ = 0;
};

template <class Sink>
class Put;
template <class Sink, class T>
void put_value(Sink& sink, const T& value);

template <class Sink>
void put_value(Sink& sink, const MemberId& id) {
  if (id.none()) return sink.nil();
  char raw[kIdBytes];
  for (std::size_t i = 0; i < 8; ++i) {
    raw[i] = static_cast<char>(id.high >> (56 - 8 * i));
    raw[8 + i] = static_cast<char>(id.low >> (56 - 8 * i));
  }
  sink.binary({raw, sizeof raw});
}
template <class Sink>
void put_value(Sink& sink, const std::uint64_t& value) {
  sink.natural(value);
}
template <class Sink>
void put_value(Sink& sink, const std::uint16_t& value) {
  sink.natural(value);
}
template <class Sink, class T>
void put_value(Sink& sink, const std::shared_ptr<const T>& value) {
  if (value) put_value(sink, *value);
  else sink.nil();
}
template <class Sink, class T>
void put_value(Sink& sink, const T& value) {
  Extent extent;
  fields(extent, value);
  sink.array(extent.count());
  Put<Sink> put(sink, extent.count());
  fields(put, value);
}

template <class Sink>
class Put {
 public:
  template <class T>
  using Ref = const T&;
  Put(Sink& sink, std::uint32_t count) : sink_(sink), left_(count) {}

  template <class T>
  void number(const char*, const T& value) {
    if (!take()) return;
    if constexpr (std::is_signed_v<T>) sink_.integer(value);
    else sink_.natural(value);
  }
  template <class E>
  void choice(const char*, const E& value) {
    if (take()) sink_.natural(static_cast<std::uint64_t>(value));
  }
  void flag(const char*, bool value) {
    if (take()) sink_.natural(value ? 1 : 0);
  }
  void id(const char*, const MemberId& value) {
    if (take()) put_value(sink_, value);
  }
  void word(const char*, const std::string& value, std::size_t) {
    if (take()) sink_.text(value);
  }
  void prose(const char*, const std::string& value, std::size_t limit) {
    if (take()) sink_.text(plain(value, limit));
  }
  void bytes(const char*, const std::string& value, std::size_t) {
    if (take()) sink_.binary(value);
  }
  template <class T>
  void nested(const char*, const T& value) {
    if (take()) put_value(sink_, value);
  }
  template <class T>
  void shared(const char*, const std::shared_ptr<const T>& value) {
    if (take()) put_value(sink_, value);
  }
  template <class T>
  void list(const char*, const std::vector<T>& value, std::size_t) {
    if (!take()) return;
    sink_.array(static_cast<std::uint32_t>(value.size()));
    for (const T& element : value) put_value(sink_, element);
  }
  void keep() {}

 private:
  bool take() { return left_ > 0 && left_-- > 0; }
  Sink& sink_;
  std::uint32_t left_;
};

// ---------------------------------------------------------------- reading

// What is wrong with a decoded value; nullptr: nothing. Overloads stand beside fields().
template <class T>
const char* defect(T&) {
  return nullptr;
}

bool get_value(Reader r, MemberId& out, DecodeError& error, bool& unknown);
bool get_value(Reader r, std::uint64_t& out, DecodeError& error, bool& unknown);
bool get_value(Reader r, std::uint16_t& out, DecodeError& error, bool& unknown);
template <class T>
bool get_value(Reader r, std::shared_ptr<const T>& out, DecodeError& error, bool& unknown);
// Returns false if `error` says what is wrong. `unknown`: written by a newer version, to be skipped.
template <class T>
bool get_value(Reader r, T& out, DecodeError& error, bool& unknown);

class Get {
 public:
  template <class T>
  using Ref = T&;
  Get(Reader array, DecodeError& error) : array_(array), size_(array.size()), error_(error) {}

  template <class T>
  void number(const char* name, T& out) {
    const auto r = take();
    if (r && !read_value(*r, out, error_)) error_.prefix(name);
  }
  template <class E>
  void choice(const char* name, E& out) {
    std::uint64_t value = static_cast<std::uint64_t>(out);
    number(name, value);
    if (value > static_cast<std::uint64_t>(enum_last(E{}))) unknown_ = true;
    else out = static_cast<E>(value);
  }
  void flag(const char* name, bool& out) {
    std::uint64_t value = out;
    number(name, value);
    out = value != 0;
  }
  void id(const char* name, MemberId& out) { one(name, out); }
  // Printable, without blanks.
  void word(const char* name, std::string& out, std::size_t limit) { text(name, out, limit, '!'); }
  void prose(const char* name, std::string& out, std::size_t limit) { text(name, out, limit, ' '); }
  void bytes(const char* name, std::string& out, std::size_t limit) {
    if (const auto r = text_of(name, limit)) out.assign(*r);
  }
  template <class T>
  void nested(const char* name, T& out) {
    one(name, out);
  }
  template <class T>
  void shared(const char* name, std::shared_ptr<const T>& out) {
    one(name, out);
  }
  template <class T>
  void list(const char* name, std::vector<T>& out, std::size_t limit) {
    const auto r = take();
    if (!r) return;
    if (r->kind() != Reader::Kind::array) return wrong(name, "expected a list");
    if (r->size() > limit) return wrong(name, "more than " + std::to_string(limit) + " elements");
    out.reserve(r->size());
    for (std::uint32_t i = 0; i < r->size(); ++i) {
      T element{};
      bool unknown = false;
      if (!get_value(r->at(i), element, error_, unknown)) {
        error_.prefix(std::to_string(i));
        return error_.prefix(name);
      }
      if (!unknown) out.push_back(std::move(element));
    }
  }
  void keep() {}
  bool unknown() const { return unknown_; }

 private:
  std::optional<Reader> take() {
    if (error_.failed() || unknown_ || next_ >= size_) return std::nullopt;
    const Reader r = array_.at(next_++);
    if (r.kind() == Reader::Kind::nil) return std::nullopt;
    return r;
  }
  template <class T>
  void one(const char* name, T& out) {
    const auto r = take();
    if (r && !get_value(*r, out, error_, unknown_)) error_.prefix(name);
  }
  std::optional<std::string_view> text_of(const char* name, std::size_t limit) {
    const auto r = take();
    if (!r) return std::nullopt;
    if (r->kind() != Reader::Kind::text) return wrong(name, "expected text"), std::nullopt;
    if (r->text().size() > limit) return wrong(name, "longer than " + std::to_string(limit) + " bytes"), std::nullopt;
    return r->text();
  }
  void text(const char* name, std::string& out, std::size_t limit, char lowest) {
    const auto read = text_of(name, limit);
    if (!read) return;
    const auto fits = [lowest](char c) { return c >= lowest && c <= '~'; };
    if (!std::all_of(read->begin(), read->end(), fits)) return wrong(name, "not printable");
    out.assign(*read);
  }
  void wrong(const char* name, const std::string& cause) {
    error_.set(cause);
    error_.prefix(name);
  }

  Reader array_;
  std::uint32_t size_, next_ = 0;
  DecodeError& error_;
  bool unknown_ = false;
};

inline bool get_value(Reader r, MemberId& out, DecodeError& error, bool&) {
  if (r.kind() != Reader::Kind::text || r.text().size() != kIdBytes) return error.set("expected an id of 16 bytes"), false;
  const std::string_view raw = r.text();
  out = {};
  for (std::size_t i = 0; i < 8; ++i) {
    out.high = out.high << 8 | static_cast<unsigned char>(raw[i]);
    out.low = out.low << 8 | static_cast<unsigned char>(raw[8 + i]);
  }
  return true;
}
inline bool get_value(Reader r, std::uint64_t& out, DecodeError& error, bool&) { return read_value(r, out, error); }
inline bool get_value(Reader r, std::uint16_t& out, DecodeError& error, bool&) { return read_value(r, out, error); }
template <class T>
bool get_value(Reader r, std::shared_ptr<const T>& out, DecodeError& error, bool& unknown) {
  T value{};
  if (!get_value(r, value, error, unknown)) return false;
  if (!unknown) out = std::make_shared<const T>(std::move(value));
  return true;
}
template <class T>
bool get_value(Reader r, T& out, DecodeError& error, bool& unknown) {
  if (r.kind() != Reader::Kind::array) return error.set("expected a list"), false;
  Get get(r, error);
  fields(get, out);
  if (error.failed()) return false;
  if (get.unknown()) {
    unknown = true;
    return true;
  }
  if (const char* cause = defect(out)) return error.set(cause), false;
  return true;
}

}  // namespace dtrain::wire::positional
