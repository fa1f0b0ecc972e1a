#include "common/transfer/manifest.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "common/transfer/digest.h"

namespace dtrain::transfer {
namespace {

using Json = nlohmann::json;

// The position of a value in the document. Everything below `foreign` is skipped.
enum class Place : unsigned char { start, document, files, file, foreign };

enum Seen : unsigned { kVersion = 1, kStep = 2, kFiles = 4, kName = 8, kSize = 16, kSha256 = 32 };

// Fed by the JSON parser value by value, so that hostile text builds no tree.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Manifest manifest;
  std::string cause;
  unsigned seen = 0;

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("true or false"); }
  bool number_integer(number_integer_t) override { return scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return scalar("a number with a fraction"); }
  bool binary(binary_t&) override { return scalar("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (is("version")) {
      return value == kManifestVersion ||
             refuse("it has version " + std::to_string(value) + ", known is " + std::to_string(kManifestVersion));
    }
    if (is("step")) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return refuse("its step is too large");
      manifest.step = static_cast<std::int64_t>(value);
      return true;
    }
    if (is("size")) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return refuse("a file's size is too large");
      file().size = value;
      return true;
    }
    return scalar("a number");
  }

  bool string(string_t& value) override {
    if (is("name")) {
      if (value.size() > kManifestNameBytes) return refuse("a file's name is too long");
      if (!is_inner_name(value)) return refuse("it names a file outside the checkpoint");
      if (value == kManifestName) return refuse("it names itself");
      file().name = std::move(value);
      return true;
    }
    if (is("sha256")) {
      for (char& c : value)
        if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
      if (value.size() != 2 * kDigestBytes || value.find_first_not_of("0123456789abcdef") != std::string::npos)
        return refuse("a file's sha256 is not " + std::to_string(2 * kDigestBytes) + " hexadecimal digits");
      file().sha256 = std::move(value);
      return true;
    }
    return scalar("text");
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) return enter(Place::document);
    if (place_ == Place::files) {
      if (manifest.files.size() == kManifestFiles) return refuse("it names more than " + std::to_string(kManifestFiles) + " files");
      manifest.files.emplace_back();
      seen &= ~(kName | kSize | kSha256);
      return enter(Place::file);
    }
    return open_foreign("an object");
  }
  bool start_array(std::size_t) override {
    if (is("files")) return enter(Place::files);
    return open_foreign("a list");
  }
  bool end_object() override {
    if (foreign_depth_ > 0) return leave_foreign();
    if (place_ == Place::file) {
      if (!(seen & kName)) return refuse("a file has no name");
      if (!(seen & kSize) || !(seen & kSha256)) return refuse("file " + file().name + " has no " + (seen & kSize ? "sha256" : "size"));
      place_ = Place::files;
    }
    return true;
  }
  bool end_array() override {
    if (foreign_depth_ > 0) return leave_foreign();
    place_ = Place::document;
    return true;
  }
  bool key(string_t& name) override {
    if (foreign_depth_ > 0) return true;
    key_.clear();
    static constexpr std::array<std::pair<std::string_view, Seen>, 6> kKnown{
        {{"version", kVersion}, {"step", kStep}, {"files", kFiles}, {"name", kName}, {"size", kSize}, {"sha256", kSha256}}};
    for (const auto& [known, bit] : kKnown) {
      if (name != known || (bit >= kName) != (place_ == Place::file)) continue;
      if (seen & bit) return refuse("the key \"" + std::string(known) + "\" is there twice");
      seen |= bit;
      key_ = known;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse("it is not JSON (byte " + std::to_string(position) + ")");
  }

 private:
  bool is(std::string_view key) const { return foreign_depth_ == 0 && place_ != Place::files && key_ == key; }
  ManifestFile& file() { return manifest.files.back(); }
  bool enter(Place place) {
    place_ = place;
    key_.clear();
    return true;
  }
  bool refuse(std::string why) {
    if (cause.empty()) cause = std::move(why);
    return false;
  }
  // A scalar of an unknown key.
  bool scalar(const char* what) {
    if (foreign_depth_ > 0) return true;
    if (place_ == Place::start) return refuse("it is not an object");
    if (place_ == Place::files) return refuse(std::string("\"files\" holds ") + what + " instead of an object");
    return key_.empty() || refuse("\"" + key_ + "\" is " + what);
  }
  bool open_foreign(const char* what) {
    if (foreign_depth_ == 0 && !scalar(what)) return false;
    if (++foreign_depth_ > kManifestDepth) return refuse("it is nested too deep");
    return true;
  }
  bool leave_foreign() {
    --foreign_depth_;
    return true;
  }

  Place place_ = Place::start;
  std::string key_;  // the known key whose value comes next; "": a foreign one
  std::size_t foreign_depth_ = 0;
};

}  // namespace

bool is_inner_name(std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos) return false;
  for (std::size_t start = 0;;) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    const auto component = name.substr(start, end - start);
    if (component.empty() || component == "." || component == "..") return false;
    if (end == name.size()) return true;
    start = end + 1;
  }
}

Result<Manifest> parse_manifest(std::string_view text) {
  const auto damaged = [](std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); };
  if (text.size() > kManifestBytes) return damaged("it is longer than " + std::to_string(kManifestBytes) + " bytes");
  Builder builder;
  try {
    if (!Json::sax_parse(text, &builder)) return damaged(builder.cause.empty() ? "it is not JSON" : builder.cause);
  } catch (const std::exception& e) {
    return damaged(std::string("it is not JSON: ") + e.what());
  }
  for (const auto& [bit, name] : {std::pair{kVersion, "version"}, {kStep, "step"}, {kFiles, "files"}})
    if (!(builder.seen & bit)) return damaged(std::string("its ") + name + " is missing");
  std::set<std::string_view> names;
  for (const auto& file : builder.manifest.files)
    if (!names.insert(file.name).second) return damaged("it names " + file.name + " twice");
  return std::move(builder.manifest);
}

}  // namespace dtrain::transfer
