#include "common/transfer/rank_files.h"

#include <algorithm>
#include <charconv>

#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kPickleName = "/data.pkl";
constexpr char kPickleBegins = '\x80';
constexpr std::string_view kBlanks = " \t\r\n";

bool only_digits(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == text.npos; }

// What stands in a pickle between a key and its value: the memo's number of the key.
std::string_view after_memo(std::string_view rest) {
  if (rest.starts_with('q')) return rest.substr(std::min<std::size_t>(rest.size(), 2));
  if (rest.starts_with('r')) return rest.substr(std::min<std::size_t>(rest.size(), 5));
  if (rest.starts_with('\x94')) return rest.substr(1);
  return rest;
}

}  // namespace

RankPlace numbers_in_name(std::string_view pattern, std::string_view name) {
  RankPlace numbers;
  for (; !pattern.empty(); pattern.remove_prefix(1)) {
    if (pattern.front() != '#') {
      if (!name.starts_with(pattern.front())) return {};
      name.remove_prefix(1);
      continue;
    }
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    std::uint64_t number = 0;
    if (digits == 0 || std::from_chars(name.data(), name.data() + digits, number).ec != std::errc{} || number >= kRanks) return {};
    numbers.push_back(number);
    name.remove_prefix(digits);
  }
  return name.empty() ? numbers : RankPlace{};
}

RankPlace RankGrid::extent() const {
  RankPlace extent;
  for (const RankPlace& place : places) {
    extent.resize(std::max(extent.size(), place.size()), 0);
    for (std::size_t i = 0; i < place.size(); ++i) extent[i] = std::max(extent[i], place[i] + 1);
  }
  return extent;
}

std::string RankGrid::hole() const {
  const RankPlace end = extent();
  RankPlace expected(end.size(), 0);
  for (std::size_t found = 0;; ++found) {
    if (found == places.size() || !places.contains(expected)) {
      std::string words;
      for (const std::uint64_t number : expected) words += (words.empty() ? "" : "_") + std::to_string(number);
      return words;
    }
    std::size_t i = end.size();
    while (i > 0 && ++expected[i - 1] == end[i - 1]) expected[--i] = 0;
    if (i == 0 && found + 1 == places.size()) return "";
  }
}

Result<FileTable> read_rank_file(FileAccess& files, const std::string& name) {
  auto file = read_file_table(files, name, FileTable::Kind::zips);
  if (!file || file->kind == FileTable::Kind::zips) return file;
  if (file->size == 0) return fail(ErrorCode::damaged, name + " is empty");
  const auto head = files.read(name, 0, 1);
  if (!head) return fail(head.error());
  if (head->front() == kPickleBegins) return fail(ErrorCode::refused, name + " is a bare pickle, which nothing can verify");
  return fail(ErrorCode::damaged, name + " is not a file of torch.save");
}

Result<std::string> read_pickle(FileAccess& files, const std::string& name) {
  const auto size = files.size(name);
  if (!size) return fail(size.error());
  const auto table = read_zip_table(files, name, *size);
  if (!table) return fail(table.error());
  const auto directory = parse_zip_table(*table);
  if (!directory) return fail(directory.error());
  for (const ZipMember& member : directory->members) {
    if (!member.name.ends_with(kPickleName)) continue;
    if (member.method != kZipStored || member.size > kRankPickleBytes) return std::string();
    auto bytes = files.read(name, member.begin, member.end - member.begin);  // the local header, too: no key is in it
    return bytes;
  }
  return std::string();
}

std::uint64_t pickled_number(std::string_view pickle, std::string_view key) {
  for (const std::string& text :
       {'X' + to_little_endian(key.size(), 4).append(key), '\x8c' + to_little_endian(key.size(), 1).append(key)}) {
    const auto at = pickle.find(text);
    if (at == pickle.npos) continue;
    const std::string_view value = after_memo(pickle.substr(at + text.size()));
    const std::size_t bytes = value.starts_with('K') ? 1 : value.starts_with('M') ? 2 : value.starts_with('J') ? 4 : 0;
    const std::uint64_t number = value.size() > bytes && bytes > 0 ? from_little_endian(value.substr(1, bytes)) : 0;
    return number < kRanks ? number : 0;
  }
  return 0;
}

std::string_view tracked(std::string_view text) {
  const auto begin = text.find_first_not_of(kBlanks);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

namespace {

constexpr std::string_view kIteration = "iter_";
constexpr std::size_t kIterationDigits = 7;

std::string number_of_iteration(std::string_view directory) {
  if (!directory.starts_with(kIteration)) return "";
  directory.remove_prefix(kIteration.size());
  if (!only_digits(directory)) return "";
  const auto first = directory.find_first_not_of('0');
  return first == directory.npos ? "0" : std::string(directory.substr(first));
}

std::string directory_of_iteration(std::string_view number) {
  if (!only_digits(number)) return std::string(number);
  return std::string(kIteration) + std::string(kIterationDigits - std::min(kIterationDigits, number.size()), '0') + std::string(number);
}

constexpr std::string_view kMegatronTrackerName = "latest_checkpointed_iteration.txt";

}  // namespace

const Hint kMegatronTracker = tracker_hint<number_of_iteration, directory_of_iteration, true>(kMegatronTrackerName);
const Hint kMegatronTrackerIfThere = tracker_hint<number_of_iteration, directory_of_iteration, false>(kMegatronTrackerName);

}  // namespace dtrain::transfer
