// The wiring alone: a stand-in decides, a stand-in runs; the loop, the disk and the control socket are real.
#include "agent/dtraind/daemon.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "agent/store/file.h"

namespace dtrain::daemon {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAbsentDigest = "0000000000000000000000000000000000000000000000000000000000000000";

// What happened, in order, by all stand-ins.
using Trace = std::vector<std::string>;

class FakeRunner : public proc::Runner {
 public:
  explicit FakeRunner(Trace& trace) : trace_(trace) {}
  ~FakeRunner() override { ::close(fd_); }
  std::vector<task::FoundShim> list() override {
    trace_.push_back("list");
    task::FoundShim found;
    found.id = {7, 1, {"worker", 0}};
    found.shim_alive = found.running = true;
    return {found};
  }
  void launch(const task::ShimSpec&) override { trace_.push_back("launch"); }
  void start(const AssignmentId& id, AttemptNumber attempt) override {
    trace_.push_back("start " + id.text() + " " + std::to_string(attempt));
  }
  void signal(const node::SignalTask&) override { trace_.push_back("signal"); }
  void kill(const AssignmentId&) override { trace_.push_back("kill"); }
  void freeze(const AssignmentId&, bool) override {}
  void answer_lease(const node::AnswerLease&) override { trace_.push_back("answer-lease"); }
  void require_lease(const node::RequireLease&) override { trace_.push_back("require-lease"); }
  void end(const AssignmentId&) override {}
  void remove_files(const AssignmentId&) override {}
  Status run_beside(const AssignmentId&, const Program&) override { return fail(ErrorCode::refused, "nothing runs here"); }
  std::optional<AssignmentId> task_of(pid_t) const override { return std::nullopt; }
  int fd() const override { return fd_; }
  Instant deadline() const override { return kNever; }
  void dispatch(proc::EventSink& sink) override {
    eventfd_t ignored = 0;
    if (::eventfd_read(fd_, &ignored) != 0) return;
    sink(node::AttemptExited{{7, 1, {"worker", 0}}, 1, {}});
  }
  void exit_now() { ASSERT_EQ(::eventfd_write(fd_, 1), 0); }

 private:
  Trace& trace_;
  int fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
};

class FakeDecider : public Decider {
 public:
  using Step = std::function<void(const node::Event&, std::vector<node::Effect>&)>;
  explicit FakeDecider(Step step) : step_(std::move(step)) {}
  void step(Now, const node::Event& event, std::vector<node::Effect>& out) override { step_(event, out); }
  Instant deadline() const override { return ticking ? Instant{} : kNever; }
  std::string status_line() const override { return "coordinator n1"; }
  bool among_others() const override { return false; }
  node::ConnectionId next_connection() override { return ++last_connection_; }
  bool may_have_package(node::ConnectionId, const std::string&) const override { return true; }
  bool ticking = false;  // a Tick in every turn

 private:
  Step step_;
  node::ConnectionId last_connection_ = 0;
};

int connect_to(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "dtrain-daemon-XXXXXX").string();
    ASSERT_TRUE(::mkdtemp(name.data()));
    dir_ = name;
    config_.dev = true;
    config_.paths.data = dir_ + "/data";
    config_.paths.run = dir_ + "/run";
    config_.paths.data_given = config_.paths.run_given = true;
    auto signals = loop::Signals::open({SIGTERM});
    ASSERT_TRUE(signals);
    signals_ = std::make_unique<loop::Signals>(std::move(*signals));
    null_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    log_ = std::make_unique<LogSink>(null_, LogLevel::error);
  }
  void TearDown() override {
    daemon_.reset();
    ::close(null_);
    std::filesystem::remove_all(dir_);
  }
  void create(FakeDecider::Step step) {
    const auto layout = choose_layout(config_);
    ASSERT_TRUE(layout);
    auto prepared = prepare(config_, *layout, "9.9", *log_);
    ASSERT_TRUE(prepared) << prepared.error().error.text();
    auto runner = std::make_unique<FakeRunner>(trace_);
    runner_ = runner.get();
    auto daemon = Daemon::create(
        config_, std::move(*prepared), std::move(runner),
        [&](Log&) {
          auto decider = std::make_unique<FakeDecider>(step);
          decider->ticking = ticking_;
          return decider;
        },
        *log_, "9.9");
    ASSERT_TRUE(daemon) << daemon.error().error.text();
    daemon_ = std::move(*daemon);
  }
  int run() {
    auto manager = loop::ServiceManager::from_environment();
    return daemon_->run(
        *signals_, [] { return Result<LoadedConfig>(LoadedConfig{}); }, manager);
  }
  std::string socket_path() const { return dir_ + "/run/control.sock"; }

  std::string dir_;
  Config config_;
  Trace trace_;
  bool ticking_ = false;
  int null_ = -1;
  std::unique_ptr<loop::Signals> signals_;
  std::unique_ptr<LogSink> log_;
  FakeRunner* runner_ = nullptr;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(DaemonTest, AdoptsBeforeItAnswersAndStartsInTheTurnOfTheExit) {
  create([&](const node::Event& event, std::vector<node::Effect>& out) {
    if (const auto* started = std::get_if<node::Started>(&event)) {
      trace_.push_back("started with " + std::to_string(started->shims.size()));
      EXPECT_FALSE(std::filesystem::exists(socket_path()));
      node::Persist persist;
      persist.ticket = 1;
      persist.append.push_back({1, 1, "x"});
      out.push_back(std::move(persist));
    } else if (std::get_if<node::Persisted>(&event)) {
      trace_.push_back("persisted");
      if (trace_.size() == 3) runner_->exit_now();
    } else if (const auto* exited = std::get_if<node::AttemptExited>(&event)) {
      node::Persist persist;
      persist.ticket = 2;
      persist.put_task_records["a"] = "b";
      out.push_back(std::move(persist));
      out.push_back(node::StartAttempt{exited->id, exited->attempt + 1});
    } else if (std::get_if<node::Stopping>(&event)) {
      trace_.push_back("stopping");
    }
    if (trace_.size() == 5) ::raise(SIGTERM);
  });
  EXPECT_EQ(run(), EX_OK);
  EXPECT_EQ(trace_, (Trace{"list", "started with 1", "persisted", "start 7.1.worker-0 2", "persisted", "stopping"}));
  EXPECT_FALSE(daemon_->all_tasks_gone());
}

// A service manager that listens: ready once the control socket is there, signs of life from turns of the loop, a last word.
TEST_F(DaemonTest, TellsTheServiceManager) {
  const int manager = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = dir_ + "/notify";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(manager, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::vector<std::string> heard;
  const auto listen = [&] {
    char text[256];
    for (ssize_t n = 0; (n = ::recv(manager, text, sizeof text, MSG_DONTWAIT)) > 0;) heard.emplace_back(text, static_cast<std::size_t>(n));
  };
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  config_.tasks.cgroup = "/dtrain.slice/dtrain-tasks.service";
  ::setenv("WATCHDOG_USEC", "300000", 1);  // three in that time
  ticking_ = true;
  bool asked = false;
  create([&](const node::Event&, std::vector<node::Effect>&) {
    listen();
    if (!heard.empty()) {
      EXPECT_TRUE(std::filesystem::exists(socket_path()));
    }
    if (heard.size() == 3 && !std::exchange(asked, true)) ::raise(SIGTERM);
  });
  EXPECT_EQ(run(), EX_OK);
  listen();
  ::close(manager);
  ASSERT_GE(heard.size(), 4u);
  EXPECT_EQ(heard[0], "READY=1\nSTATUS=coordinator n1");
  EXPECT_EQ(heard[1], "WATCHDOG=1");
  EXPECT_EQ(heard[2], "WATCHDOG=1");
  EXPECT_EQ(heard.back(),
            "STOPPING=1\nSTATUS=stopped; 1 tasks run on; to end them: dtrainctl cancel JOB at a node of the "
            "cluster, or here systemctl stop dtrain-tasks.service");
}

TEST_F(DaemonTest, RequestsGoToTheDeciderAndHasBlobToTheDisk) {
  struct {
    int fd = -1;
    wire::Deframer input;
    std::map<std::uint64_t, wire::MessageType> answers;
    void read() {
      char chunk[4096];
      const ssize_t n = fd < 0 ? 0 : ::recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
      if (n > 0) input.feed(std::string_view(chunk, static_cast<std::size_t>(n)));
      for (auto m = input.next(); m && *m; m = input.next()) answers[(*m)->request] = (*m)->type;
    }
  } client;
  ticking_ = true;
  create([&](const node::Event& event, std::vector<node::Effect>& out) {
    if (std::get_if<node::Started>(&event)) runner_->exit_now();
    if (std::get_if<node::AttemptExited>(&event)) {  // served behind the start: the control socket is open by now
      client.fd = connect_to(socket_path());
      const auto has = wire::make_message(wire::MessageType::has_blob, 1, wire::BlobRequest{kAbsentDigest});
      const auto version = wire::make_message(wire::MessageType::query_version, 2, wire::Empty{});
      const std::string bytes = wire::frame(has) + wire::frame(version);
      ASSERT_EQ(::send(client.fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    }
    if (const auto* opened = std::get_if<node::ConnectionOpened>(&event)) {
      EXPECT_EQ(opened->caller.uid, ::getuid());
    }
    if (const auto* request = std::get_if<node::Request>(&event)) {
      EXPECT_EQ(request->request, 2u);
      const auto reply = wire::make_message(wire::MessageType::version, 2, wire::VersionReply{"9.9", "n"});
      out.push_back(node::Reply{request->connection + 1, 2, true, wire::encode(reply)});  // a connection that is gone
      out.push_back(node::Reply{request->connection, 2, true, wire::encode(reply)});
    }
    client.read();
    if (client.answers.size() == 2) ::raise(SIGTERM);
  });
  EXPECT_EQ(run(), EX_OK);
  ::close(client.fd);
  EXPECT_EQ(client.answers[1], wire::MessageType::blob);
  EXPECT_EQ(client.answers[2], wire::MessageType::version);
}

TEST_F(DaemonTest, ASecondAgentOnTheSameDataIsRefused) {
  create([](const node::Event&, std::vector<node::Effect>&) {});
  const auto second = prepare(config_, *choose_layout(config_), "9.9", *log_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().exit_code, EX_UNAVAILABLE);
  EXPECT_THAT(second.error().error.text(), HasSubstr("pid " + std::to_string(::getpid())));
}

TEST_F(DaemonTest, ANodeWithoutAClusterSaysWhatItWaitsFor) {
  config_.dev = false;
  config_.network.listen = "127.0.0.1:0";
  config_.network.join = {"gpu01"};
  auto prepared = prepare(config_, *choose_layout(config_), "9.9", *log_);
  ASSERT_TRUE(prepared) << prepared.error().error.text();
  EXPECT_THAT(prepared->members.waiting_for, HasSubstr("--join"));
}

TEST_F(DaemonTest, AMemberStaysAMemberWhateverTheCommandLineSays) {
  config_.dev = false;
  config_.network.listen = "127.0.0.1:0";
  config_.cluster.found = true;
  gossip::MemberRecord record;
  record.cluster_id = {0xc1, 0x57e2};
  std::filesystem::create_directories(dir_ + "/data");
  ASSERT_TRUE(store::write_file_atomically(dir_ + "/data/members", record.encode(), 0600));
  const auto prepared = prepare(config_, *choose_layout(config_), "9.9", *log_);
  ASSERT_TRUE(prepared) << prepared.error().error.text();
  EXPECT_FALSE(prepared->members.holds_ledger);
  EXPECT_FALSE(prepared->members.found);
  EXPECT_EQ(prepared->members.record.cluster_id, record.cluster_id);
  EXPECT_EQ(prepared->state.cluster_id, "");
  EXPECT_EQ(prepared->bulk_port->endpoint().port, prepared->port->endpoint().port + 1);
}

TEST_F(DaemonTest, FoundersAreTheNamesOfJoinAndOneOfThemIsThisMachine) {
  config_.dev = false;
  config_.node.name = "h2";
  config_.network.listen = "127.0.0.1:0";
  config_.cluster.expect = 2;
  const auto start = [&] { return prepare(config_, *choose_layout(config_), "9.9", *log_); };
  config_.network.join = {"h1"};
  auto refused = start();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().exit_code, EX_CONFIG);
  EXPECT_THAT(refused.error().error.text(), HasSubstr("could not form a cluster: `expect` is 2, and 1 founders are named"));
  config_.network.join = {"127.0.0.2:7400", "127.0.0.3"};
  refused = start();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().error.text(), HasSubstr("'h2' is not among the founders"));
  // What it belongs to counts, not what the command line says.
  gossip::MemberRecord record;
  record.cluster_id = {0xc1, 0x57e2};
  ASSERT_TRUE(store::write_file_atomically(dir_ + "/data/members", record.encode(), 0600));
  const auto member = start();
  ASSERT_TRUE(member) << member.error().error.text();
  EXPECT_TRUE(member->members.founders.empty());
}

TEST_F(DaemonTest, WhoPromisedToBeginAClusterWithOthersFoundsNone) {
  config_.dev = false;
  config_.node.name = "h1";
  config_.network.listen = "127.0.0.1:0";
  config_.cluster.found = true;
  {
    std::filesystem::create_directories(dir_ + "/data");
    auto store = store::Store::open(dir_ + "/data", "9.9");
    ASSERT_TRUE(store);
    cluster::formation::Record record;
    record.promise = {{1, 2}, {3, 3}, {{0, {3, 3}}, {1, {4, 4}}}};
    store::Transaction promise;
    promise.formation = record.encode();
    ASSERT_TRUE((*store)->commit(promise));
    promise.formation->pop_back();
    EXPECT_FALSE(cluster::formation::Record::decode(*promise.formation));
  }
  const auto refused = prepare(config_, *choose_layout(config_), "9.9", *log_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().error.text(), HasSubstr("promised others to begin one with them"));
}

TEST(Founders, AreNamedAlikeAndFindThemselves) {
  const auto seeds = [](std::vector<std::string> names) {
    std::vector<host::Seed> all;
    for (const auto& name : names) all.push_back(*host::parse_seed(name));
    return all;
  };
  EXPECT_EQ(founder_name(*host::parse_seed("gpu01:7400")), "gpu01");
  EXPECT_EQ(founder_name(*host::parse_seed("gpu01:7500")), "gpu01:7500");
  EXPECT_EQ(founder_name(*host::parse_seed("[fd00::1]:7400")), "fd00::1");
  EXPECT_EQ(founder_name(*host::parse_seed("[fd00::1]:7500")), "[fd00::1]:7500");
  const host::Endpoint here{"10.99.0.2", 7400};
  const auto own = [&](std::vector<std::string> names, const std::string& node) {
    return own_founder(seeds(std::move(names)), node, here, false);
  };
  EXPECT_EQ(own({"gpu01", "gpu02"}, "gpu02").value_or("?"), "gpu02");
  EXPECT_EQ(own({"gpu01.lab", "gpu02.lab"}, "gpu02").value_or("?"), "gpu02.lab");
  EXPECT_EQ(own({"10.99.0.1", "10.99.0.2:7400"}, "gpu02").value_or("?"), "10.99.0.2");
  EXPECT_EQ(own({"10.99.0.1", "10.99.0.2:7500"}, "gpu02").value_or("?"), "") << "another agent of that machine";
  EXPECT_EQ(own({"gpu1", "gpu022"}, "gpu02").value_or("?"), "");
  EXPECT_FALSE(own({"gpu02.a", "gpu02.b"}, "gpu02"));
}

TEST_F(DaemonTest, ADamagedRecordOfMembersIsSetAside) {
  config_.dev = false;
  config_.network.listen = "127.0.0.1:0";
  config_.cluster.found = true;
  std::filesystem::create_directories(dir_ + "/data");
  ASSERT_TRUE(store::write_file_atomically(dir_ + "/data/members", "not a record", 0600));
  const auto prepared = prepare(config_, *choose_layout(config_), "9.9", *log_);
  ASSERT_TRUE(prepared) << prepared.error().error.text();
  EXPECT_TRUE(prepared->members.found);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/data/members"));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/data/members.damaged"));
}

TEST_F(DaemonTest, TheRecordOfMembersIsWrittenAndConfirmed) {
  std::vector<std::uint64_t> saved;
  create([&](const node::Event& event, std::vector<node::Effect>& out) {
    if (std::holds_alternative<node::Started>(event))
      for (std::uint64_t ticket = 1; ticket <= 3; ++ticket)  // the second is overtaken
        out.push_back(node::SaveMembers{ticket, "record " + std::to_string(ticket)});
    if (const auto* done = std::get_if<node::MembersSaved>(&event)) {
      EXPECT_TRUE(done->result);
      saved.push_back(done->ticket);
      if (done->ticket == 3) ::raise(SIGTERM);
    }
  });
  EXPECT_EQ(run(), EX_OK);
  EXPECT_THAT(saved, ::testing::ElementsAre(1, 3));
  const auto text = store::read_file(dir_ + "/data/members", 100);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "record 3");
}

TEST_F(DaemonTest, WhoStopsAmongOthersSaysHowLongTheyWait) {
  config_.timing.lease = 7s;
  config_.timing.agent_grace = 1min;
  EXPECT_EQ(advice_at_stop(config_, "gpu3", false), "start the agent again to go on with them");
  EXPECT_EQ(advice_at_stop(config_, "gpu3", true),
            "start the agent again to go on with them; those under a lease stand still after 7s and are begun elsewhere after 1m; "
            "before a longer stop: dtrainctl drain gpu3 --wait");
}

TEST_F(DaemonTest, FoundingHappensOnce) {
  config_.dev = false;
  config_.network.listen = "127.0.0.1:0";
  config_.cluster.found = true;
  const auto start = [&] { return prepare(config_, *choose_layout(config_), "9.9", *log_)->state; };
  const auto first = start(), second = start();
  EXPECT_FALSE(first.cluster_id.empty());
  EXPECT_EQ(second.cluster_id, first.cluster_id);
  EXPECT_EQ(second.node, first.node);
  EXPECT_EQ(second.life, first.life + 1);
}

}  // namespace
}  // namespace dtrain::daemon
