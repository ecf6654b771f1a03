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


def expect_none(cases):
    found = oracle.differences(cases)
    assert not found, f"{len(found)} of {len(cases)} differ, such as\n" + "\n".join(found[:10])


def test_expressions():
    expect_none([{"template": "{{ " + text + " }}", "data": oracle.DATA}
                 for text in (FOLDER / "expressions.txt").read_text().splitlines()])


def test_statements():
    lines = (FOLDER / "statements.jsonl").read_text().splitlines()
    expect_none([{"template": json.loads(line), "data": oracle.DATA} for line in lines])


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
