#include "common/transfer/zip_check.h"

#include <isa-l/crc.h>
#include <zlib.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace dtrain::transfer {
namespace {

constexpr std::size_t kUnpackedBytes = 64 << 10;  // unpacked at a time
constexpr std::size_t kDescriptorBytes = 24;      // at most: mark, CRC-32, two sizes of 8 bytes
constexpr std::string_view kMemberMark{"PK\3\4"}, kDescriptorMark{"PK\7\10"};
constexpr std::uint16_t kComparedFlags = 0x0849;  // encrypted, descriptor, strong encryption, names in UTF-8: others are hints
constexpr std::uint64_t kSeeExtra = 0xffff'ffff;
constexpr std::uint64_t kMostUnpacked = 1040;  // bytes that one deflated byte can become, and a little more

// A stream of deflated bytes without any wrapping.
class Unpacking {
 public:
  Unpacking() : output_(kUnpackedBytes) { good_ = inflateInit2(&stream_, -MAX_WBITS) == Z_OK; }
  ~Unpacking() { (void)inflateEnd(&stream_); }
  Unpacking(const Unpacking&) = delete;
  Unpacking& operator=(const Unpacking&) = delete;

  // Hands the unpacked bytes to `take`, which returns false to stop. False: they are not deflated bytes, or there are more after their end.
  template <class Take>
  bool feed(std::string_view bytes, const Take& take) {
    stream_.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // zlib does not write there
    stream_.avail_in = static_cast<unsigned>(bytes.size());
    for (bool full = true; good_ && (stream_.avail_in > 0 || full);) {
      if (ended_) return stream_.avail_in == 0;
      stream_.next_out = output_.data();
      stream_.avail_out = static_cast<unsigned>(output_.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      ended_ = result == Z_STREAM_END;
      full = stream_.avail_out == 0;
      good_ = ended_ || result == Z_OK || (result == Z_BUF_ERROR && stream_.avail_in == 0);
      good_ = good_ && take(std::string_view(reinterpret_cast<const char*>(output_.data()), output_.size() - stream_.avail_out));
    }
    return good_;
  }
  bool ended() const { return good_ && ended_; }

 private:
  z_stream stream_{};
  std::vector<unsigned char> output_;
  bool good_ = false, ended_ = false;
};

class ZipMemberCheck : public PartCheck {
 public:
  ZipMemberCheck(const ZipMember& member, bool has_crc) : member_(member), has_crc_(has_crc) {
    if (member.method == kZipDeflated) unpacking_.emplace();
  }

  void feed(std::string_view bytes) override {
    if (good_ && !header_read_) read_header(bytes);
    if (!good_ || !header_read_) return;
    const auto packed = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), packed_left_)));
    packed_left_ -= packed.size();
    bytes.remove_prefix(packed.size());
    if (!packed.empty()) good_ = unpacking_ ? unpacking_->feed(packed, [this](std::string_view some) { return take(some); }) : take(packed);
    descriptor_ += bytes.substr(0, kDescriptorBytes - descriptor_.size());
  }

  bool finish() override {
    if (!good_ || !header_read_ || packed_left_ != 0 || unpacked_ != member_.size ||
        (unpacking_ && member_.packed > 0 && !unpacking_->ended()))
      return false;
    if (has_crc_ && crc_ != member_.crc) return false;
    return !(member_.flags & kZipHasDescriptor) || descriptor_agrees();
  }

 private:
  bool take(std::string_view bytes) {
    unpacked_ += bytes.size();
    // zlib's takes longer than reading.
    if (has_crc_) crc_ = ::crc32_gzip_refl(crc_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    return unpacked_ <= member_.size;
  }

  void collect(std::string_view& bytes, std::uint64_t wanted) {
    if (header_.size() >= wanted) return;
    const auto some = bytes.substr(0, static_cast<std::size_t>(wanted - header_.size()));
    header_ += some;
    bytes.remove_prefix(some.size());
  }

  std::uint64_t number(std::size_t at, std::size_t bytes) const { return from_little_endian(std::string_view(header_).substr(at, bytes)); }

  void read_header(std::string_view& bytes) {
    collect(bytes, kZipLocalHeaderBytes);
    if (header_.size() < kZipLocalHeaderBytes) return;
    const std::uint64_t size = kZipLocalHeaderBytes + number(26, 2) + number(28, 2);
    collect(bytes, size);
    if (header_.size() < size) return;
    header_read_ = true;
    good_ = header_agrees() && member_.end - member_.begin - size >= member_.packed && member_.end - member_.begin >= size;
    packed_left_ = member_.packed;
  }

  bool header_agrees() const {
    const std::string_view header = header_;
    const std::uint64_t name = number(26, 2);
    if (!header.starts_with(kMemberMark) || header.substr(kZipLocalHeaderBytes, name) != member_.name) return false;
    if (number(8, 2) != member_.method || ((number(6, 2) ^ member_.flags) & kComparedFlags) != 0) return false;
    std::uint64_t packed = number(18, 4), unpacked = number(22, 4);
    std::string_view wide = zip_extra(header.substr(kZipLocalHeaderBytes + name), kZip64Extra);
    for (std::uint64_t* value : {&unpacked, &packed}) {
      if (*value != kSeeExtra || wide.size() < 8) continue;
      *value = from_little_endian(wide.substr(0, 8));
      wide.remove_prefix(8);
    }
    // With a descriptor the header is written before they are known.
    const bool later = (member_.flags & kZipHasDescriptor) != 0;
    const auto agree = [later](std::uint64_t here, std::uint64_t there) {
      return here == there || (later && (here == 0 || here == kSeeExtra));
    };
    return agree(number(14, 4), member_.crc) && agree(packed, member_.packed) && agree(unpacked, member_.size);
  }

  // With and without a mark, with sizes of 4 and of 8 bytes: writers differ, and nothing says which it is.
  bool descriptor_agrees() const {
    for (const std::size_t width : {4u, 8u}) {
      const std::string plain =
          to_little_endian(member_.crc, 4) + to_little_endian(member_.packed, width) + to_little_endian(member_.size, width);
      if (descriptor_.starts_with(plain) || descriptor_.starts_with(std::string(kDescriptorMark) + plain)) return true;
    }
    return false;
  }

  const ZipMember& member_;
  const bool has_crc_;
  bool good_ = true, header_read_ = false;
  std::string header_, descriptor_;
  std::uint64_t packed_left_ = 0, unpacked_ = 0;
  std::uint32_t crc_ = 0;
  std::optional<Unpacking> unpacking_;
};

class ZipContents : public Contents {
 public:
  ZipContents(ZipDirectory directory, std::string name) : directory_(std::move(directory)), name_(std::move(name)) {
    // torch.serialization.set_crc32_options(False) writes 0 everywhere.
    has_crc_ = std::ranges::any_of(directory_.members, [](const ZipMember& m) { return m.crc != 0; });
  }
  std::size_t part_count() const override { return directory_.members.size(); }
  Part part(std::size_t i) const override {
    const ZipMember& member = directory_.members[i];
    const std::uint64_t cost = member.packed == 0 ? 1 : 1 + std::min(kMostUnpacked, member.size / member.packed);
    return {name_, member.begin, member.end - member.begin, false, cost};
  }
  std::unique_ptr<PartCheck> check(std::size_t i) const override { return zip_member_check(directory_.members[i], has_crc_); }
  std::string damage(std::size_t i) const override {
    return ": member " + directory_.members[i].name + " differs from what the directory of the zip says";
  }

 private:
  const ZipDirectory directory_;
  const std::string name_;
  bool has_crc_ = true;
};

}  // namespace

std::unique_ptr<PartCheck> zip_member_check(const ZipMember& member, bool has_crc) {
  return std::make_unique<ZipMemberCheck>(member, has_crc);
}

Result<std::unique_ptr<Contents>> zip_contents(std::string_view table, std::string name) {
  auto directory = parse_zip_table(table);
  if (!directory) return fail(std::move(directory.error()));
  return std::make_unique<ZipContents>(std::move(*directory), std::move(name));
}

}  // namespace dtrain::transfer
