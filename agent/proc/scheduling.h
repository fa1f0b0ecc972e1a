// How urgent processes are to the kernel. What supervises (the agent, its shims) comes before what is supervised: on a host
// whose processors are all in use, exits are noticed, peers and people answered, all the same.
#pragma once

namespace dtrain::proc {

// setpriority(2). One that was started with another than 0 keeps what it was given.
inline constexpr int kAgentNiceness = -10;

// The calling thread and those that it starts from now on. Without the right to it (CAP_SYS_NICE) nothing changes.
void become_urgent();

// In a child that is to run a user's program, or a user's files: no more urgent than usual, nor spared when memory is short.
// Never fails.
void become_usual();

}  // namespace dtrain::proc
