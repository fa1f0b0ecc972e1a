#include "agent/dtraind/exam_terms.h"

#include <unistd.h>

#include "agent/host/address.h"
#include "agent/host/facts.h"
#include "agent/host/resolver.h"

namespace dtrain::daemon {

node::ExamTerms exam_terms(const Config& config) {
  node::ExamTerms terms;
  terms.name = config.node.name.empty() ? host::default_node_name() : config.node.name;
  terms.keyed = !config.network.key_file.empty() && ::access(config.network.key_file.c_str(), F_OK) == 0;
  if (const auto listen = host::parse_endpoint(config.network.listen); listen && !config.dev) {
    terms.listen_ip = listen->ip;
    terms.port = listen->port;
  }
  const std::string& advertise = config.network.advertise;
  if (const auto ip = host::resolve_ip_or_interface(advertise); ip && !advertise.empty()) terms.advertise = *ip;
  const std::string& task_address = config.network.task_address;
  if (const auto ip = host::resolve_ip_or_interface(task_address); ip && !task_address.empty()) terms.task_address = *ip;
  terms.task_ports = {config.network.task_ports.first, config.network.task_ports.last};
  for (const std::string& name : config.network.join)
    if (const auto seed = host::parse_seed(name)) terms.join.push_back(seed->host);
  terms.ulimits = config.tasks.ulimits;
  const std::string work = config.paths.work.empty() ? config.paths.data + "/work" : config.paths.work;
  terms.directories = {{"paths.data", config.paths.data}, {"paths.work", work}, {"paths.run", config.paths.run}};
  terms.min_free_percent = config.storage.min_free.percent;
  terms.health_check = !config.health_check.command.empty();
  terms.min_free_bytes = config.storage.min_free.bytes;
  return terms;
}

}  // namespace dtrain::daemon
