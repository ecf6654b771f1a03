#include "model/template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/model/template/render.h"

namespace pagoda::model {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string with_v(std::string_view source, std::string_view json) {
  return render(source, {{"v", Json::parse(json), false}});
}

TEST(ChatTemplateTojson, WritesAsPythonDoes) {
  EXPECT_EQ(with_v("{{ v|tojson }}",
                   R"({"z":1,"a":["x/y","<b>&'q'","—é😀"],"n":null,"t":true,"f":1.0,"e":{},)"
                   R"("s":"line\nq\"\\"})"),
            R"({"z": 1, "a": ["x/y", "<b>&'q'", "—é😀"], "n": null, "t": true, "f": 1.0, )"
            R"("e": {}, "s": "line\nq\"\\"})");
  EXPECT_EQ(with_v("{{ v|tojson(indent=2) }}", R"({"b":[1,{"c":[]}],"a":{}})"),
            "{\n  \"b\": [\n    1,\n    {\n      \"c\": []\n    }\n  ],\n  \"a\": {}\n}");
  EXPECT_EQ(with_v("{{ v|tojson(ensure_ascii=True) }}", R"("é😀/")"), R"("\u00e9\ud83d\ude00/")");
  EXPECT_EQ(with_v("{{ v|tojson(separators=(',',':')) }}", R"({"b":1,"a":[1,2]})"),
            R"({"b":1,"a":[1,2]})");
  EXPECT_EQ(with_v("{{ v|tojson(sort_keys=true) }}", R"({"b":1,"a":[1,2]})"),
            R"({"a": [1, 2], "b": 1})");
  EXPECT_EQ(with_v("{{ v|tojson }}", "[1e20,1e16,1e15,0.1,-0.0,1e-7,3]"),
            "[1e+20, 1e+16, 1000000000000000.0, 0.1, -0.0, 1e-07, 3]");
  EXPECT_EQ(with_v("{{ v }}", R"([1,"a",null,true,1.0])"), "[1, 'a', None, True, 1.0]");
  EXPECT_EQ(with_v("{{ v }}", R"(["it's","q\""])"), R"(["it's", 'q"'])");
  EXPECT_EQ(with_v("{{ v }} {{ v|tojson }}", "[18446744073709551615]"),
            "[18446744073709551615] [18446744073709551615]");
}

TEST(ChatTemplate, RendersAConversation) {
  const Json messages = Json::parse(R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(render("{% for m in messages %}\n<|{{ m.role }}|>{{ m['content'] }}\n{% endfor %}\n"
                   "{%- if add_generation_prompt %}<|assistant|>{% endif %}",
                   {{"messages", messages, true}, {"add_generation_prompt", true, false}}),
            "<|user|>hi\n<|assistant|>");
}

TEST(ChatTemplate, SaysWhichGlobalsItReads) {
  const auto compiled = ChatTemplate::compile(
      "{% set x = 1 %}{% for m in messages %}{% if tools %}{{ m }}{{ x }}{% endif %}{% endfor %}"
      "{% macro f(documents) %}{{ documents }}{{ deep }}{% endmacro %}");
  ASSERT_TRUE(compiled.ok());
  for (const char* name : {"messages", "tools", "deep"}) EXPECT_TRUE((*compiled)->uses(name));
  for (const char* name : {"x", "m", "documents", "f", "nope"}) {
    EXPECT_FALSE((*compiled)->uses(name)) << name;
  }
}

TEST(ChatTemplate, TellsTheTimeInUtc) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y %H:%M:%S') }}"), "01 Aug 2024 11:04:05");
}

TEST(ChatTemplateErrors, NameTheLine) {
  EXPECT_EQ(render("a\nb {{ nope.x }}"), "chat template, line 2: 'nope' is undefined");
  EXPECT_EQ(render("\n\n{% if x %}\n"),
            "chat template, line 3: a block has no end; 'endif' is missing");
  EXPECT_EQ(render("a\n\n{% for x in 5 %}{% endfor %}"),
            "chat template, line 3: a int cannot be gone through");
  EXPECT_EQ(render("{{ 1 +\n }}"), "chat template, line 2: '}}' stands where a value is expected");
  EXPECT_EQ(render("\n{{ x|nope }}"), "chat template, line 2: there is no filter 'nope'");
  EXPECT_EQ(render("{% include 'x' %}"),
            "chat template, line 1: 'include' is not supported: a chat template stands alone");
  EXPECT_EQ(render("a\xFFz"), "chat template: byte 1 is not UTF-8");
}

TEST(ChatTemplateErrors, PassARefusalOnAsItWasWritten) {
  EXPECT_EQ(render("{{ raise_exception('Roles must alternate: ' ~ x) }}", {{"x", "{} 日", true}}),
            "the chat template refuses: Roles must alternate: {} 日");
  const auto status = render_all("{{ raise_exception('no') }}", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string longest = render("{{ raise_exception('日' * 100000) }}");
  EXPECT_LT(longest.size(), 5000u);
}

TEST(ChatTemplateErrors, IntegersStayInBounds) {
  EXPECT_THAT(render("{{ 9223372036854775807 + 1 }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(render("{{ 2 ** 64 }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(render("{{ 99999999999999999999 }}"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(render("{{ x + 1 }}", {{"x", UINT64_MAX, false}}), HasSubstr("64 bits"));
  EXPECT_EQ(render("{{ 'x'[-9223372036854775807:9223372036854775807] }}"), "x");
  EXPECT_EQ(render("{{ [1, 2, 3][::9223372036854775807] }}"), "[1]");
}

TEST(ChatTemplateErrors, AreShort) {
  const std::vector<TemplateVariable> data = {{"u", std::string(1'000'000, 'x'), true}};
  for (const char* source :
       {"{{ '{:' ~ u ~ '}' }}{{ ('{:' ~ u ~ '}').format(1) }}", "{{ ('{' ~ u ~ '}').format(1) }}",
        "{{ [1]|map(u)|list }}", "{{ {}[u].x }}", "{{ [][u].x }}", "{{ dict(**{u: 1}).x.y }}",
        "{{ range(**{u: 1}) }}", "{{ ('%(' ~ u ~ ')s') % {} }}", "{{ 1|attr(u) + 1 }}"}) {
    const auto status = render_all(source, data).status();
    EXPECT_FALSE(status.ok()) << source;
    EXPECT_LT(status.message().size(), 2000u) << source;
  }
}

TEST(ChatTemplate, CalculatesAsPythonDoes) {
  EXPECT_EQ(render("{{ 1481 / 5630 }} {{ 9007199254740993 / 3 }} {{ -7 / 2 }} {{ 0 / -3 }}"),
            "0.26305506216696267 3002399751580331.0 -3.5 -0.0");
  EXPECT_EQ(render("{{ range(-9223372036854775807, 9223372036854775807, "
                   "4611686018427387904)|list|length }}"),
            "4");
  EXPECT_EQ(render("{{ range(-9223372036854775807, 9223372036854775807, "
                   "4611686018427387904)[-1] }}"),
            "4611686018427387905");
  EXPECT_THAT(render("{{ '%*d' % (-9223372036854775807 - 1, 5) }}"), HasSubstr("too wide a field"));
  EXPECT_EQ(render("{{ '%*d|' % (-3, 5) }}"), "5  |");
  EXPECT_EQ(render("{{ '{:.3}|{:.3}|{:.1}'.format(100.0, 123456.0, 5.0) }}"),
            "1e+02|1.23e+05|5e+00");
  EXPECT_EQ(render("{{ '٣'|int }} {{ '-१२'|int }} {{ '٣.٥'|float }}"), "3 -12 3.5");
  EXPECT_EQ(render("{% set x = 1.5 %}{{ x is sameas x }} {{ x is sameas 2.5 }}"), "True False");
}

TEST(ChatTemplate, AnyThreadMayRender) {
  const auto compiled = ChatTemplate::compile(
      "{% set ns = namespace(n=0) %}{% macro m(x) %}{{ x|upper }}{% endmacro %}"
      "{% for i in l %}{% set ns.n = ns.n + i %}{{ m(s) }}{% endfor %}{{ ns.n }}");
  ASSERT_TRUE(compiled.ok());
  const std::vector<TemplateVariable> variables = {{"l", Json::parse("[1, 2, 3]"), true},
                                                   {"s", "é", true}};
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) text = (*compiled)->render(variables, 0)->text;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, "ÉÉÉ6");
}

}  // namespace
}  // namespace pagoda::model
