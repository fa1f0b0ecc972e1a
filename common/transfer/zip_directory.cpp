#include "common/transfer/zip_directory.h"

#include <algorithm>
#include <optional>

namespace dtrain::transfer {
namespace {

constexpr std::string_view kLocalMark{"PK\3\4"}, kEntryMark{"PK\1\2"}, kEndMark{"PK\5\6"}, kEnd64Mark{"PK\6\6"}, kLocatorMark{"PK\6\7"};
constexpr std::size_t kMarkBytes = 4;
constexpr std::size_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kCommentBytes = 65'535;
constexpr std::size_t kPlaceBytes = 16;
constexpr std::size_t kUsualTail = 4096;  // zips of training scripts have no comment
constexpr std::uint16_t kEncrypted = 1;
constexpr std::uint64_t kFull16 = 0xffff, kFull32 = 0xffff'ffff;  // "see the ZIP64 record"

tl::unexpected<Error> broken_zip(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

// One number of a record: `at` and `bytes` are within it.
std::uint64_t number_in(std::string_view record, std::size_t at, std::size_t bytes) { return from_little_endian(record.substr(at, bytes)); }

// What the end says. `records` is where it begins, in the same bytes.
struct ZipEnd {
  std::uint64_t count = 0, directory_bytes = 0, directory_at = 0;
  std::size_t records = 0;
};

// In the last bytes of a zip. nullopt: there is no end, or one that contradicts itself.
std::optional<ZipEnd> find_end(std::string_view tail) {
  for (std::size_t comment = 0; comment <= kCommentBytes && kEndBytes + comment <= tail.size(); ++comment) {
    const std::size_t at = tail.size() - comment - kEndBytes;
    const std::string_view record = tail.substr(at, kEndBytes);
    if (!record.starts_with(kEndMark) || number_in(record, 20, 2) != comment) continue;
    ZipEnd end{number_in(record, 10, 2), number_in(record, 12, 4), number_in(record, 16, 4), at};
    bool whole = number_in(record, 8, 2) == end.count && number_in(record, 4, 2) == number_in(record, 6, 2);
    whole = whole && (number_in(record, 4, 2) == 0 || number_in(record, 4, 2) == kFull16);
    if (at < kLocatorBytes || !tail.substr(at - kLocatorBytes).starts_with(kLocatorMark)) {
      whole = whole && number_in(record, 4, 2) == 0;
      return whole ? std::optional(end) : std::nullopt;
    }
    const std::string_view locator = tail.substr(at - kLocatorBytes, kLocatorBytes);
    if (at < kLocatorBytes + kEnd64Bytes) return std::nullopt;
    end.records = at - kLocatorBytes - kEnd64Bytes;
    const std::string_view big = tail.substr(end.records, kEnd64Bytes);
    whole = whole && big.starts_with(kEnd64Mark) && number_in(big, 4, 8) == kEnd64Bytes - 12 && number_in(locator, 4, 4) == 0;
    whole = whole && number_in(locator, 16, 4) <= 1 && number_in(big, 16, 4) == 0 && number_in(big, 20, 4) == 0;
    const ZipEnd wide{number_in(big, 32, 8), number_in(big, 40, 8), number_in(big, 48, 8), end.records};
    const auto agree = [](std::uint64_t narrow, std::uint64_t full, std::uint64_t value) { return narrow == full || narrow == value; };
    whole = whole && number_in(big, 24, 8) == wide.count && agree(end.count, kFull16, wide.count);
    whole = whole && agree(end.directory_bytes, kFull32, wide.directory_bytes) && agree(end.directory_at, kFull32, wide.directory_at);
    whole = whole && number_in(locator, 8, 8) >= wide.directory_at && number_in(locator, 8, 8) - wide.directory_at == wide.directory_bytes;
    return whole ? std::optional(wide) : std::nullopt;
  }
  return std::nullopt;
}

// The values of the ZIP64 field stand for those that are full, in this order.
bool widen(ZipMember& member, std::string_view field) {
  for (std::uint64_t* value : {&member.size, &member.packed, &member.begin}) {
    if (*value != kFull32) continue;
    if (field.size() < 8) return false;
    *value = from_little_endian(field.substr(0, 8));
    field.remove_prefix(8);
  }
  return true;
}

}  // namespace

std::uint64_t from_little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

std::string to_little_endian(std::uint64_t number, std::size_t bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> 8 * i));
  return out;
}

std::string_view zip_extra(std::string_view extra, std::uint16_t id) {
  while (extra.size() >= 4) {
    const std::uint64_t size = number_in(extra, 2, 2);
    if (size > extra.size() - 4) break;
    if (number_in(extra, 0, 2) == id) return extra.substr(4, size);
    extra.remove_prefix(4 + size);
  }
  return {};
}

Result<std::string> read_zip_table(FileAccess& files, const std::string& name, std::uint64_t end) {
  std::optional<ZipEnd> found;
  std::uint64_t tail_begin = 0;
  for (const std::size_t most : {kUsualTail, kEnd64Bytes + kLocatorBytes + kEndBytes + kCommentBytes}) {
    tail_begin = end - std::min<std::uint64_t>(end, most);
    const auto tail = files.read(name, tail_begin, end - tail_begin);
    if (!tail) return fail(tail.error());
    found = find_end(*tail);
    if (found || tail_begin == 0) break;
  }
  if (!found) {
    const auto head = files.read(name, 0, std::min<std::uint64_t>(end, kMarkBytes));
    if (!head) return fail(head.error());
    if (!head->empty() && kLocalMark.starts_with(*head)) return broken_zip("its end is missing: it is cut, or not finished yet");
    const bool pickle = head->starts_with('\x80');
    return fail(ErrorCode::refused, pickle ? "it is a bare pickle, as torch.save wrote before version 1.6: nothing in it can be verified"
                                           : "it is not a zip file");
  }
  const std::uint64_t records = tail_begin + found->records;
  if (found->directory_bytes > records || found->directory_at > records - found->directory_bytes)
    return broken_zip("its end names a directory that is not there");
  const std::uint64_t directory = records - found->directory_bytes, begin = directory - found->directory_at;
  auto bytes = files.read(name, directory, end - directory);
  if (!bytes) return bytes;
  return to_little_endian(begin, 8) + to_little_endian(end, 8) + *bytes;
}

ZipPlace zip_place(std::string_view table) {
  if (table.size() < kPlaceBytes) return {};
  return {number_in(table, 0, 8), number_in(table, 8, 8)};
}

Result<ZipDirectory> parse_zip_table(std::string_view table) {
  const ZipPlace place = zip_place(table);
  table.remove_prefix(std::min(table.size(), kPlaceBytes));
  const auto end = find_end(table);
  if (!end || end->directory_bytes != end->records || place.end < place.begin || place.end - place.begin < table.size() ||
      end->directory_at != place.end - place.begin - table.size())
    return broken_zip("its end names a directory that is not there");
  if (end->count > kZipMembers) return broken_zip("it has more than " + std::to_string(kZipMembers) + " members");
  std::string_view rest = table.substr(0, end->records);
  ZipDirectory directory;
  const auto at_member = [&] { return "member " + std::to_string(directory.members.size() + 1) + " of its directory "; };
  for (std::uint64_t i = 0; i < end->count; ++i) {
    if (rest.size() < kEntryBytes || !rest.starts_with(kEntryMark)) return broken_zip(at_member() + "is missing");
    const std::uint64_t name = number_in(rest, 28, 2), extra = number_in(rest, 30, 2), comment = number_in(rest, 32, 2);
    if (rest.size() - kEntryBytes < name + extra + comment) return broken_zip(at_member() + "is cut");
    ZipMember member;
    member.flags = static_cast<std::uint16_t>(number_in(rest, 8, 2));
    member.method = static_cast<std::uint16_t>(number_in(rest, 10, 2));
    member.crc = static_cast<std::uint32_t>(number_in(rest, 16, 4));
    member.packed = number_in(rest, 20, 4);
    member.size = number_in(rest, 24, 4);
    member.begin = number_in(rest, 42, 4);
    member.name = rest.substr(kEntryBytes, name);
    if (!widen(member, zip_extra(rest.substr(kEntryBytes + name, extra), kZip64Extra))) return broken_zip(at_member() + "has no sizes");
    if (member.flags & kEncrypted) return fail(ErrorCode::refused, "it is encrypted");
    if (member.method != kZipStored && member.method != kZipDeflated)
      return fail(ErrorCode::refused,
                  "member " + member.name + " is packed by method " + std::to_string(member.method) + ", which is not supported");
    if (member.method == kZipStored && member.packed != member.size) return broken_zip(at_member() + "has two sizes");
    if (member.begin > end->directory_at) return broken_zip(at_member() + "lies behind it");
    member.begin += place.begin;
    directory.members.push_back(std::move(member));
    rest.remove_prefix(kEntryBytes + name + extra + comment);
  }
  if (!rest.empty()) return broken_zip("its directory has more members than its end says");
  auto& members = directory.members;
  std::ranges::stable_sort(members, {}, &ZipMember::begin);
  for (std::size_t i = 0; i < members.size(); ++i) {
    ZipMember& member = members[i];
    member.end = i + 1 < members.size() ? members[i + 1].begin : place.begin + end->directory_at;
    const std::uint64_t room = member.end - member.begin, header = kZipLocalHeaderBytes + member.name.size();
    if (room < header || room - header < member.packed) return broken_zip("member " + member.name + " does not fit where it should be");
  }
  return directory;
}

}  // namespace dtrain::transfer
