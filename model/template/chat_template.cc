#include "model/template/chat_template.h"

#include <new>
#include <utility>

#include "base/check.h"
#include "model/template/ast.h"
#include "model/template/interpreter.h"
#include "model/template/parser.h"
#include "model/template/resolver.h"
#include "model/tokenizer/utf8.h"

namespace pagoda::model {

namespace {

absl::Status no_memory() {
  return base::status_error(absl::StatusCode::kResourceExhausted,
                            "chat template: the machine has no memory left for it");
}

absl::Status to_status(const jinja::TemplateError& error, int32_t line) {
  if (error.is_refusal) {
    return base::invalid_argument("the chat template refuses: {}", error.message);
  }
  const int32_t at = error.line > 0 ? error.line : line;
  if (at <= 0) return base::invalid_argument("chat template: {}", error.message);
  return base::invalid_argument("chat template, line {}: {}", at, error.message);
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::Program> program)
    : program_(std::move(program)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::compile(
    std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.max_source_bytes) {
    return base::invalid_argument("chat template: {} bytes are more than the limit of {}",
                                  source.size(), limits.max_source_bytes);
  }
  if (utf8_valid_len(source) != source.size()) {
    return base::invalid_argument("chat template: byte {} is not UTF-8", utf8_valid_len(source));
  }
  auto program = std::make_unique<jinja::Program>(limits);
  jinja::Workspace& workspace = program->workspace;
  workspace.enter_thread();
  try {
    program->body = jinja::Parser(workspace, jinja::tokenize(workspace, source)).parse();
    jinja::resolve(*program);
  } catch (const jinja::TemplateError& error) {
    return to_status(error, 0);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(program)));
}

absl::StatusOr<RenderedText> ChatTemplate::render(std::span<const TemplateVariable> variables,
                                                  int64_t now_unix_s) const {
  const TemplateLimits& limits = program_->limits;
  jinja::Workspace workspace({.max_bytes = limits.max_value_bytes,
                              .max_steps = limits.max_steps,
                              .max_depth = limits.max_depth,
                              .max_stack_bytes = limits.max_stack_bytes});
  workspace.now_unix_s = now_unix_s;
  workspace.enter_thread();
  jinja::TextBuilder out(workspace, limits.max_output_bytes);
  int32_t line = 0;
  try {
    jinja::Interpreter interpreter(*program_, workspace, variables);
    try {
      interpreter.run(out);
    } catch (const jinja::TemplateError&) {
      line = interpreter.line();
      throw;
    }
  } catch (const jinja::TemplateError& error) {
    return to_status(error, line);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
  RenderedText rendered;
  for (const jinja::Stretch& stretch : out.stretches()) {
    rendered.spans.push_back({stretch.end, stretch.from_user});
  }
  rendered.text = out.bytes();
  return rendered;
}

bool ChatTemplate::uses(std::string_view name) const {
  return program_->global_names.contains(std::string(name));
}

}  // namespace pagoda::model
