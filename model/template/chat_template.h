// A model's chat template: text with Jinja tags that turns messages, tools and the like into a
// prompt, rendered as `transformers` renders it (README.md says which part of Jinja).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace pagoda::model {

namespace jinja {
struct Program;
}

// A global variable of the template. Render only reads it.
struct TemplateVariable {
  std::string name;
  nlohmann::ordered_json value;
  bool from_user = false;  // every string inside came from a client
  // Of the objects in the list `value`: texts under these keys don't count as a client's, for the
  // caller knows all that they may be (the role of a message).
  std::vector<std::string> checked_keys{};
};

// The prompt, and who wrote which bytes of it: control tokens count only in what no user wrote.
struct RenderedText {
  // Consecutive stretches that cover the text: span i is [spans[i - 1].end, spans[i].end).
  struct Span {
    size_t end = 0;  // a byte offset
    bool from_user = false;
    bool operator==(const Span&) const = default;
  };

  std::string text;
  std::vector<Span> spans;  // neighbours differ in from_user, none is empty
};

// What a template may use. Each limit ends in a clear error, for a template and its data are as
// hostile as whoever wrote them.
struct TemplateLimits {
  size_t max_source_bytes = size_t{1} << 20;
  size_t max_output_bytes = size_t{32} << 20;
  // Everything that a render makes on its way, freed when it ends; also the compiled template.
  size_t max_value_bytes = size_t{256} << 20;
  int64_t max_steps = 20'000'000;  // statements, expressions, items, and each 64 bytes looked at
  int32_t max_depth = 100;         // nesting of the source; calls of macros and loops in each other
  size_t max_stack_bytes = size_t{128} << 10;  // of the calling thread, the same guard in bytes
};

// A compiled template. Immutable; any thread may render.
class ChatTemplate {
 public:
  // kInvalidArgument: "chat template, line 12: …"; kResourceExhausted without memory.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> compile(
      std::string_view source, const TemplateLimits& limits = {});
  ~ChatTemplate();

  // `now_unix_s` is what strftime_now tells, in UTC. kInvalidArgument: "the chat template refuses:
  // …" with the words of the template's raise_exception, else "chat template, line 12: …".
  absl::StatusOr<RenderedText> render(std::span<const TemplateVariable> variables,
                                      int64_t now_unix_s) const;

  // Whether a global variable of that name is read anywhere ("tools", "documents", …).
  bool uses(std::string_view name) const;

 private:
  explicit ChatTemplate(std::unique_ptr<const jinja::Program> program);

  std::unique_ptr<const jinja::Program> program_;
};

}  // namespace pagoda::model
