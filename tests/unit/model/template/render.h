// Renders a template in one call.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/template/chat_template.h"

namespace pagoda::model {

using Json = nlohmann::ordered_json;

// 2024-08-01 11:04:05 UTC.
inline constexpr int64_t kTestNow = 1'722'510'245;

inline absl::StatusOr<RenderedText> render_all(std::string_view source,
                                               const std::vector<TemplateVariable>& variables,
                                               const TemplateLimits& limits = {}) {
  auto compiled = ChatTemplate::compile(source, limits);
  if (!compiled.ok()) return compiled.status();
  return (*compiled)->render(variables, kTestNow);
}

// The text, or the message of the error.
inline std::string render(std::string_view source,
                          const std::vector<TemplateVariable>& variables = {},
                          const TemplateLimits& limits = {}) {
  const auto rendered = render_all(source, variables, limits);
  return rendered.ok() ? rendered->text : base::message_of(rendered.status());
}

// The text with what a user wrote in brackets.
inline std::string marked(std::string_view source, const std::vector<TemplateVariable>& variables) {
  const auto rendered = render_all(source, variables);
  if (!rendered.ok()) return base::message_of(rendered.status());
  std::string text;
  size_t begin = 0;
  for (const RenderedText::Span& span : rendered->spans) {
    const std::string part = rendered->text.substr(begin, span.end - begin);
    text += span.from_user ? "[" + part + "]" : part;
    begin = span.end;
  }
  return text;
}

}  // namespace pagoda::model
