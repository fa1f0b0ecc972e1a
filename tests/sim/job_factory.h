// Random job specs as the job file's parser would deliver them: every framework, role and policy that one host
// supports, small enough to fit that host.
#pragma once

#include "common/base/rng.h"
#include "common/job/job_spec.h"

namespace dtrain::sim {

inline constexpr std::uint64_t kHostCpuMillis = 8000;
inline constexpr std::uint64_t kHostMemoryBytes = 16ull << 30;
inline constexpr std::uint32_t kHostGpus = 2;
inline constexpr std::uint32_t kHostCpus = kHostCpuMillis / 1000;  // of two NUMA nodes, two hyperthreads a core

job::JobSpec random_job(const std::string& name, std::uint64_t tag, Rng& rng);
// Its tasks take so much that few such jobs run at once; one kind takes all `hosts`. A job that may be bound to one
// host has room on one, even when it is scaled up.
void make_hungry(job::JobSpec& spec, std::uint32_t hosts);
void make_shrinking(job::JobSpec& spec, std::uint32_t hosts, std::uint64_t tag);
// Parameter servers and workers that come and go without the others: a lost worker continues elsewhere by itself.
void make_dynamic(job::JobSpec& spec);
// Half of the jobs with a ps have no ps under a lease: it runs on while its host is unreachable, and is waited for.
void make_keeping(job::JobSpec& spec);
// In half of them tasks give up when another one of their job is away.
void make_leaving(job::JobSpec& spec, std::uint64_t tag);
// The most workers that it may have on so many hosts: it has room there once others made room, whatever else was done to it.
std::uint32_t wide_replicas(std::uint32_t hosts, Rng& rng);
void make_wide(job::JobSpec& spec, std::uint32_t hosts, Rng& rng);
// The same file with something changed that no default hides.
job::JobSpec changed_job(job::JobSpec spec, std::uint64_t tag);

}  // namespace dtrain::sim
