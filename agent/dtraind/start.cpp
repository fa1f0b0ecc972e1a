#include "agent/dtraind/start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "agent/dtraind/hardware.h"
#include "agent/host/address.h"
#include "agent/host/facts.h"
#include "agent/store/file.h"

namespace dtrain::daemon {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

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

// Without a key nobody can be told apart: the agent then keeps to itself.
Start<host::Endpoint> choose_listen(const Config& config, Log& log) {
  auto listen = host::parse_endpoint(config.network.listen);
  if (!listen) return give_up(EX_CONFIG, listen.error());
  if (config.dev) {
    if (!config.network.listen_given) *listen = host::Endpoint{kLoopback, 0};
    return *listen;
  }
  const bool has_key = !config.network.key_file.empty() && ::access(config.network.key_file.c_str(), R_OK) == 0;
  if (!has_key && config.network.key_file_given && !config.network.key_file.empty())
    return give_up(EX_NOINPUT, Error{ErrorCode::not_found,
                                     "could not read key file " + config.network.key_file + ": " + ::strerror(errno),
                                     "make one with dtrainctl keygen " + config.network.key_file});
  if (!has_key && !host::is_loopback(listen->ip)) {
    const std::string wanted = listen->text();
    listen->ip = kLoopback;
    log.write(LogLevel::warn, "network.no-key",
              {{"listen", listen->text()}, {"instead_of", wanted},
               {"next", "make a key with dtrainctl keygen " + std::string(kDefaultKeyFile) +
                            ", copy it to all nodes, start the agent again"}});
  }
  return *listen;
}

// An agent that was killed in the instant it started a child leaves its lock and port to that child, which closes them as
// its first act: what is taken is tried again for a moment.
constexpr int kHandoverTries = 50;
constexpr useconds_t kHandoverPause = 20'000;  // microseconds

template <class Take>
auto patiently(Take take) {
  for (int tries = 0;; ++tries) {
    auto taken = take();
    if (taken || taken.error().code != ErrorCode::unavailable || tries == kHandoverTries) return taken;
    ::usleep(kHandoverPause);
  }
}

Start<void> reserve_port(const Config& config, Prepared& out, Log& log) {
  for (const std::string& key : config.without_effect)
    log.write(LogLevel::warn, "config.without-effect",
              {{"key", key}, {"next", "this version reads the key and does not act on it"}});
  auto listen = choose_listen(config, log);
  if (!listen) return tl::unexpected<Failure>(listen.error());
  auto port = patiently([&] { return host::ListenPort::reserve(*listen); });
  if (!port) return give_up(exit_code_of(port.error().code), port.error());
  out.port = std::make_unique<host::ListenPort>(std::move(*port));
  const std::string warning = host::check_task_ports(config.network.task_ports.first, config.network.task_ports.last,
                                                     host::kLocalPortRangeFile);
  if (!warning.empty()) log.write(LogLevel::warn, "network.task-ports", {{"warning", warning}});
  return {};
}

Start<void> gather_facts(const Config& config, Prepared& out, Log& log) {
  node::NodeFacts& facts = out.facts;
  facts.id = out.state.node;
  facts.name = config.node.name.empty() ? host::default_node_name() : config.node.name;
  facts.boot_id = out.boot_id;
  facts.labels = config.node.labels;
  auto advertise = host::choose_advertise(out.port->endpoint(), config.network.advertise, config.network.join);
  if (!advertise) return give_up(EX_CONFIG, advertise.error());
  facts.address = host::Endpoint{*advertise, out.port->endpoint().port}.text();
  auto task_address = config.network.task_address.empty() ? advertise
                                                          : host::resolve_ip_or_interface(config.network.task_address);
  if (!task_address) return give_up(EX_CONFIG, task_address.error());
  facts.task_address = *task_address;
  facts.task_interface = host::interface_of(*task_address);
  return gather_hardware(config, facts, log);
}

// A cluster is made once, by a node without data that was told to; everybody else is asked in.
Start<void> form(const Config& config, Prepared& out, Log& log) {
  if (!out.state.cluster_id.empty()) return {};
  const bool alone = config.cluster.expect == 1;
  if (!config.dev && !config.cluster.found && !alone) {
    if (config.cluster.expect > 1)
      out.waiting_for = std::to_string(config.cluster.expect) + " founders to agree";
    else if (!config.network.join.empty())
      out.waiting_for = "the cluster of --join to admit this node";
    else
      out.waiting_for = "--found (a new cluster of this machine) or --join HOST (an existing one)";
    return {};
  }
  auto id = host::random_id();
  if (!id) return give_up(EX_OSERR, id.error());
  if (auto stored = out.store->set_cluster_id(*id); !stored)
    return give_up(exit_code_of(stored.error().code), stored.error());
  out.state.cluster_id = *id;
  log.write(LogLevel::info, "cluster.founded", {{"cluster", config.cluster.name}, {"id", *id}});
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
    // Tasks of other users must be able to pass through.
    std::filesystem::permissions(name, std::filesystem::perms{0711}, failed);
    if (!config.paths.data_given) layout.data = name + "/data";
    if (!config.paths.run_given) layout.run = name + "/run";
  }
  if (layout.work.empty()) layout.work = layout.data + "/work";
  return layout;
}

Start<Prepared> prepare(const Config& config, const Layout& layout, const std::string& version, Log& log) {
  Prepared out;
  out.layout = layout;
  // Others may pass through to what is theirs (a task's notify socket, its working copy) but not look around.
  for (const auto& [path, mode] : {std::pair{layout.data, 0711u}, {layout.run, 0755u}, {layout.work, 0711u}, {layout.tasks(), 0711u}})
    if (auto made = make_directory(path, mode); !made) return tl::unexpected<Failure>(made.error());
  auto lock = patiently([&] { return store::DataLock::take(layout.data); });
  if (!lock) return give_up(exit_code_of(lock.error().code), lock.error());
  out.lock = std::make_unique<store::DataLock>(std::move(*lock));
  if (auto reserved = reserve_port(config, out, log); !reserved) return tl::unexpected<Failure>(reserved.error());

  auto store = store::Store::open(layout.data, version);
  if (!store) return give_up(exit_code_of(store.error().code), store.error());
  out.store = std::move(*store);
  auto blobs = store::BlobStore::open(layout.blobs(), {config.storage.min_free.percent, config.storage.min_free.bytes},
                                      config.storage.package_cache);
  if (!blobs) return give_up(exit_code_of(blobs.error().code), blobs.error());
  out.blobs = std::move(*blobs);
  auto boot = host::boot_id();
  if (!boot) return give_up(EX_OSERR, boot.error());
  out.boot_id = *boot;
  auto id = host::random_id();
  if (!id) return give_up(EX_OSERR, id.error());
  auto state = out.store->begin_life(*boot, *id);
  if (!state) return give_up(exit_code_of(state.error().code), state.error());
  out.state = std::move(*state);
  if (auto formed = form(config, out, log); !formed) return tl::unexpected<Failure>(formed.error());
  if (auto gathered = gather_facts(config, out, log); !gathered) return tl::unexpected<Failure>(gathered.error());
  return out;
}

node::Options node_options(const Config& config, const std::string& cluster_id, const std::string& version) {
  node::Options options;
  options.cluster_name = config.cluster.name;
  options.cluster_id = cluster_id;
  options.agent_uid = ::geteuid();
  options.version = version;
  options.allow_root = config.tasks.allow_root || config.dev;
  options.task_port_first = config.network.task_ports.first;
  options.task_port_last = config.network.task_ports.last;
  for (const std::string& name : config.tasks.pass_env)
    if (const char* value = ::getenv(name.c_str())) options.pass_env[name] = value;
  return options;
}

Start<std::string> find_helper(const std::string& name) {
  std::array<char, 4096> self{};
  const ssize_t n = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
  if (n <= 0)
    return give_up(EX_OSERR, Error{ErrorCode::io, std::string("could not find the agent's own program: ") + ::strerror(errno),
                                   "mount /proc"});
  const std::string directory = std::string(self.data()).substr(0, std::string(self.data()).rfind('/'));
  const std::string beside = directory + "/" + name, installed = directory + "/../libexec/dtrain/" + name;
  for (const std::string& candidate : {beside, installed})
    if (::access(candidate.c_str(), X_OK) == 0) return std::filesystem::path(candidate).lexically_normal().string();
  return give_up(EX_UNAVAILABLE, Error{ErrorCode::not_found, "could not find " + name + ": neither " + beside +
                                                                   " nor " + installed + " can be run",
                                       "install or build all of dtrain"});
}

}  // namespace dtrain::daemon
