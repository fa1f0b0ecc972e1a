#include "agent/store/checkpoint_reader.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>

#include "agent/store/checkpoint_files.h"
#include "common/transfer/digest.h"
#include "common/transfer/shares.h"

namespace dtrain::store {
namespace {

using transfer::Candidate;
using transfer::Format;
using transfer::FormatId;

void add_to_stamp(Candidate& candidate, const std::string& name, const FileFacts& facts) {
  const std::string text = name + '\0' + std::to_string(facts.inode) + ',' + std::to_string(facts.size) + ',' +
                           std::to_string(facts.changed_ns) + ',' + std::to_string(candidate.stamp);
  candidate.stamp = std::hash<std::string>{}(text);
  candidate.changed_ns = std::max(candidate.changed_ns, facts.changed_ns);
}

// Adds one file that must have `size` bytes, or at least so many. The first problem becomes the defect.
void expect_file(Candidate& candidate, const UniqueFd& directory, const std::string& name, std::uint64_t size, bool exactly) {
  const auto facts = facts_beneath(directory, name);
  std::string defect;
  if (!facts) {
    defect = facts.error().code == ErrorCode::not_found ? name + " is missing" : facts.error().message;
  } else {
    add_to_stamp(candidate, name, *facts);
    candidate.info.bytes += facts->size;
    if (facts->kind == FileFacts::Kind::link) defect = name + " is a symbolic link";
    else if (facts->kind != FileFacts::Kind::regular) defect = name + " is not a regular file";
    else if (facts->size < size || (exactly && facts->size != size))
      defect = name + " has " + std::to_string(facts->size) + " bytes instead of " + std::to_string(size);
  }
  if (candidate.info.defect.empty()) candidate.info.defect = std::move(defect);
}

// The checkpoint `base` in `directory`, or `directory` itself. nullopt: it vanished, or belongs to another program: if not found `surely`,
// or if its format refuses it, which `refused` then has the reason of.
std::optional<Candidate> look_at(FormatId id, const UniqueFd& directory, const std::string& base, const std::string& path, bool surely,
                                 std::string* refused = nullptr) {
  const Format& format = transfer::format_of(id);
  Candidate candidate;
  candidate.info.format = id;
  candidate.info.path = path;
  candidate.info.step = format.step_of(base);
  const std::string name = contents_file(directory, format, base);
  // A format that reads stretches of files knows its own. What it refuses is never listed as incomplete, since that may be moved away.
  const auto is_refused = [&](const Error& e) {
    const bool none = format.table != nullptr && e.code == ErrorCode::refused;
    if (none && refused != nullptr) *refused = name + ": " + e.message;
    return none;
  };
  const auto content = read_contents(directory, format, base);
  if (!content) {
    const auto facts = facts_beneath(directory, name);
    const bool own = surely || (format.table != nullptr && facts && facts->kind == FileFacts::Kind::regular);
    if (content.error().code == ErrorCode::not_found || !own || is_refused(content.error())) return std::nullopt;
    if (format.table != nullptr && facts) add_to_stamp(candidate, name, *facts);
    candidate.info.defect = content.error().message;
    return candidate;
  }
  if (!surely && !format.may_be(content->bytes)) return std::nullopt;
  add_to_stamp(candidate, name, content->facts);
  candidate.info.bytes = content->facts.size;
  candidate.info.place = place_of(content->facts);
  candidate.info.digest = transfer::blake2b_hex(content->bytes);
  const auto contents = format.parse(content->bytes, base);
  if (!contents) {
    if (is_refused(contents.error())) return std::nullopt;
    candidate.info.defect = name + ": " + contents.error().message;
    return candidate;
  }
  candidate.info.step = (*contents)->step;
  for (const auto& file : (*contents)->files) expect_file(candidate, directory, file.name, file.size, file.exactly);
  candidate.info.complete = candidate.info.defect.empty();
  return candidate;
}

// What this directory has of a checkpoint whose ranks wrote to their own hosts' disks. nullopt: nothing, or all of it, or more than is
// told.
std::optional<Candidate> look_at_share(FormatId id, const UniqueFd& directory, const std::string& base, const std::string& path) {
  const Format& format = transfer::format_of(id);
  if (format.lacks == nullptr) return std::nullopt;
  auto here = read_shares(directory, format, base);
  if (!here) return std::nullopt;
  const auto all = transfer::together(format, {&here->shares});
  if (all.whole()) return std::nullopt;
  Candidate candidate;
  candidate.info = {.format = id,
                    .path = path,
                    .step = format.step_of(base),
                    .defect = all.lacks,
                    .bytes = all.bytes,
                    .digest = transfer::blake2b_hex(here->content.bytes),
                    .place = place_of(here->content.facts),
                    .shares = {}};
  for (const auto& file : here->shares.files)
    if (const auto facts = facts_beneath(directory, file.name)) add_to_stamp(candidate, file.name, *facts);
  candidate.info.shares = std::move(here->shares);
  return candidate;
}

// A directory without its contents file, since a save of it was broken off.
std::optional<Candidate> look_at_rest(FormatId id, const UniqueFd& directory, const std::string& base, const std::string& path) {
  const Format& format = transfer::format_of(id);
  const auto facts = facts_of(directory);
  if (!facts) return std::nullopt;
  Candidate candidate;
  candidate.info.format = id;
  candidate.info.path = path;
  candidate.info.step = format.step_of(base);
  candidate.info.defect = format.contents_name(base) + " is missing: it is not finished";
  candidate.info.place = place_of(*facts);
  for (const std::string& name : list_names(directory).value_or(std::vector<std::string>{}))
    if (const auto file = facts_beneath(directory, name)) add_to_stamp(candidate, name, *file);
  return candidate;
}

// One directory's names, as all formats need them.
class Scan {
 public:
  Scan(const UniqueFd& directory, std::string path, std::vector<std::string> names)
      : directory_(directory), path_(std::move(path)), names_(std::move(names)) {}

  Status find(FormatId id, bool by_name) {
    const Format& format = transfer::format_of(id);
    const auto wanted = [&](const std::string& base) { return !by_name || format.named_clearly(base); };
    return format.directory ? find_directories(id, wanted) : find_files(id, wanted);
  }

  // After all formats: what a save left that was broken off is none of theirs. One of which there is a share already has the files of the
  // first rank, who would have written the contents file: no host has that.
  Status find_broken_off(FormatId id, bool by_name) {
    const auto one_of_it = [&](const Candidate& c) { return c.info.format == id && !c.info.is_share(); };
    const auto others = [&] { return std::ranges::any_of(candidates_, one_of_it); };
    const bool usual = !by_name || others();
    if (Status found = find_broken_off_if(id, usual); !found || usual || !others()) return found;
    return find_broken_off_if(id, true);
  }

  std::vector<Candidate> take() {
    transfer::sort_newest_first(candidates_);
    return std::move(candidates_);
  }

 private:
  std::string inside(const std::string& name) const { return path_ == "/" ? "/" + name : path_ + "/" + name; }
  bool has(const std::string& name) const { return std::binary_search(names_.begin(), names_.end(), name); }
  Status add(std::optional<Candidate> candidate) {
    if (!candidate || !paths_.emplace(candidate->info.path, candidates_.size()).second) return {};
    if (candidates_.size() == kScanCandidates)
      return fail(ErrorCode::limit, "it holds more than " + std::to_string(kScanCandidates) + " checkpoints", "set checkpoint.keep");
    candidates_.push_back(std::move(*candidate));
    return {};
  }

  // A whole checkpoint, or a share of one.
  std::optional<Candidate> look_at_either(FormatId id, const UniqueFd& directory, const std::string& base, const std::string& path,
                                          bool or_share) const {
    std::optional<Candidate> found;
    if (facts_beneath(directory, contents_file(directory, transfer::format_of(id), base))) found = look_at(id, directory, base, path, true);
    return found || !or_share ? found : look_at_share(id, directory, base, path);
  }

  Status find_directories(FormatId id, const auto& wanted) {
    const std::string own = split_path(path_).second;
    // A whole one whatever its name: the user named this directory.
    if (auto added = add(look_at_either(id, directory_, own, path_, wanted(own))); !added) return added;
    for (const auto& name : names_) {
      if (transfer::is_ignored_name(name) || !wanted(name)) continue;
      const auto child = open_directory_at(directory_, name);  // fails for anything but a directory
      if (!child) continue;
      if (auto added = add(look_at_either(id, *child, name, inside(name), true)); !added) return added;
    }
    return {};
  }

  Status find_broken_off_if(FormatId id, bool usual) {
    for (const auto& name : names_) {
      if (transfer::is_ignored_name(name)) continue;
      const std::string path = inside(name);
      const auto known = paths_.find(path);
      Candidate* const share = known == paths_.end() ? nullptr : &candidates_[known->second];
      if (share != nullptr && (share->info.format != id || !share->info.is_share())) continue;
      const auto child = open_directory_at(directory_, name);
      if (!child || !is_broken_off(*child, transfer::format_of(id), name, usual)) continue;
      auto rest = look_at_rest(id, *child, name, path);
      if (share != nullptr && rest) *share = std::move(*rest);
      else if (auto added = add(std::move(rest)); !added) return added;
    }
    return {};
  }

  Status find_files(FormatId id, const auto& wanted) {
    const Format& format = transfer::format_of(id);
    for (const auto& found : format.find(names_))
      if (wanted(found.base))
        if (auto added = add(look_at(id, directory_, found.base, inside(found.base), found.surely)); !added) return added;
    // Scripts may keep checkpoints in directories below; the hint then says where.
    const std::string hint(format.hint != nullptr ? format.hint->name : "");
    if (!has(hint)) return {};
    const auto content = read_beneath(directory_, hint, format.hint->bytes);
    if (!content) return {};
    for (const auto& below : format.hint->mentioned(content->bytes, path_)) {
      if (!facts_beneath(directory_, format.contents_name(below))) continue;
      if (auto added = add(look_at(id, directory_, below, inside(below), true)); !added) return added;
    }
    return {};
  }

  const UniqueFd& directory_;
  const std::string path_;
  const std::vector<std::string> names_;  // sorted
  std::vector<Candidate> candidates_;
  std::map<std::string, std::size_t> paths_;  // of the candidates, in which each has this place
};

tl::unexpected<Error> could_not_scan(const std::string& path, const Error& e) {
  return fail(e.code, "could not look for checkpoints in " + path + ": " + e.message, e.next);
}

std::vector<FormatId> formats_of(const job::CheckpointSpec& spec) {
  std::vector<FormatId> ids;
  for (std::size_t i = 0; i < transfer::formats().size(); ++i)
    if (job::looks_for(spec, FormatId(i))) ids.push_back(FormatId(i));
  return ids;
}

// spec.dir may be a checkpoint of one file, or the beginning of a checkpoint's file names; or a directory that was refused, for the reason.
std::vector<Candidate> look_at_one(const job::CheckpointSpec& spec, const std::string& path, const std::string& below,
                                   std::string* refused = nullptr) {
  const auto [parent, base] = split_path(path);
  const auto directory = open_directory_below(below, parent);
  std::vector<Candidate> found;
  if (!directory) return found;
  for (const FormatId id : formats_of(spec)) {
    const Format& format = transfer::format_of(id);
    const auto own = format.directory ? open_directory_at(*directory, base) : open_directory_at(*directory, ".");
    if (!own) continue;
    const std::string contents = contents_file(*own, format, base);
    if ((!format.directory && format.base_of(contents) != base) || !facts_beneath(*own, contents)) continue;
    if (auto candidate = look_at(id, *own, base, path, true, refused)) found.push_back(std::move(*candidate));
  }
  return found;
}

// The newest checkpoint of which this host has more files of ranks than it tells of; "": there is none.
std::string has_too_many(const job::CheckpointSpec& spec, const UniqueFd& directory, const std::vector<std::string>& names) {
  std::string newest;
  std::int64_t step = -1;
  for (const FormatId id : formats_of(spec)) {
    const Format& format = transfer::format_of(id);
    if (format.lacks == nullptr) continue;
    for (const std::string& name : names) {
      if (transfer::is_ignored_name(name) || !format.named_clearly(name) || format.step_of(name) <= step) continue;
      const auto own = open_directory_at(directory, name);
      const auto here = own ? read_shares(*own, format, name) : fail(ErrorCode::not_found, "");
      if (here || here.error().code != ErrorCode::limit) continue;
      newest = name + " in " + spec.dir + " is left alone on this host: " + here.error().message +
               "; all ranks must write into one directory that all hosts see";
      step = format.step_of(name);
    }
  }
  return newest;
}

// Describes the newest directory that a save may have left which was broken off, although nothing says that it is of that format and no
// other program's (transfer::Format::broken_off); "": there is none.
std::string may_be_unfinished(const job::CheckpointSpec& spec, const UniqueFd& directory, const std::vector<std::string>& names) {
  for (const FormatId id : formats_of(spec)) {
    const Format& format = transfer::format_of(id);
    if (format.broken_off == nullptr) continue;
    std::string newest;
    for (const std::string& name : names) {
      if (transfer::is_ignored_name(name) || (!newest.empty() && format.step_of(name) <= format.step_of(newest))) continue;
      const auto own = open_directory_at(directory, name);
      if (own && is_broken_off(*own, format, name, true)) newest = name;
    }
    if (!newest.empty())
      return newest + " in " + spec.dir + " has no " + format.contents_name(newest) + ": if it is " + std::string(format.seen_as) +
             ", its save is not finished, and a script that goes on from it fails; other programs call their directories so, too, and it " +
             "is left alone; if nobody writes it any more, set checkpoint.format: " + std::string(format.name) + ", or remove it";
  }
  return "";
}

bool looks_broken_off(const std::string& path) {
  const auto directory = open_directory(path);
  const auto of = [&](const Format* format) { return is_broken_off(*directory, *format, split_path(path).second, true); };
  return directory && std::ranges::any_of(transfer::formats(), of);
}

// "a manifest", "a manifest, a prefix": what all formats say.
std::string of_all_formats(std::string (*say)(const Format&), const char* between) {
  std::string out;
  for (const Format* format : transfer::formats()) out += (out.empty() ? "" : between) + say(*format);
  return out;
}

}  // namespace

Result<std::vector<Candidate>> look(const job::CheckpointSpec& spec, const std::string& below) {
  const std::string path = without_trailing_slashes(spec.dir);
  const auto directory = open_directory_below(below, path);
  if (!directory) {
    auto one = look_at_one(spec, path, below);
    if (!one.empty() || directory.error().code == ErrorCode::not_found) return one;
    return could_not_scan(path, directory.error());
  }
  auto names = list_names(*directory);
  if (!names) return could_not_scan(path, names.error());
  Scan scan(*directory, path, std::move(*names));
  const bool by_auto = spec.format == job::CheckpointFormat{};
  for (const FormatId id : formats_of(spec))
    if (by_auto && !transfer::format_of(id).by_auto) continue;
    else if (auto found = scan.find(id, by_auto); !found) return could_not_scan(path, found.error());
  for (const FormatId id : formats_of(spec))
    if (transfer::format_of(id).broken_off == nullptr) continue;
    else if (auto found = scan.find_broken_off(id, by_auto); !found) return could_not_scan(path, found.error());
  return scan.take();
}

Result<std::vector<transfer::CheckpointInfo>> scan(const job::CheckpointSpec& spec, const std::string& below) {
  auto candidates = look(spec, below);
  if (!candidates) return fail(candidates.error());
  std::vector<transfer::CheckpointInfo> found;
  found.reserve(candidates->size());
  for (auto& candidate : *candidates) found.push_back(std::move(candidate.info));
  return found;
}

std::string unrecognised(const job::CheckpointSpec& spec) {
  static constexpr std::array<std::string_view, 16> kEndings{".ubj",   ".xgb",     ".bin",         ".ckpt", ".h5",     ".hdf5",
                                                             ".keras", ".msgpack", ".npz",         ".onnx", ".params", ".pkl",
                                                             ".pt",    ".pth",     ".safetensors", ".tar"};
  std::size_t count = 0;
  std::string first;
  const auto look_in = [&](const UniqueFd& directory, const std::string& below) {
    std::vector<std::string> directories;
    for (const std::string& name : list_names(directory).value_or(std::vector<std::string>{})) {
      const bool saved = std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
      if (!saved && !below.empty()) continue;
      const auto facts = facts_beneath(directory, name);
      if (!facts) continue;
      if (facts->kind == FileFacts::Kind::directory && below.empty()) directories.push_back(name);
      if (!saved || facts->kind != FileFacts::Kind::regular) continue;
      if (++count == 1) first = below + name;
    }
    return directories;
  };
  const auto directory = open_directory(without_trailing_slashes(spec.dir));
  if (!directory) return "";
  std::vector<std::string> names = look_in(*directory, "");
  if (std::string parts = has_too_many(spec, *directory, names); !parts.empty()) return parts;
  if (std::string left = may_be_unfinished(spec, *directory, names); !left.empty()) return left;
  if (names.size() > kForeignDirectories) names.resize(kForeignDirectories);
  for (const std::string& name : names)
    if (const auto child = open_directory_at(*directory, name)) look_in(*child, name + "/");
  if (count == 0) return "";
  const std::string such = std::to_string(count) + (count == 1 ? " file such as " : " files such as ") + first + " in " + spec.dir;
  if (spec.format == job::CheckpointFormat{}) {
    const std::string base = split_path("/" + first).second;
    for (const Format* format : transfer::formats()) {
      const bool taken = format->by_auto && format->named_clearly(base);  // if it were one by what is in it
      if (format->directory || taken || format->base_of(base).empty()) continue;
      return such +
             ", which checkpoint.format: auto does not take for checkpoints (docs/checkpoints.md, Names), so that nothing is restored " +
             "from them; if they are checkpoints, set checkpoint.format: " + std::string(format->name);
    }
  }
  return such + ", in no format that is known here, so that nothing is restored from them; known are " +
         of_all_formats([](const Format& f) { return std::string(f.name) + " (" + std::string(f.seen_as) + ")"; }, ", ");
}

Result<std::vector<PathReport>> verify_path(const std::string& path) {
  std::error_code ignored;
  std::string target = without_trailing_slashes(std::filesystem::absolute(path, ignored).lexically_normal().string());
  const auto [parent, base] = split_path(target);
  if (!std::filesystem::is_directory(target, ignored))
    for (const Format* format : transfer::formats()) {
      const bool beside =
          (format->directory && transfer::may_be_contents(*format, "", base)) || (format->hint != nullptr && base == format->hint->name);
      const std::string_view called = format->base_of(base);
      if (!beside && called.empty()) continue;
      target = beside ? parent : parent + "/" + std::string(called);
      break;
    }
  job::CheckpointSpec spec;
  spec.dir = target;
  auto found = scan(spec);
  if (found && found->empty() && looks_broken_off(target)) {  // what lies beside it says whose it is
    spec.dir = split_path(target).first;
    found = scan(spec);
    if (found) std::erase_if(*found, [&](const auto& info) { return info.path != target; });
  }
  std::string share;  // the newest of which there are only files of some ranks here
  if (found)
    std::erase_if(*found, [&](const auto& info) {
      if (info.is_share()) share = info.path;
      return info.is_share();
    });
  if (!found || found->empty()) {
    std::string refused;
    (void)look_at_one(spec, share.empty() ? target : share, "", &refused);
    if (!share.empty())
      return fail(ErrorCode::refused,
                  "could not verify " + share + ": this host has the files of only some of its ranks" +
                      (refused.empty() ? "" : " (" + refused + ")"),
                  "copy the others beside them, or let all hosts look: dtrainctl checkpoints JOB --verify");
    if (!refused.empty()) return fail(ErrorCode::refused, "could not verify " + path + ": " + refused);
  }
  if (!found) return fail(found.error());
  if (const std::string others = found->empty() ? unrecognised(spec) : ""; !others.empty())
    return fail(ErrorCode::not_found, "could not verify " + path + ": no checkpoint is there, but " + others,
                "to verify one file, name it: dtrainctl verify FILE");
  if (found->empty())
    return fail(ErrorCode::not_found, "could not verify " + path + ": no checkpoint is there",
                "name " + of_all_formats([](const Format& f) { return std::string(f.named_as); }, ", ") + ", or a directory of such");
  std::vector<PathReport> reports;
  for (const auto& info : *found) reports.push_back({info, verify(info, target)});
  return reports;
}

}  // namespace dtrain::store
