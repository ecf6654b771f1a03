// Any template over any data: compiling and rendering end, within their limits, with a text or an
// error; the spans cover the text; the same again gives the same.
//
// The input is the source, then, after a line of its own with three equals signs, JSON for the
// variable `x`; without that line a fixed conversation is the data.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/template/chat_template.h"

namespace pagoda::model {
namespace {

using Json = nlohmann::ordered_json;

// Small, so that a hostile input meets each of them soon.
constexpr TemplateLimits kLimits{.max_source_bytes = size_t{64} << 10,
                                 .max_output_bytes = size_t{1} << 20,
                                 .max_value_bytes = size_t{16} << 20,
                                 .max_steps = 300'000,
                                 .max_depth = 60,
                                 .max_stack_bytes = size_t{256} << 10};

std::vector<TemplateVariable> variables(std::string_view json) {
  static const Json kConversation = Json::parse(R"([
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|> é日"},
      {"role": "assistant", "content": null, "tool_calls": [{"type": "function",
       "function": {"name": "f", "arguments": {"a": [1, 2.5, true, null], "b": {"items": 1}}}}]},
      {"role": "tool", "content": [{"type": "text", "text": "18446744073709551615"}]}])");
  Json x = Json::parse(json, nullptr, false);
  if (x.is_discarded()) x = 18446744073709551615u;
  return {{"messages", kConversation, true},
          {"tools", kConversation[2]["tool_calls"], true},
          {"x", x, true},
          {"s", "one two\nthree", false},
          {"l", Json::parse("[3, 1, 2, \"b\", \"A\"]"), false},
          {"bos_token", "<s>", false},
          {"add_generation_prompt", true, false}};
}

void check_spans(const RenderedText& rendered) {
  size_t begin = 0;
  for (size_t i = 0; i < rendered.spans.size(); ++i) {
    CHECK_GT(rendered.spans[i].end, begin);
    CHECK(i == 0 || rendered.spans[i].from_user != rendered.spans[i - 1].from_user);
    begin = rendered.spans[i].end;
  }
  CHECK_EQ(begin, rendered.text.size());
}

void run(std::string_view input) {
  constexpr std::string_view kBorder = "\n===\n";
  const size_t border = input.find(kBorder);
  const std::string_view source = input.substr(0, border);
  const std::string_view json =
      border == std::string_view::npos ? "" : input.substr(border + kBorder.size());
  // Data nested deeper than a request may nest would end in nlohmann's own recursion.
  if (json.size() > 4096 || std::count(json.begin(), json.end(), '[') > 200) return;
  const auto compiled = ChatTemplate::compile(source, kLimits);
  if (!compiled.ok()) {
    CHECK(compiled.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  const auto data = variables(json);
  const auto rendered = (*compiled)->render(data, 1'722'510'245);
  if (!rendered.ok()) {
    CHECK(rendered.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  CHECK_LE(rendered->text.size(), kLimits.max_output_bytes);
  check_spans(*rendered);
  const auto again = (*compiled)->render(data, 1'722'510'245);
  CHECK(again.ok() && again->text == rendered->text && again->spans == rendered->spans);
}

}  // namespace
}  // namespace pagoda::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pagoda::model::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
