// What is seen of a host that is examined, by its agent, or by dtrainctl where no agent answers. common/node/doctor.h judges it.
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

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};  // a resource limit that does not limit

struct PortSpan {
  std::uint16_t first = 0, last = 0;  // both inclusive; 0: no ports
  bool operator==(const PortSpan&) const = default;
};

// What the host should be like, by its configuration and by what the agent found at its start.
struct ExamTerms {
  bool agent = true;                    // false: no agent answers, and dtrainctl examines the host itself
  std::string name;                     // the node's name
  std::string listen_ip;                // "": the agent does not listen to other hosts (--dev)
  std::uint16_t port = 0;               // of gossip; bulk uses the next one
  bool keyed = false;                   // the host has the cluster's key and not only its own
  std::string advertise, task_address;  // IPs; "": not chosen yet
  PortSpan task_ports;
  std::vector<std::string> join;                                 // names and IPs, without ports
  std::map<std::string, std::uint64_t> ulimits;                  // limits that tasks are to get
  std::vector<std::pair<std::string, std::string>> directories;  // configuration key and path of each
  std::uint32_t min_free_percent = 0;
  std::uint64_t min_free_bytes = 0;  // if not 0, used instead of min_free_percent
  std::vector<Gpu> gpus;
  bool health_check = false;  // a health check is configured
  std::string unfit;          // why the health check finds the host unfit (host_health.h); "": it does not
  bool unchecked = false;     // it says no more than that it has not ended yet
};

struct ExamPeer {
  std::string name;
  wire::Endpoint address;
};

struct Lookup {  // of one name by this host's resolver
  enum class Of : unsigned char { host, join, peer } of{};
  std::string name;
  std::vector<std::string> addresses;  // empty: the name is not known
  bool answered = true;                // false: the resolver did not answer in time
};
struct ListenTrial {  // an attempt to listen; made only where no agent runs
  std::string what;   // "gossip", "bulk"
  std::uint16_t port = 0;
  std::optional<Error> error;
  bool agent_has_it = false;  // of an error: a dtraind listens there
};
struct Listener {
  std::uint16_t port = 0;
  std::string owner;  // "python3 (pid 4711)"; "": not to be found out
};
struct TaskLimit {
  std::string name;                             // as in tasks.ulimits
  std::uint64_t wanted = 0, most = kUnlimited;  // most: the highest that a task can be given
};
struct Disk {
  std::string what, path;                     // ExamTerms::directories
  std::string error;                          // why the disk could not be looked at; not "": the fields below mean nothing
  std::uint64_t total = 0, free = 0;          // in bytes; free: for the agent's user
  std::uint64_t inodes = 0, inodes_free = 0;  // 0 of 0: the file system does not count inodes
  bool read_only = false, no_exec = false, in_memory = false;
};
struct Driver {               // the driver of one maker's GPUs
  std::uint32_t devices = 0;  // on the PCI bus
  std::string module;         // version of the kernel module; "": not loaded
  std::string library;        // version of the library; "": not found, or without a readable version
  bool library_found = false;
  bool other_driver = false;         // nouveau is loaded
  std::vector<std::string> missing;  // device nodes
};
struct Contact {  // one connection that was tried
  enum class Answer : unsigned char { accepts, refused, silent, failed, not_tried } answer{};
  std::string peer;
  wire::Endpoint to;  // with the port of that lane
  bool bulk = false;
  std::string cause;  // why, if answer is failed
};

struct Examination {
  ExamTerms terms;
  bool root = true;       // the agent runs as root
  std::string host_name;  // as the kernel has it
  std::vector<Lookup> lookups;
  std::vector<ListenTrial> trials;
  PortSpan local_ports;                             // ports from which the kernel picks
  std::vector<PortSpan> reserved_ports;             // ports that it does not pick
  std::vector<Listener> strangers;                  // listeners on task ports that are no tasks
  std::string advertise_interface, task_interface;  // "": no interface has the address
  std::optional<bool> clock_synchronised;           // unset: the kernel does not say
  std::vector<TaskLimit> limits;
  std::optional<std::vector<std::string>> cgroup2;  // controllers at its root; unset: not mounted
  std::vector<std::string> cgroup1;                 // controllers with a hierarchy of their own
  std::vector<Disk> disks;
  Driver nvidia, amd;
  std::vector<Contact> contacts;
};

}  // namespace dtrain::node
