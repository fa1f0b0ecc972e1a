// Every asynchronous effect has exactly one completion within the agent's life, and every request exactly one last
// reply. Checks the agent and the world alike.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class SingleCompletion final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "single_completion"; }

  void on_effect(const node::Effect& effect) override {
    std::visit([this](const auto& e) { begin(e); }, effect);
  }
  void on_event(const node::Event& event) override {
    std::visit([this](const auto& e) { end(e); }, event);
  }
  void at_end() override {
    if (host().node() == nullptr) return;
    const Instant long_ago = world_.now() - kSlowest;
    for (const auto& [key, open] : waiting_)
      if (open.since < long_ago) return violation(key.text() + " was never completed");
    for (const auto& [connection, request] : requests_)
      if (!SimClient::streams(request.type) && request.since < long_ago)
        return violation("request " + std::to_string(request.number) + " of connection " + std::to_string(connection) +
                         " was never answered");
  }

 private:
  enum class Kind : unsigned char { persist, stage, launch, start, freeze, end, remove, scan, verify, quarantine, hook, examination, look };
  struct Key {
    Kind kind;
    std::uint64_t number = 0;  // ticket, token, job, attempt
    AssignmentId id{};
    auto operator<=>(const Key&) const = default;
    std::string text() const {
      static constexpr const char* kWords[] = {"commit", "staging",      "launch",     "start", "freeze",      "end",         "removal",
                                               "scan",   "verification", "quarantine", "hook",  "examination", "look at GPUs"};
      return std::string(kWords[static_cast<std::size_t>(kind)]) + " " + std::to_string(number) + (id.job != 0 ? " of " + id.text() : "");
    }
  };
  static constexpr Duration kSlowest = 5s;  // nothing takes longer in the calm at the end
  struct Open {
    std::uint32_t count = 0;
    Instant since{};
  };
  struct Asked {
    Instant since{};
    std::uint64_t number = 0;
    wire::MessageType type = wire::MessageType::none;
  };

  void open(Key key) {
    Open& open = waiting_[std::move(key)];
    ++open.count;
    open.since = world_.now();
  }
  void close(const Key& key) {
    const auto it = waiting_.find(key);
    if (it == waiting_.end()) return violation(key.text() + " was completed, but not asked for or completed before");
    if (--it->second.count == 0) waiting_.erase(it);
  }

  void begin(const node::Persist& e) { open({Kind::persist, e.ticket}); }
  void begin(const node::Stage& e) { open({Kind::stage, 0, e.id}); }
  void begin(const node::LaunchShim& e) { open({Kind::launch, 0, e.spec.id}); }
  void begin(const node::StartAttempt& e) { open({Kind::start, e.attempt, e.id}); }
  void begin(const node::FreezeTask& e) { open({Kind::freeze, 0, e.id}); }
  void begin(const node::EndShim& e) { open({Kind::end, 0, e.id}); }
  void begin(const node::RemoveJobFiles& e) { open({Kind::remove, e.job}); }
  void begin(const node::ScanCheckpoints& e) { open({Kind::scan, e.token}); }
  void begin(const node::VerifyCheckpoint& e) { open({Kind::verify, e.token}); }
  void begin(const node::QuarantineCheckpoint& e) { open({Kind::quarantine, e.token}); }
  void begin(const node::RunHook& e) { open({Kind::hook, e.token}); }
  void begin(const node::FindGpuHolders& e) { open({Kind::look, e.token}); }
  void begin(const node::Examine& e) { open({Kind::examination, e.token}); }
  void begin(const node::Reply& e) {
    const auto it = requests_.find(e.connection);
    if (it == requests_.end()) return violation("a reply goes to connection " + std::to_string(e.connection) + ", which waits for none");
    if (it->second.number != e.request)
      return violation("a reply answers request " + std::to_string(e.request) + ", asked was " + std::to_string(it->second.number));
    if (e.last) requests_.erase(it);
  }
  template <class T>
  void begin(const T&) {}

  void end(const node::Started&) {
    waiting_.clear();
    requests_.clear();
  }
  void end(const node::Persisted& e) { close({Kind::persist, e.ticket}); }
  void end(const node::PersistFailed& e) { close({Kind::persist, e.ticket}); }
  void end(const node::Staged& e) { close({Kind::stage, 0, e.id}); }
  void end(const node::ShimUp& e) { close({Kind::launch, 0, e.id}); }
  void end(const node::AttemptStarted& e) { close({Kind::start, e.attempt, e.id}); }
  void end(const node::AttemptRefused& e) { close({Kind::start, e.attempt, e.id}); }
  void end(const node::FreezeDone& e) { close({Kind::freeze, 0, e.id}); }
  void end(const node::ShimGone& e) {
    if (e.expected) close({Kind::end, 0, e.id});
  }
  void end(const node::JobFilesRemoved& e) { close({Kind::remove, e.job}); }
  void end(const node::CheckpointsScanned& e) {
    if (e.token != 0) close({Kind::scan, e.token});
  }
  void end(const node::CheckpointVerified& e) { close({Kind::verify, e.token}); }
  void end(const node::CheckpointQuarantined& e) { close({Kind::quarantine, e.token}); }
  void end(const node::HookEnded& e) { close({Kind::hook, e.token}); }
  void end(const node::GpuHoldersFound& e) { close({Kind::look, e.token}); }
  void end(const node::Examined& e) { close({Kind::examination, e.token}); }
  void end(const node::Request& e) {
    const auto message = wire::decode<wire::Message>(e.body);
    requests_[e.connection] = Asked{world_.now(), e.request, message ? message->type : wire::MessageType::none};
  }
  void end(const node::ConnectionClosed& e) { requests_.erase(e.connection); }
  template <class T>
  void end(const T&) {}

  std::map<Key, Open> waiting_;
  std::map<node::ConnectionId, Asked> requests_;
};

}  // namespace

std::unique_ptr<Checker> single_completion(WorldView& world, std::size_t host) { return std::make_unique<SingleCompletion>(world, host); }

}  // namespace dtrain::sim
