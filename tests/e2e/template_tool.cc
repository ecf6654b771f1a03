// Renders chat templates, for comparison with another implementation:
//
//   template_tool < cases
//
// Each line of standard input is a JSON object {"template": text, "data": {name: value, …},
// "user": [name, …], "checked": {name: [key, …], …}, "now": seconds}; standard output has for each
// a line {"text": text, "spans": [[end, from_user], …]} or {"error": text, "stage": "compile" or
// "render"}. A template like the one of the line before is not compiled again.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/template/chat_template.h"

namespace pagoda {
namespace {

using Json = nlohmann::ordered_json;

class Tool {
 public:
  Json answer(const Json& request) {
    const std::string source = request.at("template");
    if (!compiled_ || source != source_) {
      source_ = source;
      compiled_ = model::ChatTemplate::compile(source);
    }
    if (!compiled_->ok()) return error("compile", compiled_->status());
    std::vector<model::TemplateVariable> variables;
    const Json users = request.value("user", Json::array());
    const Json checked = request.value("checked", Json::object());
    for (const auto& [name, value] : request.at("data").items()) {
      const bool from_user = std::find(users.begin(), users.end(), name) != users.end();
      variables.push_back(
          {name, value, from_user, checked.value(name, std::vector<std::string>())});
    }
    const auto rendered = (**compiled_)->render(variables, request.value("now", int64_t{0}));
    if (!rendered.ok()) return error("render", rendered.status());
    Json spans = Json::array();
    for (const auto& span : rendered->spans) spans.push_back({span.end, span.from_user});
    return {{"text", rendered->text}, {"spans", spans}};
  }

 private:
  static Json error(const char* stage, const absl::Status& status) {
    return {{"error", base::message_of(status)}, {"stage", stage}};
  }

  std::string source_;
  std::optional<absl::StatusOr<std::unique_ptr<const model::ChatTemplate>>> compiled_;
};

bool read_line(std::string& line) {
  line.clear();
  for (int c = std::getchar(); c != EOF; c = std::getchar()) {
    if (c == '\n') return true;
    line.push_back(static_cast<char>(c));
  }
  return !line.empty();
}

}  // namespace
}  // namespace pagoda

int main() {
  pagoda::Tool tool;
  for (std::string line; pagoda::read_line(line);) {
    const std::string answer = tool.answer(pagoda::Json::parse(line))
                                   .dump(-1, ' ', false, pagoda::Json::error_handler_t::replace);
    std::fwrite(answer.data(), 1, answer.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
  }
  return 0;
}
