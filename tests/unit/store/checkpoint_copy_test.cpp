#include "agent/store/checkpoint_copy.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "agent/store/checkpoint_changes.h"
#include "agent/store/checkpoint_hint.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

using store::CheckpointSource;
using store::CheckpointTarget;

constexpr std::uint64_t kBudget = 20 << 10;  // a few looks for each checkpoint here
constexpr std::size_t kPiece = 7;

// A host that has the checkpoint, and then one with the same paths that lacks it.
class CheckpointCopy : public CheckpointWorld {
 protected:
  struct Sent {
    transfer::CheckpointInfo info;
    store::CopiedFiles files;
    std::string bytes;
  };
  // What the host that has it sends; `from`: the bytes before came already.
  Sent sent_of(const std::string& path, std::uint64_t from = 0) {
    Sent sent;
    for (const auto& info : scan())
      if (info.path == path) sent.info = info;
    EXPECT_TRUE(sent.info.complete) << path << ": " << sent.info.defect;
    auto source = CheckpointSource::open(sent.info, dir_);
    EXPECT_TRUE(source) << source.error().text();
    if (!source) return sent;
    sent.files = source->files();
    while (from + sent.bytes.size() < source->size()) {
      const auto piece = source->read(from + sent.bytes.size(), kPiece);
      EXPECT_TRUE(piece && !piece->empty());
      if (!piece || piece->empty()) break;
      sent.bytes += *piece;
    }
    return sent;
  }
  void lose_everything() {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directory(dir_);
    ASSERT_EQ(::chmod(dir_.c_str(), 0755), 0);
  }
  Sent lost(const std::string& path) {
    Sent sent = sent_of(path);
    lose_everything();
    return sent;
  }

  Result<std::unique_ptr<CheckpointTarget>> begin(const Sent& sent, std::uint64_t writer = 1) {
    node::WriteCheckpoint first;
    first.writer = writer;
    first.info = sent.info;
    first.files = sent.files;
    first.dir = spec_.dir;
    return CheckpointTarget::begin(first, options_);
  }
  static Status finish(CheckpointTarget& target) {
    for (;;) {
      const auto done = target.finish(kBudget);
      if (!done) return fail(done.error());
      if (*done) return {};
    }
  }
  // As the agent does: what failed is dropped.
  Status copy(const Sent& sent, std::uint64_t writer = 1) {
    auto target = begin(sent, writer);
    if (!target) return fail(target.error());
    Status result;
    for (std::size_t at = 0; result && at < sent.bytes.size(); at += kPiece) result = (*target)->write(sent.bytes.substr(at, kPiece));
    if (result) result = finish(**target);
    if (!result) (*target)->drop();
    return result;
  }
  static ErrorCode code_of(const Status& status) { return status ? ErrorCode::internal : status.error().code; }

  static std::vector<std::string> names_in(const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  static unsigned mode_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(::lstat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 07777;
  }
  std::string nested_checkpoint() {
    write_manifest_checkpoint(dir_ + "/step-1", 1, {{"w.bin", "weights"}, {"empty", ""}, {"a/b/c.bin", "deep"}});
    return dir_ + "/step-1";
  }
  std::string hint() const { return read(dir_ + "/checkpoint"); }

  store::CopyOptions options_{{"h1", 2}, {0, 0}};
};

using Names = std::vector<std::string>;

TEST_F(CheckpointCopy, IsTheSameAndItsOwnersAlone) {
  const auto path = nested_checkpoint();
  const Sent sent = lost(path);
  const Status copied = copy(sent);
  ASSERT_TRUE(copied) << copied.error().text();
  EXPECT_EQ(names_in(dir_), Names{"step-1"});
  EXPECT_EQ(read(path + "/w.bin"), "weights");
  EXPECT_EQ(read(path + "/a/b/c.bin"), "deep");
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_EQ(scan()[0].digest, sent.info.digest);
  EXPECT_TRUE(store::verify(scan()[0]));
  EXPECT_EQ(mode_of(dir_), 0755u) << "it was there";
  for (const char* made : {"", "/a", "/a/b"}) EXPECT_EQ(mode_of(path + made), 0700u) << made;
  for (const char* made : {"/MANIFEST.json", "/w.bin", "/empty", "/a/b/c.bin"}) EXPECT_EQ(mode_of(path + made), 0600u) << made;
}

TEST_F(CheckpointCopy, DirectoryThatIsMissingIsMade) {
  const auto path = nested_checkpoint();
  const Sent sent = sent_of(path);
  std::filesystem::remove_all(dir_);
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(mode_of(dir_), 0700u);
  EXPECT_EQ(read(path + "/w.bin"), "weights");
}

TEST_F(CheckpointCopy, GoesOnAtAnyOffsetFromAnotherSource) {
  const auto path = nested_checkpoint();
  const std::size_t size = sent_of(path).bytes.size();
  for (std::size_t cut = 0; cut <= size; ++cut) {
    Sent sent = sent_of(path);
    const std::string rest = sent_of(path, cut).bytes;
    lose_everything();
    sent.bytes = sent.bytes.substr(0, cut) + rest;
    ASSERT_TRUE(copy(sent)) << cut;
  }
}

TEST_F(CheckpointCopy, CutCopyLeavesNothingAndIsBegunAnew) {
  const auto path = nested_checkpoint();
  const Sent sent = lost(path);
  auto cut = begin(sent, 1);
  ASSERT_TRUE(cut);
  ASSERT_TRUE((*cut)->write(sent.bytes.substr(0, sent.bytes.size() - 2)));
  EXPECT_TRUE(scan().empty());
  EXPECT_EQ(code_of(finish(**cut)), ErrorCode::damaged) << "it is not all";
  (*cut)->drop();
  EXPECT_EQ(names_in(dir_), Names{});
  ASSERT_TRUE(copy(sent, 2));
  EXPECT_EQ(names_in(dir_), Names{"step-1"});
}

TEST_F(CheckpointCopy, FlippedByteIsFoundAndNothingIsInPlace) {
  const Sent manifest = lost(nested_checkpoint());
  for (std::size_t at = 0; at < manifest.bytes.size(); ++at) {
    Sent flipped = manifest;
    flipped.bytes[at] = static_cast<char>(flipped.bytes[at] ^ 1);
    ASSERT_EQ(code_of(copy(flipped)), ErrorCode::damaged) << at;
    ASSERT_EQ(names_in(dir_), Names{}) << at;
  }
  const Sent bundle = lost(bundle_checkpoint(3));
  for (std::size_t at = 0; at < bundle.bytes.size(); ++at) {
    Sent flipped = bundle;
    flipped.bytes[at] = static_cast<char>(flipped.bytes[at] ^ 1);
    ASSERT_EQ(code_of(copy(flipped)), ErrorCode::damaged) << at;
    ASSERT_EQ(names_in(dir_), Names{}) << at;
  }
}

TEST_F(CheckpointCopy, ListThatIsNoneOfACheckpointIsRefused) {
  const Sent good = lost(nested_checkpoint());
  for (const std::string bad : {"../evil", "/evil", "a/../../evil", "", "w.bin", "a", "a/b/c.bin/d", "MANIFEST.json", "MANIFEST.json/x"}) {
    Sent sent = good;
    sent.files.push_back({bad, 0});
    EXPECT_EQ(code_of(copy(sent)), ErrorCode::damaged) << bad;
  }
  Sent unnamed = good;  // a good name, but one that no digest vouches for
  unnamed.files.push_back({"train.py", 4});
  unnamed.bytes += "evil";
  EXPECT_EQ(code_of(copy(unnamed)), ErrorCode::damaged);
  Sent turned = good;  // it would be seen before it is whole
  std::rotate(turned.files.begin(), turned.files.begin() + 1, turned.files.end());
  const auto first = static_cast<std::ptrdiff_t>(good.files[0].size);
  std::rotate(turned.bytes.begin(), turned.bytes.begin() + first, turned.bytes.end());
  EXPECT_EQ(code_of(copy(turned)), ErrorCode::damaged);
  Sent none = good;
  none.files.clear();
  EXPECT_EQ(code_of(copy(none)), ErrorCode::damaged);
  EXPECT_EQ(names_in(dir_), Names{});
  EXPECT_EQ(names_in(root_), Names{"ckpt"});

  Sent bundle = lost(bundle_checkpoint(3));
  bundle.files.push_back({"model.ckpt-4.index", 0});
  EXPECT_EQ(code_of(copy(bundle)), ErrorCode::damaged);
}

TEST_F(CheckpointCopy, NoLinkIsFollowed) {
  const auto path = nested_checkpoint();
  const Sent sent = lost(path);
  std::filesystem::create_directory(root_ + "/elsewhere");
  std::filesystem::create_symlink(root_ + "/elsewhere", path);
  EXPECT_EQ(code_of(copy(sent)), ErrorCode::io);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  std::filesystem::create_symlink(root_ + "/elsewhere", path + "/a");
  EXPECT_EQ(code_of(copy(sent)), ErrorCode::io);
  EXPECT_EQ(names_in(root_ + "/elsewhere"), Names{});
  EXPECT_TRUE(scan().empty());
}

TEST_F(CheckpointCopy, WhatIsInTheWayIsNeitherTheSourcesNorTheJobsFault) {
  const auto path = nested_checkpoint();
  const Sent sent = lost(path);
  write(path, "a file");
  EXPECT_EQ(code_of(copy(sent)), ErrorCode::io);
  EXPECT_EQ(names_in(dir_), Names{"step-1"});
  std::filesystem::remove(path);
  auto target = begin(sent);
  ASSERT_TRUE(target);
  std::filesystem::remove_all(dir_ + "/" + names_in(dir_).front());
  EXPECT_EQ(code_of((*target)->write(sent.bytes)), ErrorCode::io);
  std::filesystem::remove_all(dir_);
  write(dir_, "a file");
  EXPECT_EQ(code_of(copy(sent)), ErrorCode::io);
}

TEST_F(CheckpointCopy, DirectoryThatIsThereIsLeftAsItIs) {
  const auto path = nested_checkpoint();
  const Sent sent = lost(path);
  std::filesystem::create_directories(path);
  ASSERT_EQ(::chmod(path.c_str(), 0751), 0);
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(mode_of(path), 0751u) << "empty as it was";
  std::filesystem::remove_all(path + "/a");
  std::filesystem::create_directories(path + "/a");
  ASSERT_EQ(::chmod((path + "/a").c_str(), 0755), 0);
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(mode_of(path), 0751u);
  EXPECT_EQ(mode_of(path + "/a"), 0755u);
  EXPECT_EQ(mode_of(path + "/w.bin"), 0600u);
  EXPECT_EQ(names_in(dir_), Names{"step-1"});
  EXPECT_TRUE(store::verify(scan()[0]));
}

TEST_F(CheckpointCopy, OfTheDirectoryItselfIsWrittenInIt) {
  write_manifest_checkpoint(dir_, 1, {{"w.bin", "weights"}, {"a/b.bin", "b"}});
  const Sent sent = lost(dir_);
  write(dir_ + "/notes.txt", "mine");
  auto target = begin(sent);
  ASSERT_TRUE(target) << target.error().text();
  EXPECT_EQ(names_in(root_), Names{"ckpt"}) << "its parent may be another disk";
  EXPECT_EQ(names_in(dir_).size(), 2u);
  ASSERT_TRUE((*target)->write(sent.bytes));
  EXPECT_TRUE(scan().empty());
  ASSERT_TRUE(finish(**target));
  EXPECT_EQ(names_in(dir_), (Names{"MANIFEST.json", "a", "notes.txt", "w.bin"}));
  EXPECT_EQ(mode_of(dir_), 0755u);
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_TRUE(store::verify(scan()[0]));
}

TEST_F(CheckpointCopy, TwoForOnePathDoNotMeet) {
  const auto path = nested_checkpoint();
  const Sent sent = lost(path);
  auto one = begin(sent, 1), two = begin(sent, 2), three = begin(sent, 3);
  ASSERT_TRUE(one && two && three);
  const std::size_t half = sent.bytes.size() / 2;
  for (auto* target : {&one, &two, &three}) ASSERT_TRUE((**target)->write(sent.bytes.substr(0, half)));
  (*three)->drop();
  for (auto* target : {&one, &two}) ASSERT_TRUE((**target)->write(sent.bytes.substr(half)));
  ASSERT_TRUE(finish(**one));
  ASSERT_TRUE(finish(**two));
  EXPECT_EQ(names_in(dir_), Names{"step-1"});
  EXPECT_TRUE(store::verify(scan()[0]));
}

TEST_F(CheckpointCopy, LeftoversOfEarlierLivesGo) {
  const Sent sent = lost(nested_checkpoint());
  const store::CopyOwner before{"h1", 1}, other{"h2", 1}, similar{"h1", 22};
  for (const auto& owner : {before, other, similar}) write(dir_ + "/" + store::temporary_name(owner, 5) + "/a/w.bin", "part");
  write(dir_ + "/copy-h1.tmp/w.bin", "the user's");
  auto running = begin(sent, 5);  // which removes them, too: `restore` may name a directory that nobody watches
  ASSERT_TRUE(running);
  EXPECT_FALSE(exists(dir_ + "/" + store::temporary_name(before, 5)));
  write(dir_ + "/" + store::temporary_name(before, 6) + "/w.bin", "part");
  store::remove_leftovers(dir_, options_.owner);
  Names left{store::temporary_name(options_.owner, 5), store::temporary_name(other, 5), "copy-h1.tmp"};
  std::ranges::sort(left);
  EXPECT_EQ(names_in(dir_), left);
  EXPECT_TRUE(scan().empty());
}

TEST_F(CheckpointCopy, NothingIsWrittenWhereSpaceIsKept) {
  const Sent sent = lost(nested_checkpoint());
  options_.reserve.bytes = ~0ull;
  const Status refused = copy(sent);
  ASSERT_EQ(code_of(refused), ErrorCode::limit);
  EXPECT_NE(refused.error().text().find("storage.minFree"), std::string::npos) << refused.error().text();
  EXPECT_EQ(names_in(dir_), Names{});
  options_.reserve.bytes = 1;
  Sent huge = sent;  // together more than a number holds
  for (auto& file : huge.files) file.size = ~0ull - 1;
  EXPECT_EQ(code_of(copy(huge)), ErrorCode::limit);
  EXPECT_TRUE(copy(sent));
}

// ---------------------------------------------------------------- the file `checkpoint`

TEST_F(CheckpointCopy, BundleIsNamedWhereScriptsLook) {
  const auto prefix = bundle_checkpoint(3);
  write(prefix + ".meta", "graph");
  const Sent sent = lost(prefix);
  ASSERT_TRUE(copy(sent));
  EXPECT_TRUE(store::verify(scan()[0]));
  EXPECT_EQ(read(prefix + ".meta"), "graph");
  EXPECT_EQ(hint().find("model_checkpoint_path: \"model.ckpt-3\"\nall_model_checkpoint_paths: \"model.ckpt-3\"\n"), 0u) << hint();
  EXPECT_EQ(mode_of(dir_ + "/checkpoint"), 0600u);
  EXPECT_EQ(names_in(dir_).size(), 5u) << "nothing else is left";
}

TEST_F(CheckpointCopy, BundleIsTheNewestOfThoseThatWereNamed) {
  const auto prefix = bundle_checkpoint(3);
  const Sent sent = lost(prefix);
  const auto older = bundle_checkpoint(1);
  write(dir_ + "/checkpoint", "model_checkpoint_path: \"" + older + "\"\nall_model_checkpoint_paths: \"" + prefix +
                                  "\"\nall_model_checkpoint_paths: \"" + older +
                                  "\"\nall_model_checkpoint_timestamps: 1.5\nall_model_checkpoint_timestamps: 2.5\n");
  ASSERT_EQ(::chmod((dir_ + "/checkpoint").c_str(), 0644), 0);
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(hint().find("model_checkpoint_path: \"" + prefix + "\"\nall_model_checkpoint_paths: \"" + older +
                        "\"\nall_model_checkpoint_paths: \"" + prefix +
                        "\"\nall_model_checkpoint_timestamps: 2.5\nall_model_checkpoint_timestamps: "),
            0u)
      << hint();
  EXPECT_EQ(mode_of(dir_ + "/checkpoint"), 0644u) << "as it was";
  ASSERT_TRUE(store::quarantine(scan()[0], dir_));  // what takes it away again understands what was written
  EXPECT_EQ(hint().find("model_checkpoint_path: \"" + older + "\"\n"), 0u) << hint();
}

TEST_F(CheckpointCopy, BundleBelowIsNamedInTheDirectoryThatIsWatched) {
  const auto prefix = dir_ + "/sub/model-7";
  write_bundle_checkpoint(prefix, small_bundle());
  write(dir_ + "/checkpoint", "model_checkpoint_path: \"sub/model-7\"\n");
  const Sent sent = lost(prefix);
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(names_in(dir_), (Names{"checkpoint", "sub"}));
  EXPECT_EQ(mode_of(dir_ + "/sub"), 0700u);
  ASSERT_EQ(scan().size(), 1u);  // found by what the hint says
  EXPECT_TRUE(store::verify(scan()[0]));
}

TEST_F(CheckpointCopy, PrefixThatIsTheDirectoryIsNamedBesideIt) {
  spec_.dir = dir_ + "/model-7";
  write_bundle_checkpoint(spec_.dir, small_bundle());
  const Sent sent = lost(spec_.dir);
  ASSERT_TRUE(copy(sent));
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_EQ(hint().find("model_checkpoint_path: \"model-7\"\n"), 0u) << hint();
}

TEST_F(CheckpointCopy, AnothersHintAndWhatIsNoneStay) {
  const Sent sent = lost(bundle_checkpoint(3));
  spec_.dir = root_ + "/mine";  // `restore` names a bundle of another job
  write(dir_ + "/checkpoint", "model_checkpoint_path: \"model.ckpt-9\"\n");
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(hint(), "model_checkpoint_path: \"model.ckpt-9\"\n");
  std::filesystem::remove(dir_ + "/checkpoint");
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(hint().find("model_checkpoint_path: \"model.ckpt-3\"\n"), 0u) << hint();

  spec_.dir = dir_;
  std::filesystem::remove(dir_ + "/checkpoint");
  write(dir_ + "/checkpoint/notes.txt", "mine");
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(names_in(dir_ + "/checkpoint"), Names{"notes.txt"});
  std::filesystem::remove_all(dir_ + "/checkpoint");
  write(root_ + "/elsewhere", "not a hint");
  std::filesystem::create_symlink(root_ + "/elsewhere", dir_ + "/checkpoint");
  ASSERT_TRUE(copy(sent));
  EXPECT_EQ(read(root_ + "/elsewhere"), "not a hint");
  EXPECT_EQ(hint().find("model_checkpoint_path: \"model.ckpt-3\"\n"), 0u) << hint();
}

}  // namespace
}  // namespace dtrain::test
