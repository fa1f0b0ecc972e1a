// The agent's directories and files (docs/agent.md).
#pragma once

#include <string>

namespace dtrain::daemon {

struct Layout {
  std::string data;  // lock, dtrain.db
  std::string run;
  std::string work;       // jobs' working copies
  std::string temporary;  // --dev: the directory to remove at the end; "" none

  std::string tasks() const { return data + "/tasks"; }
  std::string blobs() const { return data + "/blobs"; }
  std::string members_file() const { return data + "/members"; }
  std::string reserve() const { return data + "/reserve"; }  // agent/store/disk_reserve.h
  std::string own_key() const { return data + "/cluster.key"; }
  std::string gpus_file() const { return data + "/gpus"; }
  std::string control_socket() const { return run + "/control.sock"; }
};

}  // namespace dtrain::daemon
