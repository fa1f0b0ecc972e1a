// A readable story of one host: jobs, what happens when, what must be seen. One text file each, run in the simulated
// world without random faults; the world's checkers watch as they always do.
//
//   job digits tensorflow
//     role ps 1 forever
//     role worker 2 run=60000
//     checkpoint
//   at 1s: submit digits
//   by 3s: digits is Running
//   at 4s: kill worker-1 of digits
//   by 5s: worker-1 of digits has attempt 2
//
// `at T` does or checks something at that instant of virtual time; `by T` checks that it becomes true until then.
//
// Job lines: role NAME REPLICAS [script words of tests/sim/script.h]; restart ROLE POLICY; checkpoint;
//   backoffLimit N; threshold N; deadline N (seconds); clean Running|All|None; grace N (seconds); freeze (onPsFailure);
//   priority N; expected N (seconds); gpus ROLE N (of each task; the host has two); cpus ROLE N (of each; it has eight);
//   least ROLE N (minReplicas); growAfter T|never; percent N (successPercent)
// Deeds: submit|cancel|suspend|resume|restart|rerun|delete|delete --force NAME; scale NAME ROLE=N; restart TASK of NAME;
//   kill TASK of NAME; kill shim of TASK of NAME; kill agent for T; reboot for T; pause agent for T; disk error;
//   rot checkpoint of NAME
// Checks: NAME is STATE; NAME is gone; NAME has generation|restarts N; TASK of NAME has attempt N; TASK of NAME runs;
//   TASK of NAME does not run; TASK of NAME restored STEP (0: nothing); nothing runs
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::sim {

// "" when the story went as told, else FILE:LINE and what happened instead.
std::string run_scenario(const std::string& file_name, std::string_view text);

}  // namespace dtrain::sim
