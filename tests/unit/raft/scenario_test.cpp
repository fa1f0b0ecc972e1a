// Stories of a council, one text file each in scenarios/. A line is a deed or an expectation; "#" begins a
// comment.
//
//   members N                      1 .. N found the log; must come first
//   option NAME VALUE              before `members`: kept_entries, chunk_bytes, message_entries, window
//   disk M TERM...                 before `members`: what M has behind the configuration, one entry for each
//   term leader M                       M is made the leader;  "elect": somebody is propose WORD... each at
//   the leader; "and is committed" is expected offer M WORD                   proposed at M, whatever comes
//   of it read M                         asked at M; `expect read TEXT` tells the answer: ok, pending,
//   not-leader, ... add|promote|demote|remove M    asked at the leader; must be accepted refuse
//   add|promote|demote|remove M REFUSAL transfer M                     the leader is told to hand over to M
//   kill M | kill M written | start M | stop M | resume M | empty M (starts without a disk, waits to be
//   added) save M | restore M             a copy of M's disk is taken; M is killed, put back to it and
//   started gone M                         everybody else sees the connection to M refused disk of M takes T
//   | disk of M fails cut A B | cut A to B | isolate M | heal snapshot M                     M's owner makes
//   one of all that is applied run T expect leader M | no leader | term M N | same term M (since `note M`) |
//   state M WORD... | commit M N | last M N expect voters M N... | learners M [N...] | mute M WHY | role M
//   ROLE | installed M N | equal | read TEXT | elections M N
//
// At its end every story is healed and everybody who runs must agree; two leaders in a term or different
// entries at one index fail it at any time.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/raft/tiny_council.h"

namespace dtrain::raft {
namespace {

using Words = std::vector<std::string>;

class Story {
 public:
  explicit Story(const std::string& name) : name_(name) {}

  void tell(std::istream& text) {
    std::string line;
    while (std::getline(text, line) && !::testing::Test::HasFatalFailure()) {
      ++line_;
      std::istringstream in(line.substr(0, line.find('#')));
      Words words;
      for (std::string word; in >> word;) words.push_back(word);
      if (words.empty()) continue;
      SCOPED_TRACE(name_ + ":" + std::to_string(line_) + ": " + line);
      if (words[0] == "expect") expect({words.begin() + 1, words.end()});
      else act(words);
      const Words broken = council_ ? council_->violations : Words{};
      EXPECT_EQ(broken, Words{}) << where();
    }
    ASSERT_TRUE(council_);
    council_->heal();
    council_->elect();
    EXPECT_TRUE(council_->run_until([this] { return council_->equal(); }, 10s)) << where();
    EXPECT_EQ(council_->violations, Words{}) << where();
  }

 private:
  std::string where() const { return name_ + ":" + std::to_string(line_); }
  static std::uint64_t number(const std::string& word) { return std::stoull(word); }
  static Duration span(const std::string& word) {
    return word.ends_with("ms") ? Duration(std::chrono::milliseconds(std::stoll(word))) : Duration(std::chrono::seconds(std::stoll(word)));
  }
  static std::vector<MemberId> ids(const Words& words, std::size_t from) {
    std::vector<MemberId> all;
    for (std::size_t i = from; i < words.size(); ++i) all.push_back(TinyCouncil::id(number(words[i])));
    return all;
  }
  static std::optional<ChangeKind> change(const std::string& word) {
    const Words kinds{"add", "promote", "demote", "remove"};
    const auto at = std::ranges::find(kinds, word);
    if (at == kinds.end()) return std::nullopt;
    return static_cast<ChangeKind>(at - kinds.begin());
  }

  void found(std::uint64_t members) {
    council_.emplace(options_);
    for (std::uint64_t member = 1; member <= members; ++member) {
      Stored& disk = council_->at(member).disk;
      disk = raft::found(TinyCouncil::kHistory, {TinyCouncil::ids(1, members), {}});
      for (const std::uint64_t term : disks_[member]) {
        const std::uint64_t index = disk.log.size() + 1;
        disk.log.push_back({index, term, std::to_string(term) + "/" + std::to_string(index), EntryKind::command, {}});
        disk.hard.term = std::max(disk.hard.term, term);
      }
    }
    for (std::uint64_t member = 1; member <= members; ++member) council_->start(member);
  }

  void act(const Words& w) {
    const std::string& deed = w[0];
    const std::uint64_t member = w.size() > 1 && std::isdigit(w[1][0]) ? number(w[1]) : 0;
    if (deed == "option") {
      if (w[1] == "kept_entries") options_.kept_entries = number(w[2]);
      else if (w[1] == "chunk_bytes") options_.snapshot_chunk_bytes = number(w[2]);
      else if (w[1] == "message_entries") options_.message_entries = number(w[2]);
      else if (w[1] == "window") options_.window = static_cast<std::uint32_t>(number(w[2]));
      else FAIL() << "unknown option";
    } else if (deed == "disk" && !council_) {
      for (std::size_t i = 2; i < w.size(); ++i) disks_[member].push_back(number(w[i]));
    } else if (deed == "members") {
      found(member);
    } else if (deed == "leader") {
      council_->make_leader(member);
    } else if (deed == "elect") {
      ASSERT_NE(council_->elect(), 0u) << where();
    } else if (deed == "propose") {
      for (std::size_t i = 1; i < w.size(); ++i) ASSERT_TRUE(council_->commit(w[i])) << where() << ": not committed";
    } else if (deed == "offer") {
      council_->give(member, Propose{++asked_, w[2]});
    } else if (deed == "read") {
      reader_ = member;
      council_->give(member, ReadAsked{++asked_});
    } else if (const auto kind = change(deed)) {
      EXPECT_STREQ(to_string(council_->change(*kind, member)), "none") << where();
    } else if (deed == "refuse") {
      EXPECT_EQ(to_string(council_->change(*change(w[1]), number(w[2]))), w[3]) << where();
    } else if (deed == "try") {
      council_->give(number(w[4]), ChangeAsked{++asked_, *change(w[1]), TinyCouncil::id(number(w[2]))});
    } else if (deed == "transfer") {
      council_->give(council_->leader(), TransferAsked{TinyCouncil::id(member)});
    } else if (deed == "kill") {
      council_->kill(member, w.size() > 2 && w[2] == "written");
    } else if (deed == "start") {
      council_->start(member);
    } else if (deed == "empty") {
      council_->at(member).disk = {};
      council_->start(member);
    } else if (deed == "stop") {
      council_->stop(member);
    } else if (deed == "resume") {
      council_->resume(member);
    } else if (deed == "save") {
      saved_[member] = {council_->at(member).disk, council_->at(member).life};
    } else if (deed == "restore") {
      council_->kill(member);
      council_->at(member).disk = saved_[member].first;
      council_->at(member).life = saved_[member].second;  // the life is counted in the directory that was put back
      council_->start(member);
    } else if (deed == "gone") {
      for (std::uint64_t other = 1; other < 10; ++other)
        if (other != member && council_->at(other).raft) council_->give(other, LeaderGone{TinyCouncil::id(member)});
    } else if (deed == "disk") {
      TinyCouncil::Member& owner = council_->at(number(w[2]));
      if (w[3] == "fails") owner.disk_fails = true;
      else owner.disk_takes = span(w[4]);
    } else if (deed == "cut") {
      if (w[2] == "to") council_->cut_one_way(member, number(w[3]));
      else council_->cut(member, number(w[2]));
    } else if (deed == "isolate") {
      council_->isolate(member);
    } else if (deed == "heal") {
      council_->heal();
    } else if (deed == "snapshot") {
      council_->give(member, Snapshotted{council_->raft(member).commit(), council_->at(member).state});
    } else if (deed == "run") {
      council_->run(span(w[1]));
    } else if (deed == "note") {
      terms_[member] = council_->raft(member).term();
    } else {
      FAIL() << where() << ": unknown deed";
    }
  }

  void expect(const Words& w) {
    const std::string& what = w[0];
    const std::size_t at = what == "same" ? 2 : 1;
    const std::uint64_t member = w.size() > at && std::isdigit(w[at][0]) ? number(w[at]) : 0;
    if (what == "leader") {
      council_->elect();
      EXPECT_EQ(council_->leader(), member) << where();
    } else if (what == "no") {
      EXPECT_EQ(council_->leader(), 0u) << where();
    } else if (what == "term") {
      EXPECT_EQ(council_->raft(member).term(), number(w[2])) << where();
    } else if (what == "same") {
      EXPECT_EQ(council_->raft(member).term(), terms_[member]) << where();
    } else if (what == "state") {
      std::string state;
      for (std::size_t i = 2; i < w.size(); ++i) state += w[i] + ";";
      EXPECT_EQ(council_->at(member).state, state) << where();
    } else if (what == "commit") {
      EXPECT_EQ(council_->raft(member).commit(), number(w[2])) << where();
    } else if (what == "last") {
      EXPECT_EQ(council_->raft(member).last_index(), number(w[2])) << where();
    } else if (what == "voters") {
      EXPECT_EQ(council_->raft(member).configuration().voters, ids(w, 2)) << where();
    } else if (what == "learners") {
      EXPECT_EQ(council_->raft(member).configuration().learners, ids(w, 2)) << where();
    } else if (what == "mute") {
      EXPECT_EQ(to_string(council_->raft(member).mute()), w[2]) << where();
    } else if (what == "role") {
      EXPECT_EQ(to_string(council_->raft(member).role()), w[2]) << where();
    } else if (what == "installed") {
      EXPECT_EQ(council_->raft(member).counters().snapshots_installed, number(w[2])) << where();
    } else if (what == "elections") {
      EXPECT_EQ(council_->raft(member).counters().elections, number(w[2])) << where();
    } else if (what == "equal") {
      EXPECT_TRUE(council_->run_until([this] { return council_->equal(); }, 5s)) << where();
    } else if (what == "read") {
      const auto answer = council_->answer(reader_, asked_);
      const std::string text = !answer ? "pending" : answer->refusal == Refusal::none ? "ok" : to_string(answer->refusal);
      EXPECT_EQ(text, w[1]) << where();
    } else {
      FAIL() << where() << ": unknown expectation";
    }
  }

  std::string name_;
  int line_ = 0;
  RaftOptions options_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> disks_;
  std::map<std::uint64_t, std::pair<Stored, std::uint64_t>> saved_;
  std::map<std::uint64_t, std::uint64_t> terms_;
  std::uint64_t asked_ = 1'000'000, reader_ = 0;
  std::optional<TinyCouncil> council_;
};

std::vector<std::string> stories() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(std::string(DTRAIN_SOURCE_DIR) + "/tests/unit/raft/scenarios"))
    if (file.path().extension() == ".txt") names.push_back(file.path().stem().string());
  std::ranges::sort(names);
  return names;
}

class Scenario : public ::testing::TestWithParam<std::string> {};

TEST_P(Scenario, GoesAsTold) {
  std::ifstream text(std::string(DTRAIN_SOURCE_DIR) + "/tests/unit/raft/scenarios/" + GetParam() + ".txt");
  ASSERT_TRUE(text);
  Story(GetParam() + ".txt").tell(text);
}
INSTANTIATE_TEST_SUITE_P(Raft, Scenario, ::testing::ValuesIn(stories()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace dtrain::raft
