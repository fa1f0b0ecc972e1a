#include "common/node/package_requests.h"

#include "common/base/limits.h"
#include "common/node/reply.h"
#include "common/node/serve.h"

namespace dtrain::node {

void PackageRequests::put(const Request& e, const wire::PutBlobRequest& q, const Caller& caller) {
  if (callers_.refuse_user(e, caller)) return;
  if (q.bytes.size() > limits::kBlobChunkBytes || q.offset + q.bytes.size() > limits::kPackageBytes)
    return reply_error(
        c_, e,
        {ErrorCode::limit, "could not store package: it is larger than " + std::to_string(limits::kPackageBytes >> 20) + " MiB",
         "leave data out of the package and mount it on the hosts"});
  c_.emit(WriteBlob{e.connection, e.request, q.offset, q.bytes, q.last, q.digest});
  if (!q.last) reply(c_, e, wire::MessageType::ok, wire::Empty{});
}

void PackageRequests::written(const BlobWritten& e) {
  const Caller* caller = callers_.find(e.connection);
  if (caller == nullptr) return;  // closed meanwhile, or a fetch that was given up
  if (!e.digest) return reply_error(c_, e.connection, e.request, e.digest.error());
  const std::string shown = shown_digest(*e.digest);
  rights_.gave(*caller, *e.digest);
  callers_.audit(wire::MessageType::put_blob, *caller, "package", shown, "", {{"package", shown}});
  reply(c_, e.connection, e.request, wire::MessageType::blob, wire::BlobReply{true});
}

bool PackageRequests::may_have(ConnectionId connection, const std::string& digest) const {
  const Caller* caller = callers_.find(connection);
  return caller != nullptr && !caller->inside && rights_.may_have(*caller, digest);
}

bool PackageRequests::refuse(const Request& e, const Caller& caller, const std::string& digest, const std::string& could_not) {
  if (digest.empty() || c_.options.packages_are_given || rights_.may_have(caller, digest)) return false;
  reply_error(c_, e,
              {ErrorCode::refused,
               could_not + ": " + caller.user + " has not given package " + shown_digest(digest) + " to the agent of " + c_.facts.name +
                   ", and has no job with it",
               "let dtrainctl upload it: name its directory, and submit again"});
  return true;
}

// ---------------------------------------------------------------- rows

// A package is stored where it was submitted, and spreads from there.
constinit const Verb verbs::put_blob{
    .serve = serve<&PackageRequests::put>, .rule = {Needs::copy, "submit job"}, .role = Role::submit, .audit = Audit::event};
constinit const Verb verbs::get_blob{.serve = serve<&PackageRequests::get>, .rule = kPackages};

}  // namespace dtrain::node
