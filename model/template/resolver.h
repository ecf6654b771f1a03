// Finds out which variable each name means, by jinja2's rules of scope.
#pragma once

#include "model/template/ast.h"

namespace pagoda::model::jinja {

// Fills in the slots of variables, the scopes and global_names of a parsed program. Refuses what
// jinja2 refuses when it compiles: unknown filters, a break outside a loop, …
void resolve(Program& program);

}  // namespace pagoda::model::jinja
