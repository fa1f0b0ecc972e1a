// The deep check of a zip file: every member's CRC-32 and its local header.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/transfer/format.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {

// Reads one member from its local header to the next member: the header must agree with the directory, the bytes, unpacked if need be, must
// have the size and the CRC-32 that the directory says. Memory is bounded whatever it claims.
std::unique_ptr<PartCheck> zip_member_check(const ZipMember& member, bool has_crc);

// The zip in the file `name`, by what read_zip_table() returned, as the only file of a checkpoint.
Result<std::unique_ptr<Contents>> zip_contents(std::string_view table, std::string name);

}  // namespace dtrain::transfer
