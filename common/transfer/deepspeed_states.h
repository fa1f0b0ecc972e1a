// The files that DeepSpeed writes for all ranks of a step: in a directory of their own, or in one within a directory of Hugging Face's
// Trainer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/file_tables.h"

namespace dtrain::transfer {

// The first file, by which the others are counted: the whole model's, or with ZeRO 3 the first share of it.
inline constexpr std::string_view kDeepspeedModel = "mp_rank_00_model_states.pt",
                                  kDeepspeedShare = "zero_pp_rank_0_mp_rank_00_model_states.pt";
inline constexpr std::size_t kDeepspeedCountBytes = 24;

bool is_deepspeed_file(std::string_view name);  // without its directory

// Adds those in `directory` ("": the checkpoint's own) to `tables`. Returns how many ranks they are of, as the first file says, in
// kDeepspeedCountBytes. Errors: as of read_rank_file(); not_found: there is no first file.
Result<std::string> read_deepspeed_files(FileAccess& files, const std::string& directory, std::vector<FileTable>& tables);

// The same of the first file alone.
Result<std::string> read_deepspeed_counts(FileAccess& files, const std::string& first);

// Are these all ranks' files? `counts`: what read_deepspeed_files() returned. Other files among them are passed over.
// Errors: damaged, or those of lacks_ranks().
Status check_deepspeed_files(std::string_view counts, const std::vector<FileTable>& tables);

}  // namespace dtrain::transfer
