// A directory with MANIFEST.json, which lists every other file with its size and digest.
#include "common/transfer/digest.h"
#include "common/transfer/format.h"
#include "common/transfer/manifest.h"

namespace dtrain::transfer {
namespace {

class DigestCheck : public PartCheck {
 public:
  explicit DigestCheck(const std::string& expected) : expected_(expected) {}
  void feed(std::string_view bytes) override { sha_.update(bytes); }
  bool finish() override { return sha_.finish_hex() == expected_; }

 private:
  const std::string& expected_;
  Sha256 sha_;
};

class ManifestContents : public Contents {
 public:
  explicit ManifestContents(Manifest manifest) : manifest_(std::move(manifest)) {
    step = manifest_.step;
    for (const auto& file : manifest_.files) files.push_back({file.name, file.size, true});
  }
  std::size_t part_count() const override { return manifest_.files.size(); }
  Part part(std::size_t i) const override { return {files[i].name, 0, files[i].size, true}; }
  std::unique_ptr<PartCheck> check(std::size_t i) const override { return std::make_unique<DigestCheck>(manifest_.files[i].sha256); }
  std::string damage(std::size_t) const override { return " has another sha256 than the manifest says"; }

 private:
  const Manifest manifest_;
};

Result<std::unique_ptr<Contents>> parse(std::string_view bytes, std::string_view) {
  auto manifest = parse_manifest(bytes);
  if (!manifest) return fail(std::move(manifest.error()));
  return std::make_unique<ManifestContents>(std::move(*manifest));
}

}  // namespace

extern const Format kManifestFormat{
    .name = "manifest",
    .seen_as = "a directory with MANIFEST.json",
    .named_as = "a directory with MANIFEST.json",
    .directory = true,
    .contents_name = [](std::string_view) { return std::string(kManifestName); },
    .contents_bytes = kManifestBytes,
    .parse = parse,
    .is_file_of = [](std::string_view file_name, std::string_view) { return is_inner_name(file_name); },
};

}  // namespace dtrain::transfer
