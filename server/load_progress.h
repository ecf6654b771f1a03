// How far the loading of a model is, said only when it takes long enough to wonder.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "model/weights.h"

namespace pagoda {

// From the first second and a half on: on a terminal one line that is rewritten and at last
// removed, else a line of the log at every fifth. Called by the thread that loads. The clock is
// borrowed.
model::LoadProgress load_progress(const base::Clock& clock, bool is_terminal);

}  // namespace pagoda
