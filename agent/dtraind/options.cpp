#include "agent/dtraind/options.h"

#include <getopt.h>

#include <array>
#include <filesystem>
#include <vector>

namespace dtrain::daemon {
namespace {

struct Flag {
  const char* name;
  const char* value;  // nullptr: it takes none
  const char* key;    // of the configuration file; nullptr: handled here
  const char* meaning;
};

constexpr std::array kFlags{
    Flag{"config", "FILE", nullptr, "config file (default: /etc/dtrain/dtraind.yaml where it exists)"},
    Flag{"dev", nullptr, nullptr, "a cluster of this one node for trying out: no root, no config, fresh temporary state"},
    Flag{"found", nullptr, "cluster.found", "make a new cluster of this machine, once"},
    Flag{"name", "NAME", "node.name", "this node's name (default: the host's)"},
    Flag{"cluster", "NAME", "cluster.name", "the cluster's name"},
    Flag{"data-dir", "DIR", "paths.data", "durable state"},
    Flag{"run-dir", "DIR", "paths.run", "where the control socket lies"},
    Flag{"listen", "IP:PORT", "network.listen", "address to listen on"},
    Flag{"advertise", "IP|INTERFACE", "network.advertise", "address that others reach this node at"},
    Flag{"join", "HOST[:PORT],...", "network.join", "nodes of the cluster to join"},
    Flag{"expect", "N", "cluster.expect", "found together with the nodes named in --join, N in all"},
    Flag{"key-file", "FILE", "network.keyFile", "the cluster's key"},
    Flag{"labels", "k=v,...", "node.labels", "labels that jobs can select"},
    Flag{"launch", "auto|systemd|direct", "tasks.launch", "how tasks are started"},
    Flag{"topology", "FILE.xml", "resources.topology", "hwloc topology to use instead of this machine's"},
    Flag{"gpus", "N", "resources.gpus", "pretend N GPUs (development)"},
    Flag{"http", "IP:PORT", "http", "without effect in this version"},
    Flag{"set", "key.sub=value", nullptr, "any key of the config file; may be repeated"},
    Flag{"check-config", nullptr, nullptr, "check config and flags, then exit"},
    Flag{"version", nullptr, nullptr, "print the version, then exit"},
    Flag{"help", nullptr, nullptr, "print this, then exit"},
};

tl::unexpected<Error> usage_error(const std::string& cause) {
  return fail(ErrorCode::invalid, "could not understand the command line: " + cause, "see dtraind --help");
}

// Relative paths count from the directory in which the agent is started.
std::string absolute(const std::string& path) { return path.empty() ? path : std::filesystem::absolute(path).string(); }

bool is_path(const Flag& flag) {
  const std::string_view key = flag.key ? flag.key : "";
  return key == "paths.data" || key == "paths.run" || key == "network.keyFile" || key == "resources.topology";
}

Status apply(const Flag& flag, const char* argument, CommandLine& out) {
  const std::string_view name = flag.name;
  const std::string value = argument ? argument : "";
  if (flag.key) {
    out.sets.emplace_back(flag.key, flag.value ? (is_path(flag) ? absolute(value) : value) : "true");
  } else if (name == "config") {
    out.config_file = value;
  } else if (name == "set") {
    const auto equals = value.find('=');
    if (equals == std::string::npos || equals == 0) return usage_error("--set needs key.sub=value, not \"" + value + "\"");
    out.sets.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  } else if (name == "dev") {
    out.dev = true;
  } else if (name == "check-config") {
    out.check_config = true;
  } else if (name == "version") {
    out.version = true;
  } else {
    out.help = true;
  }
  return {};
}

}  // namespace

// CLI11, as in dtrainctl, would take no shortened option and no `--listen=`, and the x of `--name= x` for the name; it is 180 KB of code.
Result<CommandLine> parse_command_line(int argc, char** argv) {
  std::vector<option> options;
  for (const Flag& flag : kFlags) options.push_back({flag.name, flag.value ? required_argument : no_argument, nullptr, 0});
  options.push_back({nullptr, 0, nullptr, 0});
  CommandLine out;
  ::opterr = 0;  // this program writes its own messages
  ::optind = 0;  // start anew
  for (;;) {
    int index = -1;
    const int before = ::optind == 0 ? 1 : ::optind;
    const int code = ::getopt_long(argc, argv, "+:", options.data(), &index);
    if (code == -1) break;
    const std::string argument = before < argc ? argv[before] : "";
    if (code == ':') return usage_error(argument + " needs a value");
    if (code != 0 || index < 0) {
      std::vector<std::string> known;
      for (const Flag& flag : kFlags) known.push_back(std::string("--") + flag.name);
      const std::string near = job::nearest(argument.substr(0, argument.find('=')), known);
      return usage_error("unknown or ambiguous option " + argument + (near.empty() ? "" : "; did you mean " + near + "?"));
    }
    if (auto done = apply(kFlags[static_cast<std::size_t>(index)], ::optarg, out); !done) return fail(done.error());
  }
  if (::optind < argc) return usage_error("unexpected argument \"" + std::string(argv[::optind]) + "\"");
  return out;
}

std::string usage_text() {
  std::string text = "usage: dtraind [OPTION]...\nThe dtrain agent: one on every machine of the cluster.\n\n";
  for (const Flag& flag : kFlags) {
    std::string left = std::string("  --") + flag.name + (flag.value ? std::string(" ") + flag.value : "");
    left.resize(std::max<std::size_t>(left.size() + 2, 32), ' ');
    text += left + flag.meaning + "\n";
  }
  return text + "\nEvery key of the config file, with its default and meaning: config/dtraind.yaml.\n";
}

}  // namespace dtrain::daemon
