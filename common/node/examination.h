// What is seen of a host that is examined: by its agent, or by dtrainctl where none answers. common/node/doctor.h judges it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/base/time.h"
#include "common/node/host_facts.h"
#include "common/wire/gossip.h"

namespace dtrain::node {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};  // of a resource limit

struct PortSpan {
  std::uint16_t first = 0, last = 0;  // both belong to it; 0: none
  bool operator==(const PortSpan&) const = default;
};

// What the host is to be like: its configuration, and what the agent found at its start.
struct ExamTerms {
  bool agent = true;                 // false: none answers, and dtrainctl looks for itself
  std::string name;                  // the node's
  std::string listen_ip;             // "": it listens to no other host (--dev)
  std::uint16_t port = 0;            // gossip; bulk is one above
  bool keyed = false;                // it has the cluster's key, not only one of its own
  std::string advertise, task_address;  // IPs; "": not chosen yet
  PortSpan task_ports;
  std::vector<std::string> join;     // names and IPs, without ports
  std::map<std::string, std::uint64_t> ulimits;  // of tasks
  std::vector<std::pair<std::string, std::string>> directories;  // key of the configuration, path
  std::uint32_t min_free_percent = 0;
  std::uint64_t min_free_bytes = 0;  // when not 0: instead of percent
  std::vector<Gpu> gpus;
  bool health_check = false;         // it has one
  std::string unfit;                 // what that says (host_health.h); "": nothing
};

struct ExamPeer {
  std::string name;
  wire::Endpoint address;
};

struct Lookup {                       // of a name, by this host's resolver
  enum class Of : unsigned char { host, join, peer } of{};
  std::string name;
  std::vector<std::string> addresses;  // none: it is not known
  bool answered = true;                // false: not in time
};
struct ListenTrial {                  // only where no agent runs
  std::string what;                   // "gossip", "bulk"
  std::uint16_t port = 0;
  std::optional<Error> error;
};
struct Listener {
  std::uint16_t port = 0;
  std::string owner;                  // "python3 (pid 4711)"; "": cannot be found out
};
struct TaskLimit {
  std::string name;                   // as in tasks.ulimits
  std::uint64_t wanted = 0, most = kUnlimited;  // what a task can be given
};
struct Disk {
  std::string what, path;             // ExamTerms::directories
  std::string error;                  // not "": it could not be looked at, and the rest means nothing
  std::uint64_t total = 0, free = 0;  // bytes, free for the agent
  std::uint64_t inodes = 0, inodes_free = 0;  // 0 of 0: it counts none
  bool read_only = false, no_exec = false, in_memory = false;
};
struct Driver {                       // of GPUs of one maker
  std::uint32_t devices = 0;          // on the PCI bus
  std::string module;                 // version of the kernel's part; "": not loaded
  std::string library;                // version of the programs' part; "": not found, or its version is not to be read off
  bool library_found = false;
  bool other_driver = false;          // nouveau
  std::vector<std::string> missing;   // device nodes
};
struct Contact {                      // a connection that was tried
  enum class Answer : unsigned char { accepts, refused, silent, failed, not_tried } answer{};
  std::string peer;
  wire::Endpoint to;                  // with the lane's own port
  bool bulk = false;
  std::string cause;                  // of failed
};

struct Examination {
  ExamTerms terms;
  bool root = true;                   // the agent is
  std::string host_name;              // the kernel's
  std::vector<Lookup> lookups;
  std::vector<ListenTrial> trials;
  PortSpan local_ports;               // from which the kernel picks
  std::vector<PortSpan> reserved_ports;  // but not these
  std::vector<Listener> strangers;    // on task ports, and no tasks
  std::string advertise_interface, task_interface;  // "": no interface has the address
  std::optional<bool> clock_synchronised;  // unset: the kernel does not say
  std::vector<TaskLimit> limits;
  std::optional<std::vector<std::string>> cgroup2;  // controllers at its root; unset: not mounted
  std::vector<std::string> cgroup1;   // controllers with a hierarchy of their own
  std::vector<Disk> disks;
  Driver nvidia, amd;
  std::vector<Contact> contacts;
};

}  // namespace dtrain::node
