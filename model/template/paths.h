// Paths to attributes, as filters take them ("function.name", "items.0"), and keys to sort by.
#pragma once

#include <vector>

#include "model/template/value.h"

namespace pagoda::model::jinja {

class Path {
 public:
  // `path` is a text or a number; none() or a missing value leads to the item itself. `otherwise`
  // stands in for what is not there, unless it is none() or missing.
  Path(Workspace& workspace, const Value& path, const Value& otherwise = {});

  Value of(Workspace& workspace, Value item) const;

 private:
  Values parts_;
  Value otherwise_;
};

// What an item is sorted by: what its path leads to, texts in lower case unless case counts.
class SortKey {
 public:
  // With `several`, a path may be more than one, with commas between.
  SortKey(Workspace& workspace, const Value& path, bool case_sensitive, bool several = false,
          const Value& otherwise = {});

  Value of(Workspace& workspace, const Value& item) const;

 private:
  std::vector<Path> paths_;
  bool case_sensitive_;
  bool several_;
};

}  // namespace pagoda::model::jinja
