// Names of things. One word for one thing: docs/nomenclature.md.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace dtrain {

using NodeId = std::string;           // 128 random bits in hex, made once per data directory
using JobId = std::uint64_t;          // made of the history and the index of its submit entry (kJobsOfHistory): unique, never reused
using Generation = std::uint32_t;     // one cluster spec of a job, from 1
using AttemptNumber = std::uint32_t;  // one run of a task, from 1 over all generations; 0: none yet

struct TaskId {
  std::string role;         // "worker"
  std::uint32_t index = 0;  // 1

  std::string text() const { return role + "-" + std::to_string(index); }  // "worker-1"
  auto operator<=>(const TaskId&) const = default;
  template <class V>
  void fields(V& v) {
    v("role", role);
    v("index", index);
  }
};

// "worker-1.0": a rank of a task. As in messages, 1 is the first. 0: the task as a whole, "worker-1".
inline std::string text_of_rank(const std::string& task, std::uint32_t rank) {
  return rank == 0 ? task : task + "." + std::to_string(rank - 1);
}

// One task of one generation on one host: one shim.
struct AssignmentId {
  JobId job = 0;
  Generation generation = 0;
  TaskId task;

  // Names the assignment's directory, cgroup and log fields: "17.2.worker-1"
  std::string text() const { return std::to_string(job) + "." + std::to_string(generation) + "." + task.text(); }
  auto operator<=>(const AssignmentId&) const = default;
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("generation", generation);
    v("task", task);
  }
};

}  // namespace dtrain
