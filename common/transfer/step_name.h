// The step of training in the name of a checkpoint that somebody's script chose: "ckpt_000120", "epoch=3-step=1200", "checkpoint-1200".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dtrain::transfer {

// The number after a word for a step, such as step, iter, ckpt or epoch; of several words the one that counts finest. nullopt: there is
// none, so that the file may be anything, data included.
std::optional<std::int64_t> step_said_by(std::string_view name);

// True if it says a step, and that this is a checkpoint: "ckpt_12.pt", "step-12.pt" and "model_epoch_3.pt", not "samples_step_12.pt".
bool named_as_checkpoint(std::string_view name);

// The step, or else the number after the last '-' or '_': for a name that is known to be a checkpoint's. 0: none.
std::int64_t step_of_name(std::string_view name);

}  // namespace dtrain::transfer
