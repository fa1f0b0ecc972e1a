#include "agent/dtraind/start.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "agent/account/host_user.h"
#include "agent/dtraind/exam_terms.h"
#include "agent/dtraind/founders.h"
#include "agent/dtraind/hardware.h"
#include "agent/host/address.h"
#include "agent/host/doctor_facts.h"
#include "agent/host/facts.h"
#include "agent/proc/container_host.h"
#include "agent/store/disk_failure.h"
#include "agent/store/file.h"
#include "common/job/container_engine.h"
#include "common/node/doctor.h"
#include "common/node/forming.h"

namespace dtrain::daemon {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kLoopbackIpv6 = "::1";
constexpr std::size_t kMembersFileBytes = 16 << 20;    // a larger file was not written by dtrain
constexpr std::uint64_t kKeptFreeOfDev = 64ull << 20;  // with --dev, unless storage.minFree says otherwise

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::damaged:
    case ErrorCode::refused: return EX_DATAERR;
    case ErrorCode::unavailable: return EX_UNAVAILABLE;
    case ErrorCode::invalid: return EX_CONFIG;
    case ErrorCode::internal: return EX_SOFTWARE;
    default: return EX_IOERR;
  }
}

Start<void> make_directory(const std::string& path, unsigned mode) {
  if (auto made = store::make_directories(path, mode); !made) {
    Error error = made.error();
    if (error.next.empty()) error.next = "run as a user who may, or choose another with --data-dir and --run-dir";
    return give_up(EX_CANTCREAT, std::move(error));
  }
  return {};
}

// No port is ever open without a key: an agent without one makes its own. A configured key must be valid.
Start<void> read_keys(const Config& config, Prepared& out, Log& log) {
  if (config.dev) return {};
  const std::string path = key_path(config, out.layout);
  if (path == out.layout.own_key()) {
    const bool made = ::access(path.c_str(), F_OK) != 0;
    if (made) {
      std::string text = net::new_key_file();
      const Status written = store::write_file_atomically(path, text, 0600);
      ::sodium_memzero(text.data(), text.size());
      if (!written) return give_up(EX_CANTCREAT, written.error());
    }
    log.write(config.network.join.empty() ? LogLevel::info : LogLevel::warn, made ? "network.key-made" : "network.own-key",
              {{"file", path},
               {"reason", "no key file that this agent may read: it has a key of its own, which no other host has"},
               {"next", "for a cluster of several hosts give all of them one key: copy that file to " + std::string(kDefaultKeyFile) +
                            " of each, this one among them, mode 0600, and start the agents again"}});
  }
  auto keys = net::read_key_file(path);
  if (!keys) {
    switch (keys.error().code) {
      case ErrorCode::not_found: return give_up(EX_NOINPUT, keys.error());
      case ErrorCode::refused: return give_up(EX_NOPERM, keys.error());
      case ErrorCode::io: return give_up(EX_IOERR, keys.error());
      default: return give_up(EX_CONFIG, keys.error());
    }
  }
  out.keys = std::move(*keys);
  out.members.key_print = net::key_print(out.keys->pairs.front().public_key);
  return {};
}

// A host without any address still gets an agent: under a key of its own, no other could reach it anyway.
Start<host::Endpoint> choose_listen(const Config& config, const Layout& layout, Log& log) {
  auto listen = host::parse_endpoint(config.network.listen);
  if (!listen) return give_up(EX_CONFIG, listen.error());
  if (config.dev) {
    if (!config.network.listen_given) *listen = host::Endpoint{kLoopback, 0};
    return *listen;
  }
  if (config.network.listen_given || key_path(config, layout) != layout.own_key()) return *listen;
  if (const auto address = host::choose_advertise(*listen, config.network.advertise, host::route_targets(config.network.join, {}));
      !address) {
    listen->ip = host::family_of(listen->ip) == host::Family::ipv6 ? kLoopbackIpv6 : kLoopback;
    log.write(
        LogLevel::warn, "network.loopback-only",
        {{"listen", listen->text()}, {"reason", address.error().message}, {"next", "once the host has an address start the agent again"}});
  }
  return *listen;
}

// An agent that was killed just as it started a child leaves its lock and port to that child, which closes them
// first: so what is taken is tried again for a moment.
constexpr int kHandoverTries = 50;
constexpr useconds_t kHandoverPause = 20'000;  // microseconds

constexpr int kPortTries = 16;  // with --listen IP:0: pairs of neighbouring ports that are tried

template <class Take>
auto patiently(Take take) {
  for (int tries = 0;; ++tries) {
    auto taken = take();
    if (taken || taken.error().code != ErrorCode::unavailable || tries == kHandoverTries) return taken;
    ::usleep(kHandoverPause);
  }
}

// Logs a finding that `dtrainctl doctor` would also report.
void warn(Log& log, const char* event, const std::optional<wire::Finding>& finding) {
  if (finding) log.write(LogLevel::warn, event, {{"warning", finding->finding}, {"next", finding->cure}});
}

Start<void> reserve_port(const Config& config, Prepared& out, Log& log) {
  for (const std::string& key : config.without_effect)
    log.write(LogLevel::warn, "config.without-effect", {{"key", key}, {"next", "this version reads the key and does not act on it"}});
  if (auto keys = read_keys(config, out, log); !keys) return keys;
  auto listen = choose_listen(config, out.layout, log);
  if (!listen) return tl::unexpected<Failure>(listen.error());
  out.members.network = !config.dev;
  for (int tries = 1;; ++tries) {
    auto port = patiently([&] { return host::ListenPort::reserve(*listen, out.members.network); });
    if (!port) return give_up(exit_code_of(port.error().code), port.error());
    out.port = std::make_unique<host::ListenPort>(std::move(*port));
    if (!out.members.network) break;
    host::Endpoint bulk = out.port->endpoint();
    ++bulk.port;
    auto bulk_port = patiently([&] { return host::ListenPort::reserve(bulk, true); });
    if (bulk_port) {
      out.bulk_port = std::make_unique<host::ListenPort>(std::move(*bulk_port));
      break;
    }
    // If any port will do, one is chosen whose neighbour is free.
    if (listen->port != 0 || tries == kPortTries) return give_up(exit_code_of(bulk_port.error().code), bulk_port.error());
  }
  const node::PortSpan task_ports{config.network.task_ports.first, config.network.task_ports.last};
  warn(log, "network.task-ports", node::task_ports_overlap(task_ports, host::local_port_range(), host::reserved_ports(), ""));
  return {};
}

// What the tasks of jobs with an image run in.
void note_images(const Config& config, node::NodeFacts& facts, Log& log) {
  const std::string& only = config.tasks.image_engine;
  if (only != kNoEngine) {
    const proc::EngineHere here = proc::find_engine_here(only, proc::kEnginePath, proc::has_only_cgroup_v2());
    facts.images = here.program.empty() ? "" : here.name;
    facts.image_program = here.program;
    if (here.program.empty() && !here.name.empty())
      log.write(LogLevel::warn, "images.none",
                {{"engine", here.name},
                 {"lacks", here.lacks},
                 {"next", here.lacks == proc::kLacksCgroupV2 ? "boot with systemd.unified_cgroup_hierarchy=1"
                                                             : std::string(job::find_engine(here.name)->install)}});
  }
  if (facts.images.empty() && config.manifests.image_fallback) facts.images = job::kImagesOnHost;
}

Start<void> gather_facts(const Config& config, Prepared& out, Log& log) {
  node::NodeFacts& facts = out.facts;
  facts.id = out.state.node;
  facts.name = config.node.name.empty() ? host::default_node_name() : config.node.name;
  facts.boot_id = out.boot_id;
  facts.labels = config.node.labels;
  if (!config.health_check.command.empty()) facts.unfit = node::kNotChecked;
  note_images(config, facts, log);
  std::vector<std::string> peer_ips;
  for (const wire::Identity& peer : out.members.record.book) peer_ips.push_back(peer.address.ip);
  // Tasks of the last life wait to be adopted: names are looked up before that only if it cannot be avoided.
  auto advertise =
      host::choose_advertise(out.port->endpoint(), config.network.advertise, host::route_targets(config.network.join, peer_ips));
  if (!advertise) return give_up(EX_CONFIG, advertise.error());
  facts.address = host::Endpoint{*advertise, out.port->endpoint().port}.text();
  const std::string doubt = host::check_advertise(*advertise, host::interfaces().value_or(std::vector<host::Interface>()));
  if (!doubt.empty()) log.write(LogLevel::warn, "network.advertise", {{"warning", doubt}});
  out.members.endpoint = {*advertise, out.port->endpoint().port};
  for (const std::string& name : config.network.join)
    if (auto seed = host::parse_seed(name)) out.seeds.push_back(std::move(*seed));  // read_config checked them
  out.members.seeds = config.network.join;
  auto task_address = config.network.task_address.empty() ? advertise : host::resolve_ip_or_interface(config.network.task_address);
  if (!task_address) return give_up(EX_CONFIG, task_address.error());
  facts.task_address = *task_address;
  facts.task_interface = host::interface_of(*task_address);
  warn(log, "network.task-address", node::task_address_unknown(facts.task_address, facts.task_interface, facts.name));
  if (!config.dev)  // --dev asks for nothing
    for (const wire::Finding& low : node::limits_too_low(host::task_limits(exam_terms(config)), facts.name))
      log.write(LogLevel::info, "tasks.ulimits", {{"warning", low.finding}, {"next", low.cure}});  // in containers nearly always
  auto watch = gather_hardware(config, out.layout, facts, log);
  if (!watch) return tl::unexpected<Failure>(watch.error());
  out.gpu_watch = std::move(*watch);
  return {};
}

// Reads the last life's record of members. A record that cannot be read costs only time: it is set aside.
Start<void> read_members(Prepared& out, Log& log) {
  const std::string path = out.layout.members_file();
  const auto bytes = store::read_file(path, kMembersFileBytes);
  if (!bytes && bytes.error().code == ErrorCode::not_found) return {};
  auto record = bytes ? gossip::MemberRecord::decode(*bytes) : Result<gossip::MemberRecord>(fail(bytes.error()));
  if (record) {
    out.members.record = std::move(*record);
    return {};
  }
  if (::rename(path.c_str(), (path + ".damaged").c_str()) != 0)
    return give_up(EX_IOERR, Error{ErrorCode::io, "could not set aside " + path + ": " + ::strerror(errno), "remove it"});
  log.write(LogLevel::warn, "members.damaged",
            {{"file", path + ".damaged"},
             {"cause", record.error().text()},
             {"next", "this node joins through the nodes of --join; without those it waits"}});
  return {};
}

// Reads what this machine has promised to other founders.
Start<void> read_formation(Prepared& out) {
  node::MemberStart& members = out.members;
  if (!out.state.formation.empty()) {
    auto record = cluster::formation::Record::decode(out.state.formation);
    if (!record) return give_up(exit_code_of(record.error().code), record.error());
    members.formation = std::move(*record);
  }
  members.record = node::record_of_members(members);
  return {};
}

// The founders of a cluster. A node that belongs to one already only tells them so, if the configuration names it.
Start<void> choose_founders(const Config& config, Prepared& out, Log& log) {
  node::MemberStart& members = out.members;
  if (config.cluster.expect <= 1 || !members.network) return {};
  const bool belongs = members.found || !members.record.cluster_id.none();
  const bool has_log = !out.state.replica.hard.history.none();
  if (!belongs && has_log) {  // of a cluster that an operator made it forget: it may only join one
    log.write(LogLevel::warn, "formation.no-part",
              {{"reason", "a log of an earlier cluster lies in " + out.layout.data},
               {"next", "this node asks those of --join to be admitted; to begin another cluster give an empty data directory"}});
    return {};
  }
  auto own = own_founder(out.seeds, out.facts.name, {members.endpoint.ip, members.endpoint.port}, !belongs);
  std::vector<std::string> founders;
  for (const host::Seed& seed : out.seeds) founders.push_back(founder_name(seed));
  const std::string name = own && !own->empty() ? *own : out.facts.name;
  Status good = own ? cluster::formation::check_founders(founders, name, config.cluster.expect) : fail(own.error());
  const auto& promise = members.formation.promise;
  if (good && !belongs && !promise.none() && promise.members.back().seat >= founders.size())
    good = fail(ErrorCode::invalid, "could not form a cluster: this machine has promised another number of founders",
                "name the same founders in `join` as before, or give an empty data directory");
  if (!good) return belongs ? Start<void>() : give_up(EX_CONFIG, good.error());
  members.founders = std::move(founders);
  members.founder = name;
  return {};
}

// A cluster is begun once, by a node without data that was told to; every other node joins. A node with data
// continues with it, whatever the command line says.
Start<void> form(const Config& config, Prepared& out, Log& log) {
  node::MemberStart& members = out.members;
  members.holds_ledger = true;
  if (!out.state.cluster_id.empty()) {
    members.record.cluster_id = MemberId::parse(out.state.cluster_id).value_or(MemberId{});
    if (!config.network.join.empty() && !config.cluster.found)
      log.write(LogLevel::warn, "cluster.join-ignored",
                {{"cluster", out.state.cluster_id},
                 {"next", "this node founded a cluster of its own; to join another: stop the agent, move " + out.layout.data +
                              " away (its jobs and their history lie there), start it again"}});
    return {};
  }
  const bool member = !members.record.cluster_id.none() || members.record.left;
  const bool alone = config.cluster.expect == 1;
  if (member || (!config.dev && !config.cluster.found && !alone)) {
    members.holds_ledger = false;
    if (member) return {};
    if (config.cluster.expect > 1) members.waiting_for = std::to_string(config.cluster.expect) + " founders to agree";
    else if (!config.network.join.empty()) members.waiting_for = "the cluster of --join to admit this node";
    else members.waiting_for = "--found (a new cluster of this machine) or --join HOST (an existing one)";
    return {};
  }
  // The others may have begun the cluster that this node promised to begin with them.
  if (!members.formation.promise.none())
    return give_up(EX_CONFIG,
                   Error{ErrorCode::refused, "could not found a cluster: this machine has promised others to begin one with them",
                         "start it with --expect and --join as before, or give an empty data directory"});
  auto id = host::random_id();
  if (!id) return give_up(EX_OSERR, id.error());
  if (auto stored = out.store->set_cluster_id(*id); !stored) return give_up(exit_code_of(stored.error().code), stored.error());
  out.state.cluster_id = *id;
  members.found = true;
  members.new_cluster_id = MemberId::parse(*id).value_or(MemberId{});
  log.write(LogLevel::info, "cluster.founded", {{"cluster", config.cluster.name}, {"id", *id}});
  return {};
}

// A member may vote only by what its disk holds.
Start<void> trust_disk(Prepared& out, Log& log) {
  if (!store::disk_failed(out.layout.run, out.boot_id)) return {};
  if (const auto done = out.store->rewrite(); !done)
    return give_up(
        exit_code_of(done.error().code),
        Error{done.error().code, done.error().message + "; the disk of the data directory has failed in this boot of the machine already",
              "look at the kernel's messages (dmesg), repair the disk and reboot; "
              "or start with an empty data directory, as a new member"});
  store::forget_disk_failure(out.layout.run);
  log.write(LogLevel::warn, "store.rewritten",
            {{"reason", "the disk failed a write in an earlier life of the agent: all was written anew"},
             {"next", "look at the kernel's messages (dmesg)"}});
  return {};
}

}  // namespace

Start<Layout> choose_layout(const Config& config) {
  Layout layout{config.paths.data, config.paths.run, config.paths.work, ""};
  if (config.dev && !(config.paths.data_given && config.paths.run_given)) {
    std::error_code failed;
    std::string name = std::filesystem::temp_directory_path(failed).string() + "/dtrain-dev-XXXXXX";
    if (failed || !::mkdtemp(name.data()))
      return give_up(EX_CANTCREAT, Error{ErrorCode::io, "could not create " + name + ": " + ::strerror(errno),
                                         "set TMPDIR to a directory that can be written"});
    layout.temporary = name;
    // Tasks of other users must be able to pass through the directory.
    std::filesystem::permissions(name, std::filesystem::perms{0711}, failed);
    if (!config.paths.data_given) layout.data = name + "/data";
    if (!config.paths.run_given) layout.run = name + "/run";
  }
  if (layout.work.empty()) layout.work = layout.data + "/work";
  return layout;
}

std::string key_path(const Config& config, const Layout& layout) {
  const std::string& file = config.network.key_file;
  if (config.network.key_file_given && !file.empty()) return file;
  return !file.empty() && ::access(file.c_str(), R_OK) == 0 ? file : layout.own_key();
}

Start<Prepared> prepare(const Config& config, const Layout& layout, const std::string& version, Log& log) {
  Prepared out;
  out.layout = layout;
  account::let_jobs_be_roots(config.tasks.allow_root || config.dev);
  auto stager = proc::Stager::open({layout.work, layout.blobs(), layout.tasks()});
  if (!stager) return give_up(EX_OSERR, stager.error());
  out.stager = std::move(*stager);
  // Other users may pass through to their own files (a task's notify socket, its working copy) but not list the directories.
  for (const auto& [path, mode] : {std::pair{layout.data, 0711u}, {layout.run, 0755u}, {layout.work, 0711u}, {layout.tasks(), 0711u}})
    if (auto made = make_directory(path, mode); !made) return tl::unexpected<Failure>(made.error());
  auto lock = patiently([&] { return store::DataLock::take(layout.data); });
  if (!lock) return give_up(exit_code_of(lock.error().code), lock.error());
  out.lock = std::make_unique<store::DataLock>(std::move(*lock));
  if (auto reserved = reserve_port(config, out, log); !reserved) return tl::unexpected<Failure>(reserved.error());

  auto store = store::Store::open(layout.data, version);
  if (!store) return give_up(exit_code_of(store.error().code), store.error());
  out.store = std::move(*store);
  auto boot = host::boot_id();
  if (!boot) return give_up(EX_OSERR, boot.error());
  out.boot_id = *boot;
  if (auto whole = trust_disk(out, log); !whole) return tl::unexpected<Failure>(whole.error());
  auto blobs = store::BlobStore::open(layout.blobs(), {config.storage.min_free.percent, config.storage.min_free.bytes},
                                      config.storage.package_cache);
  if (!blobs) return give_up(exit_code_of(blobs.error().code), blobs.error());
  out.blobs = std::move(*blobs);
  auto id = host::random_id();
  if (!id) return give_up(EX_OSERR, id.error());
  auto state = out.store->begin_life(*boot, *id);
  if (!state) return give_up(exit_code_of(state.error().code), state.error());
  out.state = std::move(*state);
  if (auto read = read_members(out, log); !read) return tl::unexpected<Failure>(read.error());
  if (auto read = read_formation(out); !read) return tl::unexpected<Failure>(read.error());
  if (auto formed = form(config, out, log); !formed) return tl::unexpected<Failure>(formed.error());
  if (auto gathered = gather_facts(config, out, log); !gathered) return tl::unexpected<Failure>(gathered.error());
  if (auto chosen = choose_founders(config, out, log); !chosen) return tl::unexpected<Failure>(chosen.error());
  return out;
}

node::NodeOptions node_options(const Config& config, const std::string& cluster_id, const std::string& version) {
  node::NodeOptions options;
  options.cluster_name = config.cluster.name;
  options.cluster_id = cluster_id;
  options.agent_uid = ::geteuid();
  options.version = version;
  options.allow_root = config.tasks.allow_root || config.dev;
  options.access = config.access;
  options.manifests = config.manifests;
  options.prolog = config.tasks.prolog;
  options.epilog = config.tasks.epilog;
  options.down_grace = config.timing.down_grace;
  options.lease = config.timing.lease;
  options.agent_grace = config.timing.agent_grace;
  options.restore_wait = config.timing.restore_wait;
  // On somebody's own machine disks may be as full as they like.
  const bool own = config.dev && config.storage.min_free.bytes == 0 && config.storage.min_free.percent == FreeSpace{}.percent;
  options.keep_free = {config.storage.min_free.percent, own ? kKeptFreeOfDev : config.storage.min_free.bytes};
  options.task_port_first = config.network.task_ports.first;
  options.task_port_last = config.network.task_ports.last;
  for (const std::string& name : config.tasks.pass_env)
    if (const char* value = ::getenv(name.c_str())) options.pass_env[name] = value;
  return options;
}

Start<std::string> find_helper(const std::string& name, int access) {
  std::array<char, 4096> self{};
  const ssize_t n = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (n <= 0)
    return give_up(EX_OSERR,
                   Error{ErrorCode::io, std::string("could not find the agent's own program: ") + ::strerror(errno), "mount /proc"});
  const std::string directory = std::string(self.data()).substr(0, std::string(self.data()).rfind('/'));
  const std::string beside = directory + "/" + name, installed = directory + "/../libexec/dtrain/" + name;
  for (const std::string& candidate : {beside, installed})
    if (::access(candidate.c_str(), access) == 0) return std::filesystem::path(candidate).lexically_normal().string();
  return give_up(EX_UNAVAILABLE, Error{ErrorCode::not_found,
                                       "could not find " + name + ": neither " + beside + " nor " + installed + " can be " +
                                           (access == X_OK ? "run" : "read"),
                                       "install or build all of dtrain"});
}

}  // namespace dtrain::daemon
