"""Pagoda's chat templates against jinja2 as `transformers` sets it up: the language part by part,
blanks around tags, the model families' constructs, the demo model's own template, and templates
made at random. Both render the same text, or both refuse, at the same stage."""

import json
import os
import pathlib

import pytest

import template_families
import template_oracle as oracle

MODEL = os.environ.get(
    "PAGODA_DEMO_MODEL",
    str(pathlib.Path.home() / ".cache/pagoda/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
)
FOLDER = pathlib.Path(__file__).resolve().parent / "templates"
N_EXPRESSIONS = 3000
N_TEMPLATES = 500


EXPRESSIONS = (FOLDER / "expressions.txt").read_text().splitlines()
STATEMENTS = [json.loads(line) for line in (FOLDER / "statements.jsonl").read_text().splitlines()]


def expect_none(cases):
    found = oracle.differences(cases)
    assert not found, f"{len(found)} of {len(cases)} differ, such as\n" + "\n".join(found[:10])


def test_expressions():
    expect_none([{"template": "{{ " + text + " }}", "data": oracle.DATA}
                 for text in EXPRESSIONS])


def test_statements():
    expect_none([{"template": text, "data": oracle.DATA} for text in STATEMENTS])


def test_refusals_are_as_listed():
    expect_none([{"template": text, "data": oracle.DATA} for text in oracle.REFUSED])


def test_blanks_around_tags():
    expect_none(oracle.blank_control())


def test_families():
    expect_none(template_families.cases())


def test_demo_model():
    # The key is followed by the type of its value, the length of the text and the text.
    key = b"tokenizer.chat_template"
    data = pathlib.Path(MODEL).read_bytes()
    at = data.index(key) + len(key) + 4
    template = data[at + 8:at + 8 + int.from_bytes(data[at:at + 8], "little")].decode()
    cases = [{**case, "template": template} for case in template_families.cases()]
    expect_none(cases[:len(template_families.CONVERSATIONS) * len(template_families.OPTIONS)])


def test_json_of_any_text():
    codes = [*range(1, 0x250), *range(0x2000, 0x2070), *range(0xFFF0, 0xFFFE)]
    texts = [chr(code) for code in codes]
    data = {"v": {"".join(texts): texts}}
    expect_none([{"template": template, "data": data} for template in (
        "{{ v|tojson }}", "{{ v|tojson(ensure_ascii=true, indent=1) }}", "{{ v }}",
        "{{ v|string|length }}")])


def test_case_of_any_text():
    # U+10FC is a lower-case letter only since Unicode 15.1, and is to some libraries already.
    codes = [*range(1, 0x590), *range(0x10A0, 0x10FC), *range(0x1E00, 0x2000),
             *range(0xFB00, 0xFB18)]
    template = ("{{ [v|upper, v|lower, v.title(), v|capitalize, v.swapcase(), v|title, "
                "v.casefold(), v.isalpha(), v.isupper(), v.islower(), v[1].isdigit(), "
                "v[1].isnumeric(), v[1].isspace(), v.isprintable()] }}")
    expect_none([{"template": template, "data": {"v": f"a{chr(code)}b{chr(code)}"}}
                 for code in codes])


@pytest.mark.parametrize("seed", [1, 2])
def test_random_expressions(seed):
    expect_none(oracle.random_expressions(seed, N_EXPRESSIONS // 2))


@pytest.mark.parametrize("seed", [3, 4])
def test_random_templates(seed):
    expect_none(oracle.random_templates(seed, N_TEMPLATES // 2))


# What must stay a user's on its way through names.
NAMES = ("{{ '%s'|format(**d) }}", "{{ ['%s']|map('format', **d)|join }}", "{{ dict(**d) }}",
         "{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**d) }}", "{{ namespace(**d) }}",
         "{{ '{}'.format(d) }}", "{{ d|items|list }}", "{{ d|dictsort|join }}", "{{ d|list|join }}",
         "{{ r|map('list')|map('join')|list }}", "{% for k in d %}{{ k|upper }}{% endfor %}",
         "{{ d|tojson(indent=s) }}", "{{ d|tojson(separators=(s, u)) }}")


@pytest.mark.parametrize("cases", [
    [{"template": text, "data": oracle.DATA} for text in NAMES],
    [{"template": "{{ " + text + " }}", "data": oracle.DATA} for text in EXPRESSIONS],
    [{"template": text, "data": oracle.DATA} for text in STATEMENTS],
    template_families.cases(),
    oracle.random_expressions(5, N_EXPRESSIONS // 2),
    oracle.random_templates(6, N_TEMPLATES),
], ids=["names", "expressions", "statements", "families", "random expressions",
        "random templates"])
def test_what_a_user_wrote_stays_the_users(cases):
    found, n_tainted = oracle.leaks(cases)
    assert not found, f"{len(found)} leaks, such as\n" + "\n".join(found[:10])
    assert n_tainted > len(cases) / 20


def test_turn_tokens_are_of_one_piece():
    """Where a template makes a token of a role, no border between origins lies within it."""
    cases = [{**case, "user": list(case["data"]), "checked": {"messages": ["role"]}}
             for case in template_families.cases()
             if "<|' +" in case["template"] or "<|{{" in case["template"]]
    n_tokens = 0
    for case, answer in zip(cases, oracle.by_tool(cases)):
        text = answer.get("text", "").encode()
        begin = 0
        for end, from_user in answer.get("spans", []):
            part = text[begin:end].decode(errors="replace")
            assert from_user or not part.endswith("<|"), (case["template"], text)
            n_tokens += part.count("<|user|>")
            begin = end
    assert n_tokens > 0
