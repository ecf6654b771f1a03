// Templates and data that ask for too much: an error, never a crash or a long wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "tests/unit/model/template/render.h"

namespace pagoda::model {
namespace {

using ::testing::HasSubstr;

std::string repeated(std::string_view text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

// What a thread with so small a stack gets.
std::string on_stack(size_t n_bytes, std::function<std::string()> function) {
  struct Job {
    std::function<std::string()> function;
    std::string result;
  } job{std::move(function), ""};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, n_bytes);
  pthread_t thread;
  const auto run = [](void* pointer) -> void* {
    auto* the_job = static_cast<Job*>(pointer);
    the_job->result = the_job->function();
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, run, &job), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return job.result;
}

// A loop around a statement.
std::string looped(const std::string& body) {
  return "{% for a in range(99999) %}" + body + "{% endfor %}";
}
// a0, a1, … with what stands around each.
std::string names(int n, std::string_view after, std::string_view before = "") {
  std::string all;
  for (int i = 0; i < n; ++i) all += fmt::format("{}{}a{}{}", i == 0 ? "" : ",", before, i, after);
  return all;
}
std::string assignments(int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += fmt::format("{{% set a{} = 1 %}}", i);
  return all;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallStack = size_t{512} << 10;  // frames are larger with the sanitizers
#else
constexpr size_t kSmallStack = size_t{256} << 10;
#endif

void expect_too_deep(const std::string& source, const std::vector<TemplateVariable>& data = {}) {
  const std::string text = on_stack(kSmallStack, [&] { return render(source, data); });
  EXPECT_THAT(text, HasSubstr("nests too deeply")) << source.substr(0, 40);
}

TEST(TemplateLimits, DeepSourcesAreRefused) {
  expect_too_deep(repeated("{% if true %}", 5000) + repeated("{% endif %}", 5000));
  expect_too_deep(repeated("{% for x in y %}", 5000) + repeated("{% endfor %}", 5000));
  expect_too_deep(repeated("{% set x %}", 5000));
  expect_too_deep("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}");
  expect_too_deep("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}");
  expect_too_deep("{{ " + repeated("{1:", 5000) + "1" + repeated("}", 5000) + " }}");
  expect_too_deep("{{ " + repeated("not ", 5000) + "1 }}");
  expect_too_deep("{{ " + repeated("-", 5000) + "1 }}");
  expect_too_deep("{{ x" + repeated(".a", 5000) + " }}");
  expect_too_deep("{{ x" + repeated("|trim", 5000) + " }}");
  expect_too_deep("{{ x" + repeated("[0]", 5000) + " }}");
  expect_too_deep("{{ x" + repeated("()", 5000) + " }}");
  expect_too_deep("{{ " + repeated("1 if 1 else ", 5000) + "1 }}");
}

TEST(TemplateLimits, LongChainsAreNotDeep) {
  EXPECT_EQ(render("{{ 0" + repeated(" + 1", 5000) + " }}"), "5000");
  EXPECT_EQ(render("{{ 'x'" + repeated(" ~ 'y'", 5000) + " }}").size(), 5001u);
  EXPECT_EQ(render("{{ 1" + repeated(" and 1", 5000) + " }}"), "1");
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 2000) + "{% else %}z{% endif %}"), "z");
}

TEST(TemplateLimits, DeepRunsAreRefused) {
  expect_too_deep("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}");
  expect_too_deep(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}"
      "{{ a() }}");
  expect_too_deep("{% set l = [1] %}{% for x in l recursive %}{{ loop(l) }}{% endfor %}");
  expect_too_deep(
      "{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}"
      "{{ n() }}{% endcall %}{% endmacro %}{{ n() }}");
  const std::string grow =
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}";
  expect_too_deep(grow + "{{ ns.x }}");
  expect_too_deep(grow + "{{ ns.x|tojson }}");
  expect_too_deep(grow +
                  "{% set y = namespace(x=[]) %}{% for i in range(100000) %}"
                  "{% set y.x = [y.x] %}{% endfor %}{{ ns.x == y.x }}");
  const std::string tuples =
      "{% set ns = namespace(x=()) %}{% for i in range(100000) %}"
      "{% set ns.x = (ns.x,) %}{% endfor %}";
  expect_too_deep(tuples + "{{ {}[ns.x] }}");
  expect_too_deep(tuples + "{{ {ns.x: 1} }}");
  expect_too_deep("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}");
  Json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = Json::array({std::move(deep)});
  expect_too_deep("{{ x }}", {{"x", std::move(deep), true}});
}

TEST(TemplateLimits, MemoryIsBounded) {
  constexpr TemplateLimits kSmall{.max_output_bytes = 1 << 20, .max_value_bytes = 1 << 20};
  for (const char* source : {
           "{{ 'a' * 1000000000 }}",
           "{{ [0] * 1000000000 }}",
           "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
           "{% endfor %}",
           "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}"
           "{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}"
           "{% endfor %}",
           "{{ ('a' * 100000)|replace('', 'b' * 100) }}",
           "{{ ('a' * 100000)|replace('a', 'b' * 1000) }}",
           "{{ 'x'.ljust(1000000000) }}",
           "{{ 'x'|center(1000000000) }}",
           "{{ 'a'|indent(1000000000, true) }}",
           "{{ [1]|tojson(indent=1000000000) }}",
           "{{ [1]|batch(1000000000, 0)|list }}",
           "{{ [1]|slice(1000000000)|list }}",
           "{{ ('a' * 1000)|list|map('center', 100000)|list|length }}",
       }) {
    EXPECT_THAT(render(source, {}, kSmall), HasSubstr("needs more than")) << source;
  }
  EXPECT_THAT(render("{{ (0, 1) * 9223372036854775807 }}"), HasSubstr("too long a list"));
  EXPECT_THAT(render("{{ 'abc' * 9223372036854775807 }}"), HasSubstr("too long a text"));
  constexpr TemplateLimits kShortOutput{.max_output_bytes = 1 << 20};
  EXPECT_THAT(render("{% for i in range(100000) %}aaaaaaaaaaaaaaa{% endfor %}", {}, kShortOutput),
              HasSubstr("makes more than 1048576 bytes of text"));
  EXPECT_THAT(render("{{ '%1000000000d' % 1 }}"), HasSubstr("too wide a field"));
  EXPECT_THAT(render("{{ '{:1000000000}'.format(1) }}"), HasSubstr("too wide a field"));
  EXPECT_THAT(render("{{ range(1000000000) }}"), HasSubstr("more than 100000 numbers"));
}

// Of this process, in bytes.
size_t resident_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What the blocks that are open in each other hold counts together.
TEST(TemplateLimits, MemoryOfOpenBlocksIsBounded) {
  constexpr TemplateLimits kLimits{.max_value_bytes = size_t{64} << 20};
  const size_t before = resident_bytes();
  for (const char* source : {
           "{% set big = 'x' * 8000000 %}{% macro m(n) %}{{ big }}{% if n %}{{ m(n - 1) }}{% endif "
           "%}"
           "{% endmacro %}{{ m(60) }}",
           "{% set big = 'x' * 8000000 %}{% macro m(n) %}{{ big ~ big ~ (m(n - 1) if n) }}"
           "{% endmacro %}{{ m(60) }}",
           "{% set big = [0] * 500000 %}{% macro m(n) %}{{ [big|list, m(n - 1) if n]|length }}"
           "{% endmacro %}{{ m(60) }}",
       }) {
    EXPECT_THAT(render(source, {}, kLimits), HasSubstr("needs more than 67108864 bytes")) << source;
    EXPECT_LT(resident_bytes(), before + (size_t{400} << 20)) << source;
  }
}

// Honest templates gather a long chat message by message.
TEST(TemplateLimits, ATextThatGrowsByPiecesCostsWhatIsAdded) {
  constexpr TemplateLimits kLimits{.max_value_bytes = size_t{16} << 20};
  Json messages = Json::array();
  for (int i = 0; i < 3000; ++i) messages.push_back(std::string(1000, 'x'));
  for (const char* sum : {"ns.t ~ m", "ns.t + m", "ns.t ~ '<' ~ m ~ '>'", "ns.t + '<' + m"}) {
    const std::string source =
        "{% set ns = namespace(t='') %}{% for m in l %}{% set ns.t = " + std::string(sum) +
        " %}{% endfor %}{{ ns.t|length }}";
    const std::string length = render(source, {{"l", messages, true}}, kLimits);
    EXPECT_THAT(length, ::testing::MatchesRegex("300[0-9]*")) << sum;
  }
}

TEST(TemplateLimits, LazyFiltersDontHideALimit) {
  constexpr TemplateLimits kShort{.max_value_bytes = 1 << 20, .max_steps = 200'000};
  EXPECT_THAT(render("{% set x = ['a' * 1000]|map('center', 100000000) %}ok", {}, kShort),
              HasSubstr("needs more than 1048576 bytes"));
  EXPECT_THAT(render("{% set x = [range(99999)]|map('sort')|map('sum') %}"
                     "{% set x = [range(99999), range(99999)]|map('list')|unique %}ok",
                     {}, kShort),
              HasSubstr("needs more than"));
  EXPECT_THAT(render("{% set big = 'x' * 25000000 %}{% set parts = [big] * 10 %}"
                     "{% for i in range(20) %}{% set x = [parts]|map('join') %}{% endfor %}ok"),
              HasSubstr("needs more than"));
  EXPECT_EQ(render("{% set x = [1]|map('nope') %}ok"), "ok");
}

TEST(TemplateLimits, StepsAreBounded) {
  constexpr TemplateLimits kShort{.max_steps = 200'000};
  const Json long_list = Json::parse("[" + repeated("0,", 9999) + "0]");
  const std::vector<TemplateVariable> data = {
      {"u", repeated("é", 100'000), true}, {"b", repeated(" ", 100'000), true}, {"l", long_list}};
  for (const std::string& source : std::initializer_list<std::string>{
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for a in range(99999) %}{{ 'b' in x }}{% endfor %}",
           "{% set x = range(9999)|list %}{% for a in range(99999) %}{{ -1 in x }}{% endfor %}",
           "{% set x = range(99999)|list %}{{ x|sort|sort|sort|sum }}",
           looped("{% set x = u|length %}"),
           looped("{% set x = u is lower %}"),
           looped("{% set x = u is upper %}"),
           looped("{% set x = 'a'.startswith(u) %}"),
           looped("{% set x = [][u] %}"),
           looped("{% set x = {}[u] %}"),
           looped("{% set x = u|truncate(99990, true) %}"),
           looped("{% set x = u|truncate(99990) %}"),
           looped("{% set x = u|center(9) %}"),
           looped("{% set x = u.ljust(9) %}"),
           looped("{% set x = u.zfill(9) %}"),
           looped("{% set x = b.strip() %}"),
           looped("{% set x = b|trim %}"),
           looped("{% set x = u[1:] %}"),
           looped("{% set x = u[5] %}"),
           looped("{% set x = u.isprintable() %}"),
           looped("{% set x = u.rfind('z') %}"),
           "{% set n = namespace(**{u: 1}) %}" + looped("{% set x = n|attr(u) %}"),
           "{% macro m() %}{% endmacro %}" + looped("{% set x = m() ~ l|map(attribute=u)|list %}"),
           looped("{% set x = u.rsplit('z') %}"),
           looped("{% set x = u.removeprefix(u ~ 'z') %}"),
           looped("{% set x = [1]|map(u) %}"),
           looped("{% set x = l == l ~ 'x' %}"),
           looped("{% for y in [1] %}" + assignments(3000) + "{% endfor %}"),
           "{% macro m(" + names(300, "") + ") %}{% endmacro %}" +
               looped("{{ m(**{" + names(300, "':1", "'") + "}) }}"),
           "{% set d = {" + names(300, "':1", "'") + "} %}" +
               looped("{{ ('{a299}' * 99).format(**d) }}"),
       }) {
    EXPECT_THAT(render(source, data, kShort), HasSubstr("more than 200000 steps"))
        << source.substr(0, 200);
  }
}

TEST(TemplateLimits, CompilingIsBounded) {
  for (const std::string& source : {"{{ f(" + names(60'000, "=1") + ") }}",
                                    "{% macro m(" + names(60'000, "") + ") %}{% endmacro %}"}) {
    EXPECT_THAT(render(source), HasSubstr("needs more than 20000000 steps"));
  }
  EXPECT_EQ(render("{% macro m(" + names(300, "=1") + ") %}{{ a299 }}{% endmacro %}{{ m(" +
                   names(300, "=2") + ") }}"),
            "2");
}

// Searching from the right costs what is looked at.
TEST(TemplateLimits, SearchingFromTheRightIsNotDear) {
  const Json text = repeated(std::string(983, 'x') + "</tool_response>\n", 1500);
  for (const char* part :
       {"rsplit('</tool_response>\\n')|length", "rpartition('</tool_response>')|length",
        "rfind('</tool_response>\\n')"}) {
    const auto rendered = render_all("{{ u." + std::string(part) + " }}", {{"u", text, true}},
                                     {.max_steps = 200'000});
    EXPECT_TRUE(rendered.ok()) << rendered.status();
  }
  EXPECT_EQ(render("{{ 'abcabc'.rfind('bc') }} {{ 'abc'.rfind('') }} {{ 'a'.rfind('aa') }} "
                   "{{ 'aabaab'.rsplit('aab') }} {{ 'x'.rpartition('y') }}"),
            "4 3 -1 ['', '', ''] ('', '', 'x')");
}

TEST(TemplateLimits, ManyLevelsWork) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr TemplateLimits kLimits{.max_stack_bytes = size_t{4} << 20};  // larger frames
#else
  constexpr TemplateLimits kLimits{};
#endif
  constexpr int kLevels = 64;
  Json data = 1;
  for (int i = 0; i < kLevels; ++i) data = Json::array({Json::object({{"k", std::move(data)}})});
  for (const auto& [source, text] : std::vector<std::pair<std::string, std::string>>{
           {"{{ " + repeated("(", kLevels) + "1" + repeated(")", kLevels) + " }}", "1"},
           {"{{ " + repeated("[", kLevels) + repeated("]", kLevels) + "|length }}", "1"},
           {"{{ " + repeated("{1:", kLevels) + "1" + repeated("}", kLevels) + "|length }}", "1"},
           {"{{ " + repeated("not (", kLevels / 2) + "1" + repeated(")", kLevels / 2) + " }}",
            "True"},
           {"{{ " + repeated("dict(a=", kLevels) + "1" + repeated(")", kLevels) + "|length }}",
            "1"},
           {repeated("{% if true %}", kLevels) + "x" + repeated("{% endif %}", kLevels), "x"},
           {repeated("{% for i in [1] %}", kLevels) + "x" + repeated("{% endfor %}", kLevels), "x"},
           {"{{ d|tojson|length }}{{ d|string|length == d|tojson|length }}", "577True"},
           {"{{ d == d|list }}", "True"},
       }) {
    EXPECT_EQ(render(source, {{"d", data, true}}, kLimits), text) << source;
  }
  constexpr TemplateLimits kFlat{.max_stack_bytes = 4096};
  EXPECT_THAT(render("{{ ((((((((1)))))))) }}", {}, kFlat),
              HasSubstr("nests too deeply for the stack (the limit is 4096 bytes)"));
}

TEST(TemplateLimits, SourcesAreBounded) {
  constexpr TemplateLimits kSmall{.max_source_bytes = 10};
  EXPECT_EQ(render("12345678901", {}, kSmall),
            "chat template: 11 bytes are more than the limit of 10");
  EXPECT_EQ(render("1234567890", {}, kSmall), "1234567890");
}

}  // namespace
}  // namespace pagoda::model
