#include "agent/store/checkpoint_changes.h"

#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/account/as_user.h"
#include "agent/store/checkpoint_files.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

class CheckpointChanges : public CheckpointWorld {
 protected:
  std::string hint() const { return read(dir_ + "/checkpoint"); }
};

TEST_F(CheckpointChanges, QuarantinedDirectoryHasNoNameThatLooksLikeACheckpoint) {
  const auto path = manifest_checkpoint(1);
  const auto moved = store::quarantine(scan()[0], dir_);
  ASSERT_TRUE(moved) << moved.error().text();
  EXPECT_EQ(*moved, path + ".quarantined-1");
  EXPECT_FALSE(exists(path));
  EXPECT_FALSE(exists(*moved + "/MANIFEST.json"));
  EXPECT_EQ(read(*moved + "/w.bin"), "weights 1");  // nothing is deleted
  EXPECT_TRUE(scan().empty());
  // The same name again, bad again.
  manifest_checkpoint(1);
  const auto again = store::quarantine(scan()[0], dir_);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, path + ".quarantined-2");
}

TEST_F(CheckpointChanges, TheDirectoryItselfStaysWhereItIs) {
  write_manifest_checkpoint(dir_, 1, {{"w", "w"}});
  for (const std::string& known : {dir_, std::string()}) {
    write_manifest_checkpoint(dir_, 1, {{"w", "w"}});
    const auto moved = store::quarantine(scan()[0], known);
    ASSERT_TRUE(moved);
    EXPECT_TRUE(moved->starts_with(dir_ + "/MANIFEST.json.quarantined-"));
    EXPECT_TRUE(exists(dir_ + "/w"));
    EXPECT_TRUE(scan().empty());
  }
}

TEST_F(CheckpointChanges, UnreadableManifestCanBeQuarantined) {
  write(dir_ + "/step-1/MANIFEST.json", "{");
  EXPECT_TRUE(store::quarantine(scan()[0], dir_));
  std::filesystem::create_directory(dir_ + "/step-2");
  ASSERT_EQ(::mkfifo((dir_ + "/step-2/MANIFEST.json").c_str(), 0600), 0);
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_TRUE(store::quarantine(scan()[0], dir_));
  EXPECT_TRUE(scan().empty());
}

TEST_F(CheckpointChanges, QuarantinedBundleGivesTheHintToTheNextGoodOne) {
  bundle_checkpoint(1);
  bundle_checkpoint(2);
  const auto bad = bundle_checkpoint(3);
  write(dir_ + "/checkpoint",
        "model_checkpoint_path: \"model.ckpt-3\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-1\"\nall_model_checkpoint_paths: \"model.ckpt-2\"\n"
        "all_model_checkpoint_paths: \"model.ckpt-3\"\n"
        "all_model_checkpoint_timestamps: 1.5\nall_model_checkpoint_timestamps: 2.5\n"
        "all_model_checkpoint_timestamps: 3.5\nlast_preserved_timestamp: 0.5\n");
  write(bad + ".meta", "graph");
  const auto moved = store::quarantine(scan()[0], dir_);
  ASSERT_TRUE(moved) << moved.error().text();
  EXPECT_EQ(*moved, bad + ".index.quarantined-1");
  for (const char* suffix : {".index", ".data-00000-of-00002", ".data-00001-of-00002", ".meta"}) {
    EXPECT_FALSE(exists(bad + suffix));
    EXPECT_TRUE(exists(bad + suffix + ".quarantined-1"));
  }
  EXPECT_EQ(hint(),
            "model_checkpoint_path: \"model.ckpt-2\"\n"
            "all_model_checkpoint_paths: \"model.ckpt-1\"\nall_model_checkpoint_paths: \"model.ckpt-2\"\n"
            "all_model_checkpoint_timestamps: 1.5\nall_model_checkpoint_timestamps: 2.5\n"
            "last_preserved_timestamp: 0.5\n");
  ASSERT_EQ(scan().size(), 2u);
  EXPECT_EQ(scan()[0].step, 2);
}

TEST_F(CheckpointChanges, HintWithoutASuccessorIsMovedAside) {
  bundle_checkpoint(1);
  write(dir_ + "/checkpoint", "model_checkpoint_path: \"" + dir_ + "/model.ckpt-1\"\n");
  ASSERT_TRUE(store::quarantine(scan()[0], ""));
  EXPECT_FALSE(exists(dir_ + "/checkpoint"));
  EXPECT_TRUE(exists(dir_ + "/checkpoint.quarantined-1"));
}

TEST_F(CheckpointChanges, RemoveTakesOnlyWhatTheCheckpointNames) {
  const auto path = dir_ + "/step-1";
  write_manifest_checkpoint(path, 1, {{"w", "w"}, {"a/b/c", "c"}, {"a/d", "d"}});
  ASSERT_TRUE(store::remove(scan()[0], dir_));
  EXPECT_FALSE(exists(path));
  write_manifest_checkpoint(path, 1, {{"w", "w"}, {"a/b/c", "c"}});
  write(path + "/a/notes.txt", "mine");
  ASSERT_TRUE(store::remove(scan()[0], dir_));
  EXPECT_EQ(read(path + "/a/notes.txt"), "mine");
  EXPECT_FALSE(exists(path + "/MANIFEST.json"));
  EXPECT_FALSE(exists(path + "/a/b"));

  write_manifest_checkpoint(dir_, 2, {{"w", "w"}});
  ASSERT_TRUE(store::remove(scan()[0], dir_));
  EXPECT_TRUE(exists(dir_));
  EXPECT_FALSE(exists(dir_ + "/w"));

  const auto prefix = bundle_checkpoint(3);
  write(prefix + ".notes", "mine");
  ASSERT_TRUE(store::remove(scan()[0], dir_));
  EXPECT_FALSE(exists(prefix + ".index"));
  EXPECT_FALSE(exists(prefix + ".data-00000-of-00002"));
  EXPECT_TRUE(exists(prefix + ".notes"));
}

TEST_F(CheckpointChanges, RemoveFollowsNoLinkOutOfTheDirectory) {
  const auto path = dir_ + "/step-1";
  write_manifest_checkpoint(path, 1, {{"sub/precious", "p"}});
  const auto info = scan()[0];
  std::filesystem::rename(path + "/sub", root_ + "/sub");
  std::filesystem::create_symlink(root_ + "/sub", path + "/sub");
  EXPECT_FALSE(store::remove(info, dir_));
  EXPECT_TRUE(exists(root_ + "/sub/precious"));
}

TEST_F(CheckpointChanges, ADirectoryIsOpenedBelowAnotherAndNowhereElse) {
  std::filesystem::create_directories(dir_ + "/a/b/c");
  std::filesystem::create_directories(root_ + "/out/c");
  std::filesystem::create_symlink(root_ + "/out", dir_ + "/a/out");
  std::filesystem::create_symlink("b", dir_ + "/a/inside");
  write(dir_ + "/a/file", "");
  const auto top = store::open_directory(dir_);
  ASSERT_TRUE(top);
  const auto inode = [](const UniqueFd& fd) {
    const auto facts = store::facts_of(fd);
    return facts ? facts->inode : 0;
  };
  for (const auto& [relative, path] : {std::pair("", ""), {".", ""}, {"a", "/a"}, {"a/b", "/a/b"}, {"a/b/c", "/a/b/c"}}) {
    const auto opened = store::open_beneath(*top, relative);
    ASSERT_TRUE(opened) << relative << opened.error().text();
    EXPECT_EQ(inode(*opened), inode(*store::open_directory(dir_ + path))) << relative;
  }
  for (const char* relative : {"a/out", "a/out/c", "a/inside", "a/inside/c", "..", "a/..", "a/../../out", "a/file"})
    EXPECT_EQ(store::open_beneath(*top, relative).error().code, ErrorCode::damaged) << relative;
  EXPECT_EQ(store::open_beneath(*top, "a/none/c").error().code, ErrorCode::not_found);
}

// Somebody who may write to the directory, too, puts a link in place of the checkpoint, to something of the user's that looks the same.
TEST_F(CheckpointChanges, NothingIsChangedThroughALinkInPlaceOfTheCheckpoint) {
  const std::string path = dir_ + "/run/step-1", precious = root_ + "/precious";
  for (const bool above : {false, true}) {
    write_manifest_checkpoint(path, 1, {{"w", "w"}});
    spec_.dir = dir_ + "/run";
    transfer::CheckpointInfo info = scan().at(0);
    const std::string swapped = above ? dir_ + "/run" : path;
    std::filesystem::rename(swapped, precious);
    std::filesystem::create_symlink(precious, swapped);
    const std::string kept = precious + (above ? "/step-1" : "");
    for (const std::string& known : {dir_, above ? dir_ : std::string()}) {
      EXPECT_FALSE(store::remove(info, known));
      EXPECT_FALSE(store::quarantine(info, known)) << known;
    }
    EXPECT_TRUE(exists(kept + "/MANIFEST.json"));
    EXPECT_TRUE(exists(kept + "/w"));
    std::filesystem::remove(swapped);
    std::filesystem::remove_all(precious);
    std::filesystem::create_directories(dir_ + "/run");
  }
}

// It could not be read when it was found, and what is there now can be: it is another one.
TEST_F(CheckpointChanges, WhatBecameReadableIsLeftAlone) {
  const auto path = manifest_checkpoint(1);
  transfer::CheckpointInfo info = scan().at(0);
  info.digest.clear();
  EXPECT_FALSE(store::quarantine(info, dir_));
  EXPECT_TRUE(exists(path + "/MANIFEST.json"));
}

// The kernel lets the agent follow the links of its own /proc whatever user it acts for.
TEST_F(CheckpointChanges, NoPathLeadsThroughWhatThisProcessHasOpen) {
  manifest_checkpoint(1);
  const auto open = store::open_directory(dir_);
  ASSERT_TRUE(open);
  for (const std::string& path :
       {"/proc/self/fd/" + std::to_string(open->get()), "/proc/self/fd/" + std::to_string(open->get()) + "/step-1",
        std::string("/proc/self/cwd"), std::string("/proc/self/root")}) {
    EXPECT_FALSE(store::open_directory(path)) << path;
    spec_.dir = path;
    EXPECT_FALSE(store::scan(spec_)) << path;
  }
}

// Only root can become somebody else; everybody else is somebody already, and then there is nothing to guard.
TEST_F(CheckpointChanges, AsUserTakesTheRightsOfTheUser) {
  const auto path = manifest_checkpoint(1);
  ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod((path + "/MANIFEST.json").c_str(), 0600), 0);
  const passwd* nobody = ::getpwnam("nobody");
  if (::geteuid() != 0 || nobody == nullptr) {
    EXPECT_TRUE(account::AsUser::enter({"whoever", 0}));
    return;
  }
  {
    const auto rights = account::AsUser::enter({"nobody", nobody->pw_uid});
    ASSERT_TRUE(rights) << rights.error().text();
    const auto found = store::scan(spec_);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->size(), 1u);
    EXPECT_FALSE(found->front().complete);
    EXPECT_NE(found->front().defect.find("Permission denied"), std::string::npos) << found->front().defect;
    EXPECT_FALSE(store::quarantine(found->front(), dir_));
  }
  ASSERT_EQ(scan().size(), 1u);  // root again
  EXPECT_TRUE(scan()[0].complete);
  EXPECT_FALSE(account::AsUser::enter({"no-such-user-here", 4242}));
}

}  // namespace
}  // namespace dtrain::test
