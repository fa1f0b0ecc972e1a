// What DeepSpeed and Megatron have in common: a directory with files of torch.save, several for each rank, whose names have the numbers of
// the ranks; and a tracker beside such directories, a file whose text is the name or the number of the newest.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/file_tables.h"

namespace dtrain::transfer {

inline constexpr std::size_t kRankNumbers = 3;               // in one name
inline constexpr std::uint64_t kRanks = 1'000'000;           // a larger number in a name is none
inline constexpr std::uint64_t kRankPickleBytes = 16 << 20;  // of which the numbers of ranks are looked for in
inline constexpr std::size_t kTrackerBytes = 4096;           // larger: refused unread

using RankPlace = std::vector<std::uint64_t>;

// The numbers in a name that fits the pattern, where '#' stands for digits. Empty: it does not fit.
RankPlace numbers_in_name(std::string_view pattern, std::string_view name);

// Some ranks are not there. Their files may lie on another host's disk, so that this is no damage, and nothing is moved away.
inline tl::unexpected<Error> lacks_ranks(std::string cause) { return fail(ErrorCode::refused, std::move(cause)); }

// The places of all ranks: as long as each other, from 0 on, without holes.
struct RankGrid {
  std::set<RankPlace> places;

  void add(RankPlace place) {
    if (!place.empty()) places.insert(std::move(place));
  }
  RankPlace extent() const;  // one more than the largest number, for each of its numbers
  std::string hole() const;  // the first place that is missing, in words; "": none is
};

// One rank's file, as read_file_table() does it. Error{damaged}: it is neither a zip nor what torch.save wrote before those; refused: the
// latter.
Result<FileTable> read_rank_file(FileAccess& files, const std::string& name);

// The pickle in a file of torch.save, which is never run. Empty: there is none, or it is packed or too large.
Result<std::string> read_pickle(FileAccess& files, const std::string& name);

// The number that follows this key in a pickled dictionary. 0: there is none, or it is no number.
std::uint64_t pickled_number(std::string_view pickle, std::string_view key);

// The contents of the tracker without the blanks around them.
std::string_view tracked(std::string_view text);

// `kTextOf`: what the tracker says of a directory of this name; "": it cannot. `kDirectoryOf`: the reverse. `kMade`: a copy makes the
// tracker where there is none.
template <std::string (*kTextOf)(std::string_view), std::string (*kDirectoryOf)(std::string_view), bool kMade>
constexpr Hint tracker_hint(std::string_view name) {
  return {
      .name = name,
      .bytes = kTrackerBytes,
      .mentioned = [](std::string_view, std::string_view) { return std::vector<std::string>{}; },  // directories are found without it
      .without = [](std::string_view text, std::string_view home, std::string_view removed,
                    std::string_view successor) -> std::optional<std::string> {
        if (removed != std::string(home) + "/" + kDirectoryOf(tracked(text))) return std::nullopt;
        return successor.empty() ? std::string() : kTextOf(successor.substr(successor.rfind('/') + 1));
      },
      .with = [](std::string_view text, const std::string&, const std::string& relative, std::int64_t,
                 bool only_first) -> std::optional<std::string> {
        if (relative.empty() || relative.find('/') != relative.npos || (text.empty() ? !kMade : only_first)) return std::nullopt;
        const std::string now = kTextOf(relative);
        return now.empty() ? std::nullopt : std::optional(now);
      },
  };
}

extern const Hint kMegatronTracker, kMegatronTrackerIfThere;

}  // namespace dtrain::transfer
