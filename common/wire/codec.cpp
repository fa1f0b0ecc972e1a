#include "common/wire/codec.h"

#include <algorithm>
#include <msgpack.hpp>

namespace dtrain::wire {
namespace {

struct StringSink {
  std::string& out;
  void write(const char* data, std::size_t size) { out.append(data, size); }
};

const msgpack::object& as_object(const void* p) { return *static_cast<const msgpack::object*>(p); }

}  // namespace

void Writer::map(std::uint32_t size) {
  StringSink sink{out_};
  msgpack::packer<StringSink>(sink).pack_map(size);
}
void Writer::array(std::uint32_t size) {
  StringSink sink{out_};
  msgpack::packer<StringSink>(sink).pack_array(size);
}
void Writer::nil() {
  StringSink sink{out_};
  msgpack::packer<StringSink>(sink).pack_nil();
}
void Writer::boolean(bool value) {
  StringSink sink{out_};
  auto packer = msgpack::packer<StringSink>(sink);
  value ? packer.pack_true() : packer.pack_false();
}
void Writer::integer(std::int64_t value) {
  StringSink sink{out_};
  msgpack::packer<StringSink>(sink).pack_int64(value);
}
void Writer::natural(std::uint64_t value) {
  StringSink sink{out_};
  msgpack::packer<StringSink>(sink).pack_uint64(value);
}
void Writer::text(std::string_view value) {
  StringSink sink{out_};
  auto packer = msgpack::packer<StringSink>(sink);
  packer.pack_str(static_cast<std::uint32_t>(value.size()));
  packer.pack_str_body(value.data(), static_cast<std::uint32_t>(value.size()));
}
void Writer::binary(std::string_view value) {
  StringSink sink{out_};
  auto packer = msgpack::packer<StringSink>(sink);
  packer.pack_bin(static_cast<std::uint32_t>(value.size()));
  packer.pack_bin_body(value.data(), static_cast<std::uint32_t>(value.size()));
}

Reader::Kind Reader::kind() const {
  switch (as_object(object_).type) {
    case msgpack::type::NIL: return Kind::nil;
    case msgpack::type::BOOLEAN: return Kind::boolean;
    case msgpack::type::POSITIVE_INTEGER: return Kind::natural;
    case msgpack::type::NEGATIVE_INTEGER: return Kind::integer;
    case msgpack::type::STR:
    case msgpack::type::BIN: return Kind::text;
    case msgpack::type::ARRAY: return Kind::array;
    case msgpack::type::MAP: return Kind::map;
    default: return Kind::other;
  }
}
bool Reader::boolean() const { return as_object(object_).via.boolean; }
std::int64_t Reader::integer() const { return as_object(object_).via.i64; }
std::uint64_t Reader::natural() const { return as_object(object_).via.u64; }
std::string_view Reader::text() const {
  const auto& o = as_object(object_);
  if (o.type == msgpack::type::BIN) return {o.via.bin.ptr, o.via.bin.size};
  return {o.via.str.ptr, o.via.str.size};
}
std::uint32_t Reader::size() const {
  const auto& o = as_object(object_);
  return o.type == msgpack::type::MAP ? o.via.map.size : o.via.array.size;
}
Reader Reader::at(std::uint32_t i) const {
  const auto& o = as_object(object_);
  if (o.type == msgpack::type::MAP) return Reader(&o.via.map.ptr[i].val);
  return Reader(&o.via.array.ptr[i]);
}
Reader Reader::key_at(std::uint32_t i) const { return Reader(&as_object(object_).via.map.ptr[i].key); }
std::uint32_t Reader::find(std::string_view key, std::uint32_t from) const {
  const std::uint32_t n = size();
  for (std::uint32_t step = 0, i = from < n ? from : 0; step < n; ++step, i = i + 1 < n ? i + 1 : 0) {
    const Reader found = key_at(i);
    if (found.kind() == Kind::text && found.text() == key) return i;
  }
  return n;
}

struct Document::Impl {
  msgpack::object_handle handle;
};

Document::Document(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;
Document::~Document() = default;
Reader Document::root() const { return Reader(&impl_->handle.get()); }

Result<Document> Document::parse(std::string_view bytes, const DecodeLimits& limits) {
  const auto damaged = [](const std::string& cause) {
    return fail(ErrorCode::damaged, "could not decode message: " + cause, "the sender may run another version of dtrain");
  };
  if (bytes.size() > limits.bytes) return damaged("longer than " + std::to_string(limits.bytes) + " bytes");
  // Without limits a 5-byte array header could ask for gigabytes. An element needs at least one byte, so the input's
  // size bounds what can truly follow.
  const std::size_t elements = std::min<std::size_t>(limits.elements, bytes.size());
  const msgpack::unpack_limit unpack_limit(elements, elements, bytes.size(), bytes.size(), 0, limits.depth);
  try {
    auto impl = std::make_unique<Impl>();
    std::size_t offset = 0;
    msgpack::unpack(impl->handle, bytes.data(), bytes.size(), offset, nullptr, nullptr, unpack_limit);
    if (offset != bytes.size()) return damaged("bytes behind the end");
    return Document(std::move(impl));
  } catch (const std::exception& e) {
    return damaged(e.what());
  }
}

void detail::refuse_unknown(const std::vector<bool>& found, Reader map, DecodeError& error) {
  constexpr std::size_t kShown = 64;  // bytes of a key
  const auto unknown = std::find(found.begin(), found.end(), false);
  if (error.failed() || unknown == found.end()) return;
  const Reader key = map.key_at(static_cast<std::uint32_t>(unknown - found.begin()));
  error.set("unknown field " + (key.kind() == Reader::Kind::text ? std::string(key.text().substr(0, kShown)) : "(its name is no text)"));
}

}  // namespace dtrain::wire
