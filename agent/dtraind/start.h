// Everything between the command line and the first decision: directories, lock, port, database, facts. Nothing here
// acts on a task.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/dtraind/config.h"
#include "agent/dtraind/exit_code.h"
#include "agent/dtraind/layout.h"
#include "agent/host/gpu_watch.h"
#include "agent/host/listen_port.h"
#include "agent/host/resolver.h"
#include "agent/net/cluster_keys.h"
#include "agent/proc/staging.h"
#include "agent/store/blob_store.h"
#include "agent/store/data_lock.h"
#include "agent/store/store.h"
#include "common/base/log.h"
#include "common/node/node.h"

namespace dtrain::daemon {

struct Prepared {
  Layout layout;
  std::unique_ptr<proc::Stager> stager;  // started first, while this process is small
  std::unique_ptr<store::DataLock> lock;
  std::unique_ptr<host::ListenPort> port, bulk_port;  // reserved until the links open; bulk only with a network
  std::optional<net::ClusterKeys> keys;               // unset: --dev, which has no ports
  std::vector<host::Seed> seeds;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<store::BlobStore> blobs;
  store::StoredState state;
  node::NodeFacts facts;
  std::optional<host::GpuWatch::Options> gpu_watch;  // unset: there are no GPUs to watch
  std::string boot_id;
  node::MemberStart members;
};

// The directories of this start. --dev without --data-dir or --run-dir uses fresh temporary ones.
Start<Layout> choose_layout(const Config& config);

// In order: stager, data directory, lock, key, ports, database, cluster, facts. `version`: of this program.
Start<Prepared> prepare(const Config& config, const Layout& layout, const std::string& version, Log& log);

// The path of an agent's key, except with --dev: the key file, or, if the default one is missing or belongs to
// another user, a key of its own.
std::string key_path(const Config& config, const Layout& layout);

// The part of the configuration that Node needs.
node::NodeOptions node_options(const Config& config, const std::string& cluster_id, const std::string& version);

// Finds dtrain-shim, dtrain-discover, dtrain-rsh or, with R_OK, dtrain-warm.py: beside this program (in a build), else in
// ../libexec/dtrain.
Start<std::string> find_helper(const std::string& name, int access);

}  // namespace dtrain::daemon
