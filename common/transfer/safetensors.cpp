#include "common/transfer/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::size_t kNumberBytes = 8;
constexpr std::size_t kHeaderDepth = 8;  // nesting below keys that are not known; deeper: refused

tl::unexpected<Error> bad_tensors(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

// Types of elements and their bits; a type that came later is only not compared with its shape.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 20> kElementBits{
    {{"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F4", 4},
     {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},
     {"U32", 32},    {"F32", 32},    {"F64", 64}, {"I64", 64},    {"U64", 64},    {"C64", 64}}};

struct TensorPlace {
  std::uint64_t begin = 0, end = 0;
  auto operator<=>(const TensorPlace&) const = default;
};

// Fed value by value, so that hostile text builds no tree.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorPlace> places;
  std::string cause;

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ != nullptr) {
      list_->push_back(value);
      return true;
    }
    return scalar();
  }
  bool string(string_t& value) override {
    if (place_ == Place::tensor && key_ == "dtype" && foreign_ == 0) {
      type_ = std::move(value);
      return true;
    }
    return scalar();
  }
  bool start_object(std::size_t) override {
    if (place_ == Place::start) return go_to(Place::header);
    if (place_ == Place::header && foreign_ == 0 && key_ != "__metadata__") {
      type_.reset();
      shape_.clear();
      offsets_.clear();
      return go_to(Place::tensor);
    }
    return deeper();
  }
  bool start_array(std::size_t) override {
    if (list_ != nullptr) return refuse("a list is in a list");
    if (place_ == Place::tensor && foreign_ == 0) {
      if (key_ == "shape") list_ = &shape_;
      if (key_ == "data_offsets") list_ = &offsets_;
      if (list_ != nullptr) {
        list_->clear();
        return true;
      }
    }
    return deeper();
  }
  bool end_object() override {
    if (foreign_ > 0) return shallower();
    if (place_ == Place::header) return go_to(Place::end);
    return end_tensor() && go_to(Place::header);
  }
  bool end_array() override {
    if (std::exchange(list_, nullptr) != nullptr) return true;
    return shallower();
  }
  bool key(string_t& name) override {
    if (foreign_ > 0) return true;
    if (place_ == Place::header && !names_.insert(name).second) return refuse("tensor " + name + " is there twice");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse("its header is not JSON (byte " + std::to_string(position) + ")");
  }

 private:
  enum class Place : unsigned char { start, header, tensor, end };

  bool refuse(std::string why) {
    if (cause.empty()) cause = std::move(why);
    return false;
  }
  bool go_to(Place place) {
    place_ = place;
    return true;
  }
  bool scalar() {
    if (list_ != nullptr) return refuse("tensor " + last_name() + " has a list of something else than sizes");
    return foreign_ > 0 || place_ == Place::tensor || refuse("its header holds something else than tensors");
  }
  bool deeper() {
    if (place_ == Place::start || list_ != nullptr) return refuse("its header is not an object of tensors");
    if (++foreign_ > kHeaderDepth) return refuse("its header is nested too deep");
    return true;
  }
  bool shallower() {
    --foreign_;
    return true;
  }
  std::string last_name() const { return std::to_string(places.size() + 1); }

  bool end_tensor() {
    if (!type_ || offsets_.size() != 2 || offsets_[0] > offsets_[1]) return refuse("tensor " + last_name() + " has no type or place");
    const auto* known = std::ranges::find(kElementBits, std::string_view(*type_), &std::pair<std::string_view, std::uint64_t>::first);
    if (known != kElementBits.end()) {
      std::uint64_t bits = known->second, bytes = 0;
      for (const std::uint64_t size : shape_)
        if (__builtin_mul_overflow(bits, size, &bits)) return refuse("tensor " + last_name() + " is too large");
      bytes = bits / 8;
      if (bits % 8 != 0 || bytes != offsets_[1] - offsets_[0])
        return refuse("tensor " + last_name() + " has another size than its shape says");
    }
    places.push_back({offsets_[0], offsets_[1]});
    return true;
  }

  Place place_ = Place::start;
  std::string key_;
  std::optional<std::string> type_;
  std::vector<std::uint64_t> shape_, offsets_;
  std::vector<std::uint64_t>* list_ = nullptr;  // where the numbers of the list that is open go
  std::size_t foreign_ = 0;                     // depth below a key that is not known
  std::set<std::string> names_;
};

}  // namespace

Result<std::string> read_safetensors_table(FileAccess& files, const std::string& name) {
  const auto size = files.size(name);
  if (!size) return fail(size.error());
  if (*size < kNumberBytes) return bad_tensors("it is cut, or not finished yet");
  const auto length = files.read(name, 0, kNumberBytes);
  if (!length) return length;
  const std::uint64_t header_bytes = from_little_endian(*length);
  if (header_bytes > kSafetensorsHeaderBytes) return bad_tensors("its header is too large");
  if (header_bytes > *size - kNumberBytes) return bad_tensors("it is cut in its header, or not finished yet");
  const auto header = files.read(name, kNumberBytes, header_bytes);
  if (!header) return header;
  const auto samples = read_samples(files, name, kNumberBytes + header_bytes, *size);
  if (!samples) return samples;
  return to_little_endian(*size, kNumberBytes) + *length + *header + *samples;
}

Result<std::unique_ptr<Contents>> safetensors_contents(std::string_view table, std::string name) {
  if (table.size() < 2 * kNumberBytes) return bad_tensors("it is cut, or not finished yet");
  const std::uint64_t size = from_little_endian(table.substr(0, kNumberBytes)),
                      header_bytes = from_little_endian(table.substr(kNumberBytes, kNumberBytes));
  table.remove_prefix(2 * kNumberBytes);
  if (header_bytes > table.size() || size < kNumberBytes || header_bytes > size - kNumberBytes)
    return bad_tensors("it is cut in its header");
  const std::string_view header = table.substr(0, header_bytes);
  if (!header.starts_with('{')) return bad_tensors("its header is not JSON (byte 0)");
  HeaderReader reader;
  try {
    if (!nlohmann::json::sax_parse(header, &reader)) return bad_tensors(reader.cause.empty() ? "its header is not JSON" : reader.cause);
  } catch (const std::exception& e) {
    return bad_tensors(std::string("its header is not JSON: ") + e.what());
  }
  std::ranges::sort(reader.places);
  std::uint64_t covered = 0;
  for (const TensorPlace& place : reader.places) {
    if (place.begin != covered) return bad_tensors("its tensors overlap or leave a hole at byte " + std::to_string(covered) + " of them");
    covered = place.end;
  }
  const std::uint64_t begin = kNumberBytes + header_bytes;
  if (covered != size - begin)
    return bad_tensors("it has " + std::to_string(size - begin) + " bytes of tensors instead of " + std::to_string(covered));
  return std::make_unique<UnprovedBytes>(std::move(name), begin, size);
}

}  // namespace dtrain::transfer
