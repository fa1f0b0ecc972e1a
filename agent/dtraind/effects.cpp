// Performs Node's effects: one overload for each effect passes it to the adapter in charge.
#include "agent/dtraind/daemon.h"
#include "agent/dtraind/exam_terms.h"
#include "agent/dtraind/exec_place.h"
#include "agent/proc/task_of_process.h"
#include "common/wire/codec.h"
#include "common/wire/control.h"

namespace dtrain::daemon {

struct Daemon::Perform {
  Daemon& d;
  Instant now() const { return d.loop_->now().boot; }

  void operator()(node::Persist& e) { d.committer_->add(std::move(e)); }
  void operator()(node::Reply& e) { d.sinks_.send_encoded(e.connection, e.body); }
  void operator()(node::CloseConnection& e) { d.sinks_.close(e.connection); }
  void operator()(node::WriteBlob& e) { d.write_blob(std::move(e)); }
  void operator()(node::DropBlob& e) { d.drop_blob(e.connection); }
  void operator()(node::FindBlob& e) { d.find_blob(e.digest); }
  void operator()(node::SendBlob& e) { d.blob_streams_->open(e); }
  void operator()(node::OpenLog& e) { d.logs_->open(e); }
  void operator()(node::UpdateLog& e) { d.logs_->update(e); }
  void operator()(node::OpenExec& e) { d.open_exec(e); }
  void operator()(node::OpenRelay& e) { d.relays_.open(now(), std::move(e)); }
  void operator()(node::CloseRelay& e) {
    d.logs_->close(e.part);  // reads this host's files
    d.relays_.close(e.part);
  }
  void operator()(node::AcceptRelay& e) { d.relays_.accept(now(), e); }
  void operator()(node::SendRelay& e) { d.to_peer(e.peer, e.message); }

  void operator()(node::Stage& e) { d.stager_->stage(e); }
  void operator()(node::LaunchShim& e) { d.runner_->launch(e.spec); }
  void operator()(node::StartAttempt& e) { d.runner_->start(e.id, e.attempt); }
  void operator()(node::SignalTask& e) { d.runner_->signal(e); }
  void operator()(node::KillTask& e) { d.runner_->kill(e.id); }
  void operator()(node::FreezeTask& e) { d.runner_->freeze(e.id, e.freeze); }
  void operator()(node::AnswerLease& e) { d.runner_->answer_lease(e); }
  void operator()(node::RequireLease& e) { d.runner_->require_lease(e); }
  void operator()(node::EndShim& e) { d.runner_->end(e.id); }
  void operator()(node::RemoveJobFiles& e) { d.stager_->remove(e); }

  void operator()(node::WatchCheckpoints& e) { d.checkpoints_->watch(e); }
  void operator()(node::ScanCheckpoints& e) { d.checkpoints_->scan(e); }
  void operator()(node::VerifyCheckpoint& e) { d.checkpoints_->verify(e); }
  void operator()(node::EndVerification& e) { d.checkpoints_->end(e); }
  void operator()(node::QuarantineCheckpoint& e) { d.checkpoints_->quarantine(e); }
  void operator()(node::DeleteCheckpoint& e) { d.checkpoints_->remove(e); }
  void operator()(node::SendCheckpoint& e) { d.checkpoint_streams_->open(e); }
  void operator()(node::WriteCheckpoint& e) { d.write_checkpoint(std::move(e)); }
  void operator()(node::DropCheckpoint& e) {
    d.upload_bytes_.erase(e.writer);
    d.checkpoint_streams_->drop(e.writer);
  }

  void operator()(node::Examine& e) { d.examine(std::move(e)); }

  void operator()(node::FindGpuHolders& e) { d.find_gpu_holders(std::move(e)); }

  void operator()(node::RunHook& e) { (e.user ? d.hooks_ : d.host_hooks_)->run(now(), std::move(e)); }
  void operator()(node::EndHooks& e) { d.hooks_->end(e.job, e.token); }

  void operator()(gossip::Send& e) {
    if (!d.links_) return;
    d.links_->send(e);
    d.said_something_ = true;
  }
  void operator()(gossip::KeepLinks& e) {
    if (d.links_) d.links_->keep(e);
  }
  void operator()(gossip::CheckGone& e) {
    if (d.links_) d.links_->check_gone(e);
  }
  void operator()(gossip::ResolveSeeds&) { d.resolve_seeds(); }
  void operator()(node::SaveMembers& e) { d.save_members(std::move(e)); }
  void operator()(node::SendLog& e) {
    if (d.links_) d.links_->send(e);
  }
  void operator()(node::SendFormation& e) { d.send_formation(e); }
  void operator()(node::KnowMember& e) {
    if (d.links_) d.links_->know(e.identity);
    else if (d.prepared_.members.network) d.before_network_.push_back(std::move(e));
  }
  void operator()(node::EnterCluster& e) {
    if (d.links_) d.links_->set_cluster(e.cluster);
    else if (d.prepared_.members.network) d.before_network_.push_back(e);
  }
};

void Daemon::perform(node::Effect& effect) { std::visit(Perform{*this}, effect); }

void Daemon::open_exec(const node::OpenExec& effect) {
  const auto query = wire::decode<wire::ExecRequest>(effect.query);
  auto place = exec_place(prepared_.layout.tasks(), effect.id, query ? query->rank : 0);
  if (!place) return answer_error(effect.connection, effect.request, place.error());
  if (effect.in_task && place->inside != 0)
    return answer_error(effect.connection, effect.request,
                        {ErrorCode::refused, "could not launch a program in " + effect.id.task.text() + ": the task runs in an image",
                         "leave out the image of tasks in which mpirun starts programs"});
  if (effect.in_task)
    place->run_beside = [this, id = effect.id](const proc::Runner::Program& program) { return runner_->run_beside(id, program); };
  execs_->open(effect.connection, effect.request, effect.query, *place);
}

void Daemon::examine(node::Examine effect) {
  host::DoctorOptions options;
  node::ExamTerms& terms = options.terms;
  terms = exam_terms(config_);
  const node::NodeFacts& facts = prepared_.facts;
  terms.name = facts.name;
  terms.keyed = key_path(config_, prepared_.layout) != prepared_.layout.own_key();
  terms.listen_ip = listens_.ip;
  terms.port = listens_.port;
  terms.advertise = prepared_.members.endpoint.ip;
  terms.task_address = facts.task_address;
  const Layout& layout = prepared_.layout;
  terms.directories = {{"paths.data", layout.data}, {"paths.work", layout.work}, {"paths.run", layout.run}};
  terms.gpus = facts.gpus;
  options.peers = std::move(effect.peers);
  options.is_task = [tasks = layout.tasks()](pid_t pid) { return proc::runs_in_task(pid, tasks); };
  examiner_->begin(effect.token, std::move(options));
}

// Chunks are written in order on the disk worker. A sender that is faster than the disk is not read, so that its
// bytes wait in its socket and not in the agent's memory.
void Daemon::write_blob(node::WriteBlob chunk) {
  const node::ConnectionId connection = chunk.connection;
  const std::size_t size = chunk.bytes.size();
  std::size_t& queued = upload_bytes_[connection];
  queued += size;
  const bool own = chunk.own;  // room() of its stream limits what may arrive
  if (queued > kUploadQueueBytes && !own) sinks_.hold(connection, true);
  auto shared = std::make_shared<const node::WriteBlob>(std::move(chunk));
  post_bulk([this, shared, connection, size, own] {
    auto answer = prepared_.blobs->write(*shared);
    return [this, answer = std::move(answer), connection, request = shared->request, size, own] {
      const auto found = upload_bytes_.find(connection);
      if (found != upload_bytes_.end()) {
        found->second -= size;
        if (own) relays_.wake(connection);
        else if (found->second <= kUploadQueueBytes) sinks_.hold(connection, false);
        if (own && answer && *answer) upload_bytes_.erase(found);  // otherwise DropBlob follows
      }
      if (answer) queue(node::BlobWritten{connection, request, *answer});
    };
  });
}

void Daemon::drop_blob(node::ConnectionId connection) {
  if (upload_bytes_.erase(connection) == 0) return;
  post_bulk([this, connection] {
    prepared_.blobs->drop(connection);
    return store::DiskWorker::Done();
  });
}

// As for blobs.
void Daemon::write_checkpoint(node::WriteCheckpoint piece) {
  const node::ConnectionId writer = piece.writer;
  const std::size_t size = piece.bytes.size();
  const bool last = piece.last;
  upload_bytes_[writer] += size;
  checkpoint_streams_->write(std::move(piece), [this, writer, size, last] {
    const auto found = upload_bytes_.find(writer);
    if (found == upload_bytes_.end()) return;
    found->second -= std::min(found->second, size);
    if (last) upload_bytes_.erase(found);
    relays_.wake(writer);
  });
}

void Daemon::find_blob(const std::string& digest) {
  post_bulk([this, digest] {
    auto there = prepared_.blobs->has(digest);
    return [this, digest, there = std::move(there)] { queue(node::BlobFound{digest, there}); };
  });
}

// On the lane before bulk work, since GPUs wait for it; in pieces, so that commits go on in between.
void Daemon::find_gpu_holders(node::FindGpuHolders effect) {
  const proc::HolderPlaces places{device_root_, "/proc", prepared_.layout.tasks()};
  look_for_holders(effect.token, std::make_shared<proc::GpuHolderSearch>(effect.gpus, places));
}

void Daemon::look_for_holders(std::uint64_t token, const std::shared_ptr<proc::GpuHolderSearch>& search) {
  const bool posted = worker_->post(store::Lane::commit, [this, search, token] {
    const Result<bool> done = search->look(proc::kHolderLooks);
    return [this, search, token, done] {
      if (!done) queue(node::GpuHoldersFound{token, fail(done.error())});
      else if (*done) queue(node::GpuHoldersFound{token, search->take()});
      else look_for_holders(token, search);
    };
  });
  if (posted) return;
  const Error busy{ErrorCode::limit, "could not look who holds GPUs: too much waits for the disk", "try again later"};
  queue(node::GpuHoldersFound{token, fail(busy)});
}

void Daemon::post_bulk(store::DiskWorker::Work work) {
  if (!deferred_.empty() || !worker_->post(store::Lane::bulk, work)) deferred_.push_back(std::move(work));
}

void Daemon::post_deferred() {
  save_next_record();
  while (!deferred_.empty() && worker_->post(store::Lane::bulk, deferred_.front())) deferred_.pop_front();
}

// Keeps track of living shims, for the message at the end and for the clean-up of --dev.
void Daemon::note(const node::Event& event) {
  if (const auto* up = std::get_if<node::ShimUp>(&event)) {
    if (up->result) shims_.insert(up->id);
  } else if (const auto* gone = std::get_if<node::ShimGone>(&event)) {
    shims_.erase(gone->id);
  }
}

}  // namespace dtrain::daemon
