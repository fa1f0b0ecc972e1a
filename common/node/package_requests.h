// Requests about packages: clients upload them and name them in jobs, other agents fetch them.
#pragma once

#include <string>

#include "common/node/callers.h"
#include "common/node/package_rights.h"
#include "common/node/packages.h"

namespace dtrain::node {

class PackageRequests {
 public:
  PackageRequests(Context& context, Callers& callers, Packages& packages)
      : c_(context), callers_(callers), packages_(packages), rights_(context.ledger) {}

  void put(const Request& e, const wire::PutBlobRequest& q, const Caller& caller);
  void written(const BlobWritten& e);
  void get(const Request& e, const wire::GetBlobRequest& q) { c_.emit(SendBlob{e.connection, e.request, q.digest, q.offset}); }
  // True if the client of that connection may use this package in a job; otherwise the client must upload it first.
  bool may_have(ConnectionId connection, const std::string& digest) const;
  // Refuses a request with a package that its caller may not use; returns false if it is in order.
  bool refuse(const Request& e, const Caller& caller, const std::string& digest, const std::string& could_not);
  bool spread(const Request& e, const std::string& digest, const std::string& could_not) { return packages_.spread(e, digest, could_not); }

 private:
  Context& c_;
  Callers& callers_;
  Packages& packages_;
  PackageRights rights_;
};

}  // namespace dtrain::node
