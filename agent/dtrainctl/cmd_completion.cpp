// Completion scripts, generated from the verbs and options of the parser, so that they always match. The agent is
// asked for names of jobs, tasks and nodes while somebody types.
#include <set>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/words.h"

namespace dtrain::ctl {
namespace {

constexpr auto kTypingTime = std::chrono::seconds(1);  // nobody waits longer for a completion

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string verb_names(const std::vector<VerbSummary>& verbs) {
  std::string out;
  for (const VerbSummary& verb : verbs) out += (out.empty() ? "" : " ") + verb.name;
  return out;
}

// Options that take a value, as a pattern of `case`.
std::string valued_options(const std::vector<VerbSummary>& verbs) {
  std::set<std::string> names;
  for (const VerbSummary& verb : verbs) names.insert(verb.valued.begin(), verb.valued.end());
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : "|") + name;
  return out;
}

// In single quotes for a shell.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The shell words that list candidates for one positional argument. $first holds the one typed before.
std::string candidates(const std::string& what) {
  if (what == "job") return "$(dtrainctl completion names jobs 2>/dev/null)";
  if (what == "node") return "$(dtrainctl completion names nodes 2>/dev/null)";
  if (what == "task") return "$(dtrainctl completion names tasks \"$first\" 2>/dev/null)";
  if (what == "job-or-node") return "$(dtrainctl completion names \"${first}s\" 2>/dev/null)";
  if (what == "kind") return "job node";
  if (what == "get-kind") return "jobs";
  if (what == "shell") return "bash zsh fish";
  return "";
}

constexpr const char* kValues = "table wide json yaml";
constexpr const char* kTargets =
    "Pending Placed Staging Starting Running Restarting Recovering Suspended Succeeded Failed Cancelled Finished deleted";

std::string bash_script(const std::vector<VerbSummary>& verbs, const std::vector<std::string>& globals) {
  std::string out = R"sh(# bash completion of dtrainctl
_dtrainctl() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= first= word skip= count=0
  local i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ -n $skip ]]; then skip=; continue; fi
    case $word in
      --) return ;;
      )sh" + valued_options(verbs) +
                    R"sh() skip=1 ;;
      -*) ;;
      *) if [[ -z $verb ]]; then verb=$word; else ((count++)); [[ -n $first ]] || first=$word; fi ;;
    esac
  done
  case $prev in
    -o|--output) COMPREPLY=($(compgen -W ")sh" +
                    std::string(kValues) + R"sh(" -- "$cur")); return ;;
    --for) COMPREPLY=($(compgen -W ")sh" +
                    std::string(kTargets) + R"sh(" -- "$cur")); return ;;
    --agent|--key-file|--package) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --task) COMPREPLY=($(compgen -W "$(dtrainctl completion names tasks "$first" 2>/dev/null)" -- "$cur")); return ;;
  esac
  if [[ -z $verb ]]; then
    COMPREPLY=($(compgen -W ")sh" +
                    verb_names(verbs) + " " + joined(globals) + R"sh(" -- "$cur"))
    return
  fi
  case $verb in
)sh";
  for (const VerbSummary& verb : verbs) {
    out +=
        "    " + verb.name + ")\n      if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"" + joined(verb.options) + "\" -- \"$cur\"))\n";
    const auto argument = [&](const std::string& what, int number) {
      if (what.empty()) return;
      out += "      elif [[ $count -eq " + std::to_string(number) + " ]]; then COMPREPLY=($(compgen ";
      out += what == "file" ? "-f" : "-W \"" + candidates(what) + "\"";
      out += " -- \"$cur\"))\n";
    };
    argument(verb.first, 0);
    argument(verb.second, 1);
    out += "      fi ;;\n";
  }
  return out + "  esac\n}\ncomplete -o filenames -F _dtrainctl dtrainctl\n";
}

std::string zsh_script(const std::vector<VerbSummary>& verbs, const std::vector<std::string>& globals) {
  std::string out = "#compdef dtrainctl\n# zsh completion of dtrainctl\n_dtrainctl() {\n  local -a verbs\n  verbs=(\n";
  for (const VerbSummary& verb : verbs) out += "    " + shell_quoted(verb.name + ":" + verb.help) + "\n";
  out += R"sh(  )
  local verb= first= count=0 i word skip=
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    if [[ -n $skip ]]; then skip=; continue; fi
    case $word in
      --) _normal; return ;;
      )sh" +
         valued_options(verbs) + R"sh() skip=1 ;;
      -*) ;;
      *) if [[ -z $verb ]]; then verb=$word; else ((count++)); [[ -n $first ]] || first=$word; fi ;;
    esac
  done
  case ${words[CURRENT-1]} in
    -o|--output) compadd )sh" +
         std::string(kValues) + R"sh(; return ;;
    --for) compadd )sh" +
         std::string(kTargets) + R"sh(; return ;;
    --agent|--key-file|--package) _files; return ;;
    --task) compadd -- ${=$(dtrainctl completion names tasks "$first" 2>/dev/null)}; return ;;
  esac
  if [[ -z $verb ]]; then
    if [[ ${words[CURRENT]} == -* ]]; then compadd -- )sh" +
         joined(globals) + R"sh(
    else _describe verb verbs; fi
    return
  fi
  case $verb in
)sh";
  for (const VerbSummary& verb : verbs) {
    out += "    " + verb.name + ")\n      if [[ ${words[CURRENT]} == -* ]]; then compadd -- " + joined(verb.options) + "\n";
    const auto argument = [&](const std::string& what, int number) {
      if (what.empty()) return;
      out += "      elif [[ $count -eq " + std::to_string(number) + " ]]; then ";
      const std::string list = candidates(what);
      if (what == "file") out += "_files\n";
      else out += "compadd -- " + (list[0] == '$' ? "${=" + list + "}" : list) + "\n";
    };
    argument(verb.first, 0);
    argument(verb.second, 1);
    out += "      fi ;;\n";
  }
  // Loaded from fpath this file is the function's body, and the first completion is already wanted; if it is sourced,
  // it is not.
  return out + "  esac\n}\nif [[ $funcstack[1] == _dtrainctl ]]; then _dtrainctl; else compdef _dtrainctl dtrainctl; fi\n";
}

std::string fish_name(const std::string& option) { return option.starts_with("--") ? "-l " + option.substr(2) : "-s " + option.substr(1); }

std::string fish_script(const std::vector<VerbSummary>& verbs, const std::vector<std::string>& globals) {
  const std::string all = verb_names(verbs);
  std::string out =
      "# fish completion of dtrainctl\n"
      "function __dtrainctl_first\n"
      "  set -l words (commandline -opc | string match -v -- '-*')\n"
      "  test (count $words) -ge 3; and echo $words[3]\n"
      "end\n"
      "function __dtrainctl_at\n"
      "  set -l words (commandline -opc | string match -v -- '-*')\n"
      "  test (count $words) -eq $argv[1]\n"
      "end\n"
      "complete -c dtrainctl -f\n"
      "complete -c dtrainctl -l agent -r -F\ncomplete -c dtrainctl -l key-file -r -F\n"
      "complete -c dtrainctl -l timeout -r\n"
      "complete -c dtrainctl -s o -l output -x -a '" +
      std::string(kValues) + "'\n";
  for (const std::string& option : globals)
    if (!std::set<std::string>{"--agent", "--key-file", "--timeout", "-o", "--output"}.contains(option))
      out += "complete -c dtrainctl " + fish_name(option) + "\n";
  for (const VerbSummary& verb : verbs) {
    out +=
        "complete -c dtrainctl -n 'not __fish_seen_subcommand_from " + all + "' -a " + verb.name + " -d " + shell_quoted(verb.help) + "\n";
    const std::string seen = "__fish_seen_subcommand_from " + verb.name;
    for (const std::string& option : verb.options)
      out += "complete -c dtrainctl -n '" + seen + "' " + fish_name(option) +
             (option == "--for" ? " -x -a '" + std::string(kTargets) + "'" : "") + "\n";
    const auto argument = [&](const std::string& what, int words) {
      if (what.empty()) return;
      std::string list = what == "task"          ? "(dtrainctl completion names tasks (__dtrainctl_first) 2>/dev/null)"
                         : what == "job-or-node" ? "(dtrainctl completion names (__dtrainctl_first)s 2>/dev/null)"
                         : what == "node"        ? "(dtrainctl completion names nodes 2>/dev/null)"
                         : what == "job"         ? "(dtrainctl completion names jobs 2>/dev/null)"
                                                 : candidates(what);
      out += "complete -c dtrainctl -n '" + seen + "; and __dtrainctl_at " + std::to_string(words) + "' " +
             (what == "file" ? "-F" : "-a '" + list + "'") + "\n";
    };
    argument(verb.first, 2);
    argument(verb.second, 3);
  }
  return out;
}

// Names, one on each line. Silent and fast, because this runs while somebody types.
int print_names(Session& session, const std::string& kind, const std::string& job) {
  const Deadline deadline = session.answer_deadline(kTypingTime);
  if (kind == "jobs") {
    auto reply = session.ask_by<wire::JobsReply>(wire::MessageType::query_jobs, wire::JobsRequest{}, wire::MessageType::jobs, deadline);
    if (!reply) return session.report(reply.error());
    for (const auto& j : reply->jobs) session.io.out << printable(j.name) << "\n";
  } else if (kind == "tasks") {
    auto reply = session.ask_by<wire::TasksReply>(wire::MessageType::query_tasks, wire::JobName{job}, wire::MessageType::tasks, deadline);
    if (!reply) return session.report(reply.error());
    for (const auto& t : reply->tasks) session.io.out << printable(t.task) << "\n";
  } else if (kind == "nodes") {
    auto reply = session.ask_by<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{}, wire::MessageType::nodes, deadline);
    if (!reply) return session.report(reply.error());
    for (const auto& n : reply->nodes) session.io.out << printable(n.name) << "\n";
  } else {
    return session.report(Failure(Error{ErrorCode::invalid, "could not list names of '" + kind + "': there is no such kind",
                                        "give jobs, nodes, or tasks and a job"}));
  }
  return kDone;
}

}  // namespace

int cmd_completion(Session& session, const std::string& what, const std::string& kind, const std::string& job,
                   const std::vector<VerbSummary>& verbs, const std::vector<std::string>& globals) {
  if (what == "names") return print_names(session, kind, job);
  if (what == "bash") session.io.out << bash_script(verbs, globals);
  if (what == "zsh") session.io.out << zsh_script(verbs, globals);
  if (what == "fish") session.io.out << fish_script(verbs, globals);
  return kDone;
}

}  // namespace dtrain::ctl
