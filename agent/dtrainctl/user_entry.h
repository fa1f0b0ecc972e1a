// HOME and SHELL of tasks that are only described. Each host takes them from its own user entry; here they are this host's.
#pragma once

#include <vector>

#include "common/wire/view.h"

namespace dtrain::ctl {

void add_user_entry(std::vector<wire::TaskSpecView>& tasks);

}  // namespace dtrain::ctl
