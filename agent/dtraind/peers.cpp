// The daemon's side of other agents: opens the links once the host's tasks are adopted, carries out what Membership
// wants of the network, and keeps its record on disk.
#include "agent/dtraind/daemon.h"
#include "agent/store/file.h"
#include "common/base/check.h"

namespace dtrain::daemon {

Status Daemon::open_network() {
  if (!prepared_.members.network) return {};
  auto resolver = host::Resolver::open();
  if (!resolver) return fail(resolver.error());
  resolver_ = std::move(*resolver);
  net::PeerLinksOptions options;
  listens_ = prepared_.port->endpoint();
  options.listen = {listens_.ip, listens_.port};
  options.self = MemberId::parse(prepared_.facts.id).value_or(MemberId{});
  CHECK(prepared_.keys);  // no port is ever open without a key
  options.keys = prepared_.keys;
  // The reservations end here: two sockets of one process cannot both hold a port that one of them listens on.
  prepared_.port.reset();
  prepared_.bulk_port.reset();
  auto links = net::PeerLinks::open(std::move(options), log_);
  if (!links) return fail(links.error());
  links_ = std::move(*links);
  if (auto added = add_source(
          links_->fd(), [this] { return links_->deadline(); },
          [this] {
            const Instant now = loop_->now().boot;
            links_->dispatch(now, [this, now](node::Event event) {
              const auto* relayed = std::get_if<node::RelayReceived>(&event);
              if (relayed == nullptr || !relays_.received(now, *relayed)) queue(std::move(event));
            });
          });
      !added)
    return added;
  if (auto added = add_source(
          resolver_->fd(), [] { return kNever; },
          [this] { resolver_->dispatch([this](auto found) { seeds_resolved(std::move(found)); }); });
      !added)
    return added;
  if (auto opened = founders_.open(prepared_.members.founders,
                                   [this](int fd, std::function<void()> dispatch) {
                                     return add_source(
                                         fd, [] { return kNever; }, std::move(dispatch));
                                   });
      !opened)
    return opened;
  for (node::Effect& effect : std::exchange(before_network_, {})) perform(effect);
  queue(node::NetworkUp{});
  drain();
  return {};
}

// Called inside perform(): the result is queued like every event.
void Daemon::resolve_seeds() {
  if (resolver_) resolver_->resolve(prepared_.seeds, [this](auto found) { seeds_resolved(std::move(found)); });
}

void Daemon::seeds_resolved(std::vector<host::Endpoint> found) {
  gossip::SeedsResolved resolved;
  for (host::Endpoint& endpoint : found) resolved.endpoints.push_back({std::move(endpoint.ip), endpoint.port});
  queue(node::Gossiped{std::move(resolved)});
}

// To every address that the founder's name resolves to: a machine with several gets the message several times, which is harmless.
void Daemon::send_formation(const node::SendFormation& message) {
  if (!links_) return;
  for (const host::Endpoint& at : founders_.addresses(message.founder, loop_->now().boot)) links_->send({at.ip, at.port}, message);
}

// One write at a time; of records that arrive meanwhile only the newest is kept.
void Daemon::save_members(node::SaveMembers record) {
  if (saving_members_) {
    next_record_ = std::move(record);
    return;
  }
  auto shared = std::make_shared<const node::SaveMembers>(std::move(record));
  saving_members_ = worker_->post(store::Lane::commit, [this, shared, path = prepared_.layout.members_file()] {
    auto written = store::write_file_atomically(path, shared->record, 0600);
    return [this, ticket = shared->ticket, written = std::move(written)] {
      saving_members_ = false;
      queue(node::MembersSaved{ticket, written});
      save_next_record();
    };
  });
  if (!saving_members_) next_record_ = *shared;  // the worker's queue is full: tried again in the next turn
}

void Daemon::save_next_record() {
  if (saving_members_ || !next_record_) return;
  save_members(*std::exchange(next_record_, std::nullopt));
}

// A new key is presented at once; hosts that still present an older one of the file are let in as before. Returns
// false if the key was refused.
bool Daemon::reload_key(const Config& config) {
  if (!prepared_.keys) return true;  // --dev
  const std::string path = key_path(config, prepared_.layout);
  auto keys = net::read_key_file(path);
  Status changed;
  if (keys) changed = links_ ? links_->rekey(*keys) : Status();
  if (!keys || !changed) {
    log_.write(LogLevel::error, "config.rejected",
               {{"error", (keys ? changed.error() : keys.error()).text()},
                {"next", "the keys read before stay in force; correct the file and send SIGHUP again"}});
    return false;
  }
  config_.network.key_file = config.network.key_file;
  config_.network.key_file_given = config.network.key_file_given;
  prepared_.keys = std::move(*keys);
  return true;
}

}  // namespace dtrain::daemon
