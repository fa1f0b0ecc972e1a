// To its users the ledger is one register of jobs that does one thing after the other. Histories of requests and answers are held against
// a model of it, the states that the log's entries went through:
// - what is acknowledged took effect at one instant between request and answer (a submit by the entry that its job is named after), and
//   what is refused was refusable at one;
// - a list of jobs is the state after the very entry up to which its agent has come: so of two answers of one agent the later is never
//   older, and shows whatever that agent has acknowledged (reads may lag behind other agents: contract.md);
// - nothing happens that nobody asked for: no job that was not submitted, none suspended, cancelled, removed or made larger by itself.
//
// Requests that were never answered, and answers that promise nothing (unavailable, a limit), may have taken effect or not.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

using cluster::JobRecord;
using wire::Action;
using wire::MessageType;

class LedgerLinearisable final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "ledger_linearisable"; }

  void on_asked(const SentRequest& sent) override {
    if (sent.type == MessageType::submit) submitted_[sent.tag].insert(sent.number);
    if (sent.type == MessageType::action && sent.action.action == Action::scale) {
      std::uint32_t& most = scaled_[sent.action.job + "/" + sent.action.role];
      most = std::max(most, sent.action.replicas);
    }
    if (sent.type != MessageType::submit && sent.type != MessageType::action) return;
    Asked& asked = asked_[sent.number];
    asked.index = index_;
    for (const auto& [id, job] : world_.ledger().state().jobs)
      if (job.spec.name == sent.action.job) asked.restarts[id] = job.restarts;
    const JobRecord* own = world_.host_view(sent.host).node()->ledger().find(sent.action.job);
    asked.own = own == nullptr ? 0 : own->id;
    look(sent, asked);
  }

  void stepped(std::size_t host) override {
    const node::Node* node = world_.host_view(host).node();
    const std::uint64_t index = world_.host_view(host).ledger_index();
    if (index == 0) return;
    if (index > after_.size() || !after_[index - 1]) note(node->ledger().state());
    if (index <= index_) return;
    const bool skips = index > index_ + 1;
    index_ = index;
    std::erase_if(asked_, [&](const auto& entry) { return !world_.client().open().contains(entry.first); });
    for (auto& [number, asked] : asked_) {
      asked.skipped = asked.skipped || skips;
      look(world_.client().open().at(number), asked);
    }
    only_what_was_asked(node->ledger().state());
  }

  void on_reply(const SentRequest& sent, const wire::Message& message) override {
    judge_order(sent);
    if (message.type == MessageType::jobs) {
      if (const auto jobs = wire::decode<wire::JobsReply>(message.payload)) judge_list(sent, *jobs);
      return;
    }
    const auto asked = asked_.find(sent.number);
    if (asked == asked_.end()) return;
    look(sent, asked->second);
    if (message.type == MessageType::error) judge_refusal(sent, asked->second, message);
    else judge_acknowledged(sent, asked->second, message);
    asked_.erase(asked);
  }

  // No acknowledged entry becomes void: the world ensures that. An agent may give its copy up and fill it anew.
  void undone(std::uint64_t last) override {
    undone_ = true;
    if (after_.size() > last) after_.resize(last);
    index_ = std::min(index_, last);
    for (auto& [number, asked] : asked_) asked.index = std::min(asked.index, last);
    answered_.clear();
  }

 private:
  struct Asked {
    std::uint64_t index = 0;                  // the newest entry at that time
    std::map<JobId, std::uint32_t> restarts;  // of the jobs of that name at that time
    std::set<JobId> jobs;                     // submit: of that file, at any instant since
    bool skipped = false;                     // entries were applied in one step: not every instant was looked at
    // the job of that name in the agent's own copy, where names are looked up; 0: none, or it has gone since
    JobId own = 0;
    bool done = false, name_taken = false, refusable = false;
  };
  struct Row {
    JobId id = 0;
    cluster::JobState state = cluster::JobState::pending;
    Generation generation = 0;
    std::uint32_t restarts = 0;
    bool operator==(const Row&) const = default;
  };

  // ---------------------------------------------------------------- the model

  void note(const cluster::LedgerState& state) {
    if (after_.size() < state.applied) after_.resize(state.applied);
    std::vector<Row>& rows = after_[state.applied - 1].emplace();
    for (const auto& [id, job] : state.jobs)
      if (!job.replaced || world_.ledger().find(job.spec.name) == &job) rows.push_back({id, job.state, job.generation, job.restarts});
  }

  // Updates what the present state shows about a request under way.
  void look(const SentRequest& sent, Asked& asked) const {
    const cluster::LedgerState& state = world_.ledger().state();
    if (sent.type == MessageType::submit) {
      for (const auto& [id, job] : state.jobs) {
        if (tag_of(job.spec.labels) == sent.tag) asked.jobs.insert(id);
        const JobFile* file = world_.book().file(sent.tag);
        if (file != nullptr && job.spec.name == file->spec.name) asked.refusable = true;
      }
      return;
    }
    bool any = false, all_there = true;
    for (const auto& [id, restarts] : asked.restarts) all_there = all_there && state.jobs.contains(id);
    for (const auto& [id, job] : state.jobs) {
      if (job.spec.name != sent.action.job) continue;
      any = true;
      asked.done = asked.done || is_done(sent.action, job, asked);
    }
    asked.name_taken = asked.name_taken || any;
    // A job that is being replaced or removed has lost its name, and only older copies find it by that name (three
    // hosts, seed 9588).
    if (!state.jobs.contains(asked.own) || world_.ledger().find(sent.action.job) == nullptr) asked.own = 0;
    if (sent.action.action == Action::remove && (!any || !all_there)) asked.done = true;
  }

  static bool is_done(const wire::ActionRequest& action, const JobRecord& job, const Asked& asked) {
    const bool final = is_final(job.state);
    switch (action.action) {
      case Action::cancel: return job.state == cluster::JobState::cancelled;
      // A job whose tasks have all ended by then ends at once (seed 209 of three hosts).
      case Action::suspend: return job.goal == cluster::Goal::suspend || final;
      case Action::resume: return job.goal == cluster::Goal::run || final;
      case Action::restart: {
        if (!action.task.empty()) return true;  // a stateless one keeps its generation
        const auto before = asked.restarts.find(job.id);
        return before == asked.restarts.end() || before->second != job.restarts;
      }
      case Action::scale: {
        const auto role = job.spec.roles.find(action.role);
        return role != job.spec.roles.end() && role->second.replicas == action.replicas;
      }
      case Action::remove: return job.deleting;
      case Action::rerun: return !final;
    }
    return false;
  }

  // ---------------------------------------------------------------- answers

  void judge_acknowledged(const SentRequest& sent, const Asked& asked, const wire::Message& message) {
    if (sent.type == MessageType::action) {
      if (asked.done || asked.skipped) return;
      return violation("what " + words(sent) + " asked for was acknowledged by " + world_.host_view(sent.host).name() +
                       ", and was so at no instant since");
    }
    const auto reply = wire::decode<wire::SubmitReply>(message.payload);
    if (!reply) return;
    if (!asked.jobs.contains(reply->id) && !asked.skipped)
      return violation(words(sent) + " was acknowledged as job " + std::to_string(reply->id) +
                       ", which was there at no instant since (entry " + std::to_string(index_) + " is the newest)");
    // Not its own entry: then the file was sent before.
    if (reply->id % cluster::kJobsOfHistory <= asked.index && submitted_.at(sent.tag).size() == 1)
      violation(words(sent) + " was acknowledged as job " + std::to_string(reply->id) + ", which was there before anybody sent that file");
  }

  void judge_refusal(const SentRequest& sent, const Asked& asked, const wire::Message& message) {
    const auto reply = wire::decode<wire::ErrorReply>(message.payload);
    if (!reply || reply->errors.empty()) return;
    const ErrorCode code = reply->errors.front().code;
    if (asked.skipped || reply->errors.front().next.find("may still be carried out") != std::string::npos) return;
    // This answer says nothing about the jobs: the client waited at an agent whose copy, of an older history, was
    // given up (three hosts, seed 1024).
    if (undone_ && reply->errors.front().message.ends_with(" has no copy of the ledger")) return;
    // Nor does this one: the program there cannot read the ledger, and no agent that can was to be asked.
    if (reply->errors.front().message.find(": this host's dtrain ") != std::string::npos) return;
    // The name is not the cause: not all programs know what that file needs.
    if (sent.type == MessageType::submit && wire::needed_version(world_.book().file(sent.tag)->spec) > cluster::kFirstVersion &&
        reply->errors.front().message.find(": it needs version ") != std::string::npos)
      return;
    if (sent.type == MessageType::submit && code == ErrorCode::refused && !asked.refusable)
      return violation(words(sent) + " was refused though the name was free at every instant since: " + reply->errors.front().message);
    const bool of_job = sent.type == MessageType::action && sent.action.task.empty() && sent.action.role.empty();
    if (of_job && code == ErrorCode::not_found && asked.own != 0)
      return violation(words(sent) + " was answered that there is no such job, though there was at every instant since");
    if (sent.type == MessageType::action && code == ErrorCode::refused && !asked.name_taken)
      violation(words(sent) + " was refused though there was no such job at any instant since");
  }

  void judge_list(const SentRequest& sent, const wire::JobsReply& jobs) {
    if (sent.index == 0 || sent.index > after_.size() || !after_[sent.index - 1]) return;
    const std::vector<Row>& rows = *after_[sent.index - 1];
    const std::string where = "the list of jobs by " + world_.host_view(sent.host).name() + " after entry " + std::to_string(sent.index);
    if (rows.size() != jobs.jobs.size())
      return violation(where + " has " + std::to_string(jobs.jobs.size()) + " jobs, there were " + std::to_string(rows.size()));
    for (const wire::JobView& view : jobs.jobs) {
      const auto row = std::ranges::find(rows, view.id, &Row::id);
      if (row == rows.end()) return violation(where + " has job " + std::to_string(view.id) + ", which was not there");
      std::string state(cluster::to_string(row->state));
      state.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(state.front())));
      // The ledger cannot show this state: nobody coordinates, and the leases are over.
      const bool unled = view.state == "Recovering" && state == "Running" && view.progressing.why.starts_with("nobody coordinates");
      if ((view.state != state && !unled) || view.restarts != row->restarts || view.generation != row->generation)
        return violation(where + " has job " + std::to_string(view.id) + " " + view.state + " in generation " +
                         std::to_string(view.generation) + " after " + std::to_string(view.restarts) + " restarts, it was " + state +
                         " in " + std::to_string(row->generation) + " after " + std::to_string(row->restarts));
    }
  }

  // Compares answers of one life of an agent; connections do not outlast it.
  void judge_order(const SentRequest& sent) {
    if (sent.index == 0) return;  // another agent's answer, passed on
    auto& [life, newest] = answered_[sent.host];
    const std::uint64_t now = world_.host_view(sent.host).lives();
    if (life == now && sent.index < newest)
      return violation(world_.host_view(sent.host).name() + " answers as of entry " + std::to_string(sent.index) +
                       ", and answered as of entry " + std::to_string(newest) + " before");
    life = now;
    newest = sent.index;
  }

  // ---------------------------------------------------------------- nobody asked

  void only_what_was_asked(const cluster::LedgerState& state) {
    for (const auto& [id, job] : state.jobs) {
      const std::uint64_t tag = tag_of(job.spec.labels);
      const JobFile* file = world_.book().file(tag);
      if (file == nullptr || !submitted_.contains(tag))
        return violation("job " + std::to_string(id) + " (" + job.spec.name + ") is there, and nobody submitted it");
      for (const auto& [name, role] : job.spec.roles) {
        const auto was = file->spec.roles.find(name);
        const auto scaled = scaled_.find(job.spec.name + "/" + name);
        std::uint32_t most = was == file->spec.roles.end() ? 0 : was->second.replicas;
        if (scaled != scaled_.end()) most = std::max(most, scaled->second);
        if (role.replicas > most)
          return violation("job " + std::to_string(id) + " wants " + std::to_string(role.replicas) + " of " + name + ", at most " +
                           std::to_string(most) + " were asked for");
      }
      const KnownJob* known = world_.book().find(id);
      if (known == nullptr || known->state.empty()) continue;
      const bool ended = known->cancel_asked || known->removal_asked;
      if (job.goal == cluster::Goal::suspend && !known->suspend_asked && !file->spec.suspend)
        return violation("job " + std::to_string(id) + " is suspended, and nobody asked for that");
      if (job.state == cluster::JobState::cancelled && !ended)
        return violation("job " + std::to_string(id) + " is cancelled, and nobody asked for that");
      if (job.deleting && !known->removal_asked && !job.spec.policy.ttl_after_finished)
        return violation("job " + std::to_string(id) + " is being removed, and nobody asked for that");
    }
  }

  static std::string words(const SentRequest& sent) {
    static constexpr const char* kVerbs[] = {"cancel", "suspend", "resume", "restart", "scale", "delete", "rerun"};
    if (sent.type == MessageType::submit) return "submit of file " + std::to_string(sent.tag);
    return std::string(kVerbs[static_cast<std::size_t>(sent.action.action)]) + " " + sent.action.job;
  }

  bool undone_ = false;                                         // ever
  std::uint64_t index_ = 0;                                     // index of the newest state that was checked
  std::vector<std::optional<std::vector<Row>>> after_;          // the list of jobs before each entry; none: the world did not stop there
  std::map<std::uint64_t, Asked> asked_;                        // by SentRequest::number
  std::map<std::uint64_t, std::set<std::uint64_t>> submitted_;  // which requests sent that file
  std::map<std::string, std::uint32_t> scaled_;                 // the largest number of tasks asked for, by job and role
  std::map<std::size_t, std::pair<std::uint64_t, std::uint64_t>> answered_;  // by host: life, newest entry
};

}  // namespace

std::unique_ptr<Checker> ledger_linearisable(WorldView& world) { return std::make_unique<LedgerLinearisable>(world); }

}  // namespace dtrain::sim
