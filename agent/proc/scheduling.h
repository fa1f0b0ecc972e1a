// Priorities of processes. What supervises (the agent, its shims) comes before what is supervised, so that on a busy
// host exits are noticed, and peers and people answered.
#pragma once

namespace dtrain::proc {

// setpriority(2). A process that was started with a priority other than 0 keeps it.
inline constexpr int kAgentNiceness = -10;

// The calling thread, and threads that it starts later. Without the right to it (CAP_SYS_NICE) nothing changes.
void become_urgent();

// In a child that will run a user's program, or handle a user's files: the usual priority, and no protection when
// memory is short. Never fails.
void become_usual();

}  // namespace dtrain::proc
