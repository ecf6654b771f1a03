// Templates and data that ask for too much: an error, never a crash or a long wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

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

TEST(TemplateLimits, StepsAreBounded) {
  constexpr TemplateLimits kShort{.max_steps = 200'000};
  for (const char* source : {
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% set x = 'a' * 1000000 %}{% for a in range(99999) %}{{ 'b' in x }}{% endfor %}",
           "{% set x = range(9999)|list %}{% for a in range(99999) %}{{ -1 in x }}{% endfor %}",
           "{% set x = range(99999)|list %}{{ x|sort|sort|sort|sum }}",
       }) {
    EXPECT_THAT(render(source, {}, kShort), HasSubstr("more than 200000 steps")) << source;
  }
}

TEST(TemplateLimits, SourcesAreBounded) {
  constexpr TemplateLimits kSmall{.max_source_bytes = 10};
  EXPECT_EQ(render("12345678901", {}, kSmall),
            "chat template: 11 bytes are more than the limit of 10");
  EXPECT_EQ(render("1234567890", {}, kSmall), "1234567890");
}

}  // namespace
}  // namespace pagoda::model
