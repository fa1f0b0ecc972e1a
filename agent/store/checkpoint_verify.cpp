#include "agent/store/checkpoint_verify.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>

#include "agent/store/checkpoint_files.h"
#include "common/base/check.h"
#include "common/transfer/digest.h"

namespace dtrain::store {
namespace {

using transfer::CheckpointInfo;

// One read(). Measured with 16 KiB to 4 MiB (docs/benchmarks.md): the checksum of what fills a second-level cache takes twice as long.
constexpr std::size_t kVerifyReadBytes = 512 << 10;
constexpr std::size_t kReadAlignment = 4096;   // to an address in the middle of a page the kernel copies at half the speed
constexpr std::uint64_t kPartCost = 16 << 10;  // share of a budget for each file or tensor besides its bytes

// The number of a read() of whatever thread.
std::uint64_t next_read() {
  static std::atomic<std::uint64_t> number = 0;
  return ++number;
}

// What was read last on this thread: hundreds of verifications may take turns, and one of them reads at a time.
struct ReadBuffer {
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> bytes{static_cast<char*>(std::aligned_alloc(kReadAlignment, kVerifyReadBytes))};
  std::uint64_t read = next_read();
};

ReadBuffer& read_buffer() {
  thread_local ReadBuffer buffer;
  CHECK(buffer.bytes);
  return buffer;
}

}  // namespace

class Verification::Impl {
 public:
  explicit Impl(CheckpointInfo info) : info_(std::move(info)) {}

  Status open(const std::string& below) {
    const auto opened = read_table_of_contents(below);
    if (!opened) return fail(opened.error());
    auto contents = opened->parse(format_, place_.base);
    if (!contents && written_anew()) return changed_since_found();
    if (!contents) return no(contents.error().code, contents_name_ + ": " + contents.error().message, contents.error().next);
    contents_ = std::move(*contents);
    // Files without any part must exist all the same.
    for (const auto& file : contents_->files) {
      if (file.exactly) continue;
      const auto facts = facts_beneath(directory_, file.name);
      if (!facts) return missing_is_damage(facts.error());
      if (facts->kind != FileFacts::Kind::regular) return no(ErrorCode::damaged, file.name + " is not a regular file");
      if (facts->size < file.size) return no(ErrorCode::damaged, file.name + " is cut short");
    }
    if (replaced_) return changed_since_found();
    return nothing_left_out(contents_->files);
  }

  Result<bool> advance(std::uint64_t budget) {
    while (budget > 0) {
      if (!in_part_) {
        if (next_part_ == contents_->part_count()) {
          if (auto unchanged = close_file(); !unchanged) return fail(unchanged.error());
          return true;
        }
        if (auto begun = begin_part(); !begun) return fail(begun.error());
        budget -= std::min(budget, kPartCost);
      }
      const auto used = read_some(std::min<std::uint64_t>(budget / part_.cost + 1, part_left_));
      if (!used) return fail(used.error());
      budget -= std::min(budget, *used * part_.cost);
      if (part_left_ > 0) continue;
      if (auto ended = end_part(); !ended) return fail(ended.error());
    }
    return false;
  }

 private:
  tl::unexpected<Error> no(ErrorCode code, const std::string& cause, std::string next = "") const {
    return fail(code, "could not verify checkpoint " + info_.path + ": " + cause, std::move(next));
  }
  tl::unexpected<Error> no(const Error& e) const { return no(e.code, e.message, e.next); }
  tl::unexpected<Error> changed() const {
    return no(ErrorCode::unavailable, file_name_ + " changed while it was read", "look again when its writer is done");
  }

  // The table of a share has only the files that are whole. Without a digest those that were found are named.
  Status nothing_left_out(const std::vector<transfer::Contents::File>& whole) const {
    if (!info_.digest.empty()) return {};
    for (const auto& found : info_.shares.files) {
      if (found.name.empty() || std::ranges::find(whole, found.name, &transfer::Contents::File::name) != whole.end()) continue;
      const auto facts = facts_beneath(directory_, found.name);
      return facts ? no(ErrorCode::damaged, found.name + " is cut, or its directory is damaged") : no(facts.error());
    }
    return {};
  }

  tl::unexpected<Error> changed_since_found() const {
    return no(ErrorCode::unavailable, "it was replaced since it was found", "scan again");
  }

  // Some scripts write a checkpoint of one file anew in place: until they are done it is not damaged, but not there.
  bool written_anew() const {
    if (format_.table == nullptr || info_.place == 0 || info_.is_share()) return false;
    const auto facts = facts_beneath(directory_, contents_name_);
    return facts && place_of(*facts) != info_.place;
  }

  Result<Opened> read_table_of_contents(const std::string& below) {
    auto opened = open_directory_below(below, place_.directory);
    // What was found is not there any more, so that it cannot be damaged either.
    if (!opened && opened.error().code == ErrorCode::damaged)
      return no(ErrorCode::unavailable, "a link or a file is in its way: " + opened.error().message, "scan again");
    if (!opened) return no(opened.error());
    directory_ = std::move(*opened);
    contents_name_ = contents_file(directory_, format_, place_.base);
    auto table = open_contents(directory_, info_, place_.base);
    if (!table && table.error().code == ErrorCode::not_found)
      if (Status all = nothing_left_out({}); !all) return fail(all.error());
    if (!table) return written_anew() ? changed_since_found() : no(table.error());
    contents_name_ = table->name;
    contents_facts_ = table->content.facts;
    // This file was damaged since the scan, or there is another checkpoint of the same name: the latter if it parses.
    replaced_ = !info_.digest.empty() && transfer::blake2b_hex(table->content.bytes) != info_.digest;
    return table;
  }

  tl::unexpected<Error> missing_is_damage(const Error& e) const {
    if (e.code != ErrorCode::not_found) return no(e);
    // If the whole checkpoint is gone (deleted, renamed), that is different from one missing file.
    if (!facts_beneath(directory_, contents_name_)) return no(ErrorCode::not_found, "it went away while it was read");
    return no(ErrorCode::damaged, e.message);
  }

  Status begin_part() {
    part_ = contents_->part(next_part_);
    position_ = part_.offset;
    part_left_ = part_.size;
    check_ = contents_->check(next_part_);
    if (part_.file != file_name_ || !file_) {
      if (auto opened = open_next(part_.file); !opened) return opened;
    }
    in_part_ = true;
    return {};
  }

  Status open_next(const std::string& name) {
    if (auto unchanged = close_file(); !unchanged) return unchanged;
    auto file = open_file_beneath(directory_, name);
    if (!file) return missing_is_damage(file.error());
    const auto facts = facts_of(*file);
    if (!facts) return no(facts.error());
    file_ = std::move(*file);
    file_name_ = name;
    opened_ = *facts;
    window_ = 0;
    if (format_.table != nullptr && name == contents_name_ && opened_ != contents_facts_) return changed();
    const bool short_file = facts->size < position_ + part_left_;
    const bool wrong_size = part_.whole && facts->size != part_left_;
    if (short_file || wrong_size)
      return no(ErrorCode::damaged,
                name + " has " + std::to_string(facts->size) + " bytes instead of " + std::to_string(position_ + part_left_));
    return {};
  }

  Status close_file() {
    if (!file_) return {};
    const auto now = facts_of(file_);
    if (!now) return no(now.error());
    if (*now != opened_) return changed();
    file_ = UniqueFd();
    return {};
  }

  // Small tensors lie side by side: they are fed from one read.
  Result<std::uint64_t> read_some(std::uint64_t most) {
    if (part_left_ == 0) return std::uint64_t{0};
    ReadBuffer& buffer = read_buffer();
    if (buffer.read != window_ || position_ < window_start_ || position_ >= window_start_ + window_size_) {
      buffer.read = next_read();
      const auto have = read_at(file_, position_, buffer.bytes.get(), kVerifyReadBytes);
      if (!have) return no(have.error().code, file_name_ + ": " + have.error().message);
      if (*have == 0) return changed();  // its size was right when it was opened
      window_ = buffer.read;
      window_start_ = position_;
      window_size_ = *have;
    }
    const std::uint64_t at = position_ - window_start_;
    const std::uint64_t size = std::min({most, part_left_, window_size_ - at});
    check_->feed({buffer.bytes.get() + at, static_cast<std::size_t>(size)});
    position_ += size;
    part_left_ -= size;
    return size;
  }

  Status end_part() {
    in_part_ = false;
    const std::size_t part = next_part_++;
    if (check_->finish()) return {};
    if (auto unchanged = close_file(); !unchanged) return unchanged;
    return no(ErrorCode::damaged, file_name_ + contents_->damage(part));
  }

  const CheckpointInfo info_;
  const transfer::Format& format_ = transfer::format_of(info_.format);
  const FilesPlace place_ = place_of_files(info_);
  UniqueFd directory_;
  std::string contents_name_;
  std::unique_ptr<transfer::Contents> contents_;
  FileFacts contents_facts_;  // when its table was read
  bool replaced_ = false;

  std::size_t next_part_ = 0;  // such as a file of a manifest, a tensor of a bundle
  bool in_part_ = false;
  std::uint64_t position_ = 0, part_left_ = 0;
  transfer::Part part_;
  std::unique_ptr<transfer::PartCheck> check_;

  UniqueFd file_;
  std::string file_name_;
  FileFacts opened_;          // as it was when it was opened
  std::uint64_t window_ = 0;  // the number of its last read(); 0: of no use any more
  std::uint64_t window_start_ = 0, window_size_ = 0;
};

Verification::Verification(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Verification::Verification(Verification&&) noexcept = default;
Verification& Verification::operator=(Verification&&) noexcept = default;
Verification::~Verification() = default;

Result<Verification> Verification::begin(const CheckpointInfo& info, const std::string& below) {
  auto impl = std::make_unique<Impl>(info);
  if (auto opened = impl->open(below); !opened) return fail(opened.error());
  return Verification(std::move(impl));
}

Result<bool> Verification::advance(std::uint64_t budget) { return impl_->advance(budget); }

Status verify(const CheckpointInfo& info, const std::string& below) {
  auto verification = Verification::begin(info, below);
  if (!verification) return fail(verification.error());
  const auto done = verification->advance(std::numeric_limits<std::uint64_t>::max());
  if (!done) return fail(done.error());
  return {};
}

}  // namespace dtrain::store
