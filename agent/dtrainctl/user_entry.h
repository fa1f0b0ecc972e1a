// HOME and SHELL of tasks that are only described: each host takes them from its own entry of the user. Here they are this host's.
#pragma once

#include <vector>

#include "common/wire/view.h"

namespace dtrain::ctl {

void add_user_entry(std::vector<wire::TaskSpecView>& tasks);

}  // namespace dtrain::ctl
