#include "model/template/symbols.h"

namespace pagoda::model::jinja {

VariableRef reference(const FunctionScope& from, const Variable& variable) {
  VariableRef ref{.slot = variable.slot};
  for (const FunctionScope* at = &from; at != variable.function; at = at->outer()) ++ref.hops;
  return ref;
}

const Variable* Symbols::find(std::string_view name) const {
  for (const Symbols* at = this; at != nullptr; at = at->parent_) {
    if (const auto found = at->variables_.find(name); found != at->variables_.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

Variable Symbols::define(std::string_view name, const LoadFrom& load) {
  const Variable variable{function_, function_->slot(level_, name)};
  variables_[name] = variable;
  loads_[variable.slot] = load;
  return variable;
}

void Symbols::load(std::string_view name) {
  if (find(name) == nullptr) define(name, {.source = Source::kGlobal, .name = name});
}

void Symbols::store(std::string_view name) {
  stored_.insert(name);
  if (variables_.contains(name)) return;
  if (const Variable* outer = parent_ == nullptr ? nullptr : parent_->find(name)) {
    define(name, {.source = Source::kOuter, .name = name, .outer = *outer});
  } else {
    define(name, {.source = Source::kNothing, .name = name});
  }
}

int32_t Symbols::declare_parameter(std::string_view name) {
  stored_.insert(name);
  return define(name, {.source = Source::kParameter, .name = name}).slot;
}

void Symbols::store_target(const Target& target) {
  switch (target.kind) {
    case Target::Kind::kName:
      return store(target.name);
    case Target::Kind::kNamespace:
      return load(target.name);
    case Target::Kind::kTuple:
      for (const Target& item : target.items) store_target(item);
  }
}

void Symbols::declare_target(const Target& target) {
  if (target.kind == Target::Kind::kName) declare_parameter(target.name);
  for (const Target& item : target.items) declare_target(item);
}

void Symbols::visit(const Expression* expression) {
  if (expression == nullptr) return;
  workspace_.tick();
  workspace_.check_stack();
  if (expression->kind == ExpressionKind::kName) load(static_cast<const Name*>(expression)->name);
  for_each_child(*expression, [this](const Expression* child) { visit(child); });
}

void Symbols::visit(const CallArguments& arguments) {
  for_each_argument(arguments, [this](const Expression* argument) { visit(argument); });
}

void Symbols::visit(Body body) {
  for (const Statement* statement : body) visit(*statement);
}

void Symbols::visit(const Statement& statement) {
  workspace_.tick();
  workspace_.check_stack();
  switch (statement.kind) {
    case StatementKind::kData:
    case StatementKind::kBreak:
    case StatementKind::kContinue:
    case StatementKind::kGeneration:
      return;
    case StatementKind::kOutput:
      for (const Expression* item : static_cast<const Output&>(statement).items) visit(item);
      return;
    case StatementKind::kFor:
      return visit(static_cast<const ForStatement&>(statement).iterable);
    case StatementKind::kIf:
      return visit_if(static_cast<const IfStatement&>(statement));
    case StatementKind::kSet: {
      const auto& node = static_cast<const SetStatement&>(statement);
      visit(node.value);
      return store_target(node.target);
    }
    case StatementKind::kSetBlock:
      return store_target(static_cast<const SetBlock&>(statement).target);
    case StatementKind::kMacro:
      return store(static_cast<const MacroStatement&>(statement).code->name);
    case StatementKind::kCallBlock:
      return visit(static_cast<const CallBlock&>(statement).call);
    case StatementKind::kFilterBlock:
      return visit(static_cast<const FilterBlock&>(statement).filter);
    case StatementKind::kWith:
      for (const Expression* value : static_cast<const WithStatement&>(statement).values) {
        visit(value);
      }
      return;
  }
}

Symbols Symbols::branch(Body body) const {
  // Counted well above its time, for its memory: branches within branches live side by side.
  constexpr size_t kStepsPerName = 8;
  const size_t n_names = variables_.size() + loads_.size() + stored_.size();
  workspace_.tick(static_cast<int64_t>(kStepsPerName * n_names));
  Symbols copy = *this;
  copy.visit(body);
  return copy;
}

// The branches after the first are ifs within one another's place, all seen from the same start.
void Symbols::visit_if(const IfStatement& statement) {
  visit(statement.branches[0].test);
  std::vector<Symbols> branches = {branch(statement.branches[0].body)};
  Symbols others = branch({});
  for (const IfStatement::Branch& elif : statement.branches.subspan(1)) {
    others.visit(elif.test);
    const Symbols nested[] = {others.branch(elif.body), others, others};
    others.merge(nested);
  }
  branches.push_back(std::move(others));
  branches.push_back(branch(statement.otherwise));
  merge(branches);
}

// A name that only some branches store has, where they do not, the value it had outside.
void Symbols::merge(std::span<const Symbols> branches) {
  std::set<std::string_view> stored;
  for (const Symbols& branch : branches)
    stored.insert(branch.stored_.begin(), branch.stored_.end());
  for (const std::string_view name : stored_) stored.erase(name);
  for (const Symbols& branch : branches) {
    for (const auto& [name, variable] : branch.variables_) variables_[name] = variable;
    for (const auto& [slot, load] : branch.loads_) loads_[slot] = load;
    stored_.insert(branch.stored_.begin(), branch.stored_.end());
  }
  for (const std::string_view name : stored) {
    const int32_t slot = variables_.at(name).slot;
    if (const Variable* outer = parent_ == nullptr ? nullptr : parent_->find(name)) {
      loads_[slot] = {.source = Source::kOuter, .name = name, .outer = *outer};
    } else {
      loads_[slot] = {.source = Source::kGlobal, .name = name};
    }
  }
}

Scope Symbols::scope(bool clears, absl::flat_hash_set<std::string>& globals) const {
  std::vector<Load> loads;
  std::vector<int32_t> cleared;
  for (const auto& [slot, load] : loads_) {
    if (clears) cleared.push_back(slot);
    switch (load.source) {
      case Source::kParameter:
        break;
      case Source::kNothing:
        loads.push_back({.from = Load::From::kNothing, .slot = slot});
        break;
      case Source::kGlobal:
        globals.insert(std::string(load.name));
        loads.push_back({.from = Load::From::kGlobal, .slot = slot, .name = load.name});
        break;
      case Source::kOuter:
        loads.push_back(
            {.from = Load::From::kOuter, .slot = slot, .outer = reference(*function_, load.outer)});
        break;
    }
  }
  return {workspace_.copy(loads), workspace_.copy(cleared)};
}

}  // namespace pagoda::model::jinja
