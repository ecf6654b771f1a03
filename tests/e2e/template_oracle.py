"""Renders chat templates by jinja2, set up as `transformers` does it, and by Pagoda's tool; and
makes templates at random."""

import datetime
import functools
import json
import os
import pathlib
import random
import subprocess
import warnings

import jinja2
import jinja2.ext
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("PAGODA_BIN_DIR", ROOT / "build/release/bin")) / "template_tool"
NOW = 1_722_510_245  # 2024-08-01 11:04:05 UTC

# Templates that jinja2 renders, or refuses at another stage, and that we refuse on purpose, with
# what our message says.
REFUSED = {line["template"]: line["words"] for line in map(json.loads, (
    pathlib.Path(__file__).parent / "templates" / "refused.jsonl").read_text().splitlines())}
# What Python prints with an address or as its own class, which no template can mean.
NO_MEANING = (" at 0x", "<built-in method", "<function", "<class '")


class Generation(jinja2.ext.Extension):
    """{% generation %}: a body that is a function called on the spot."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def support(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(format):
    moment = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
    return moment.replace(tzinfo=None).strftime(format)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


ENVIRONMENT = make_environment()


@functools.lru_cache(maxsize=64)
def compile_by_jinja(source):
    return ENVIRONMENT.from_string(source)


def by_jinja(case):
    """{"text"} or {"error", "stage"}, as the tool answers."""
    stage = "compile"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            template = compile_by_jinja(case["template"])
            stage = "render"
            return {"text": template.render(**json.loads(json.dumps(case["data"])))}
    except Exception as error:  # anything that a template may make Python raise
        return {"error": str(error), "stage": stage,
                "refused": type(error) is jinja2.exceptions.TemplateError}


def by_tool(cases):
    """The tool's answers to many cases."""
    lines = "".join(json.dumps({"now": NOW, **case}) + "\n" for case in cases)
    done = subprocess.run([TOOL], input=lines.encode(), stdout=subprocess.PIPE, timeout=300)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(cases):
        raise AssertionError(f"the tool ended with {done.returncode} at {cases[len(answers)]}")
    return answers


def difference(case, expected, answer):
    """A sentence if the two answers differ, else an empty one."""
    if case["template"] in REFUSED:
        is_as_listed = (REFUSED[case["template"]] in answer.get("error", "") and
                        expected.get("stage") != answer["stage"])
        return "" if is_as_listed else f"{case} is listed as refused\n  pagoda: {answer}"
    if "text" in expected:
        if any(words in expected["text"] for words in NO_MEANING):
            return ""
        if answer.get("text") == expected["text"]:
            return ""
        return f"{case}\n  jinja2: {expected['text']!r}\n  pagoda: {answer}"
    if answer.get("stage") != expected["stage"]:
        return f"{case}\n  jinja2: {expected}\n  pagoda: {answer}"
    if expected["refused"] and answer["error"] != f"the chat template refuses: {expected['error']}":
        return f"{case}\n  jinja2: {expected}\n  pagoda: {answer}"
    return ""


def differences(cases):
    answers = by_tool(cases)
    found = [difference(case, by_jinja(case), answer) for case, answer in zip(cases, answers)]
    return [text for text in found if text]


CYRILLIC = str.maketrans({
    **{chr(ord("a") + i): chr(0x430 + i) for i in range(26)},
    **{chr(ord("A") + i): chr(0x410 + i) for i in range(26)}})


def tainted(value, key=""):
    """The value with letters that no template has; what templates tell cases apart by stays."""
    if isinstance(value, str):
        return value if key in ("role", "type") else value.translate(CYRILLIC)
    if isinstance(value, list):
        return [tainted(item) for item in value]
    if isinstance(value, dict):
        return {**{name: tainted(item, name) for name, item in value.items()}, "ключ": "слово"}
    return value


def is_cyrillic(text):
    return any(0x400 <= ord(c) < 0x500 for c in text)


def leaks(cases):
    """What a user wrote and the spans give to the template; and how many texts had such letters."""
    cases = [{"template": case["template"], "user": list(case["data"]),
              "checked": {"messages": ["role"]},
              "data": {name: tainted(value) for name, value in case["data"].items()}}
             for case in cases]
    found = []
    n_tainted = 0
    for case, answer in zip(cases, by_tool(cases)):
        text = answer.get("text", "").encode()
        n_tainted += is_cyrillic(text.decode())
        begin = 0
        for end, from_user in answer.get("spans", []):
            part = text[begin:end].decode(errors="replace")
            if not from_user and is_cyrillic(part):
                found.append(f"{case['template']!r} gives {part!r} to the template")
            begin = end
    return found, n_tainted


DATA = {
    "s": "Hello, World", "t": "  two words\n\tand tab  ", "u": "Grüße, 日本 😀 ß İ", "e": "",
    "q": "it's \"q\" \\ <b>&amp;</b>", "n": 7, "m": -3, "z": 0, "f": 2.5, "g": -0.0, "h": 1e16,
    "b": True, "c": False, "x": None, "l": [3, 1, 2], "k": ["b", "A", "c", "a"], "w": [],
    "d": {"b": 1, "a": [1, {"k": "v"}], "items": "shadowed", "key": "val"}, "o": {},
    "r": [{"n": "x", "v": 2, "t": {"k": 1}}, {"n": "Y", "v": 1}, {"n": "x", "v": 3, "t": {"k": 2}}],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n"},
                 {"role": "assistant", "content": None,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "é": "ü"}}}]}],
    "mixed": [1, "a", None, True, 1.5, [2], {"k": 3}],
}


class Generator(random.Random):
    """Templates of a few statements and small expressions over DATA."""

    FILTERS = (
        "abs", "capitalize", "count", "default('d')", "default('d', true)", "dictsort|list", "e",
        "first", "float", "indent", "indent(2, true)", "int", "int(-1)", "items|list", "join",
        "join(', ')", "last", "length", "list", "lower", "map('upper')|list",
        "map(attribute='n')|list", "map(attribute='v', default=0)|list", "max", "min",
        "reject('none')|list", "rejectattr('t')|list", "replace('a', 'bb')", "replace('l', '', 1)",
        "reverse|list", "round", "round(1)", "select|list", "select('string')|list",
        "selectattr('v', 'gt', 1)|list", "selectattr('t', 'defined')|map(attribute='n')|list",
        "sort", "sort(reverse=true)", "sort(attribute='v')", "string", "sum", "title", "tojson",
        "tojson(indent=2)", "trim", "trim('H ')", "truncate(5)", "unique|list", "upper",
        "wordcount", "batch(2)|list", "slice(2)|list", "groupby('n')", "urlencode", "center(20)",
        "safe", "escape", "format(1, 2)", "d(1)",
    )
    METHODS = (
        "upper()", "lower()", "strip()", "lstrip()", "rstrip()", "strip('Hd')", "split()",
        "split(',')", "split('l', 1)", "rsplit('l', 1)", "splitlines()", "title()", "capitalize()",
        "startswith('H')", "endswith(('d', 'x'))", "replace('l', 'L')", "replace('l', 'L', 1)",
        "find('o')", "rfind('o')", "count('l')", "join(['a', 'b'])", "isdigit()", "isalpha()",
        "isupper()", "islower()", "isspace()", "zfill(8)", "ljust(15)", "rjust(15, '.')",
        "center(16)", "partition(',')", "rpartition('o')", "removeprefix('He')",
        "removesuffix('ld')", "swapcase()", "format(1, a=2)", "items()|list", "keys()|list",
        "values()|list", "get('b')", "get('nope', 5)", "index('o')", "casefold()", "isalnum()",
        "index(1)", "count(1)", "append(1)", "istitle()", "isnumeric()", "isascii()",
    )
    TESTS = (
        "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true",
        "false", "mapping", "sequence", "iterable", "callable", "odd", "even", "divisibleby 2",
        "lower", "upper", "in [1, 'a', none]", "eq 1", "ne 1", "lt 3", "ge(2)", "sameas none",
        "escaped", "in s", "equalto 'a'",
    )
    BINARY = ("+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or",
              "in", "not in")
    TEXTS = ("'a'", '"it\'s"', "'%s|%s'", "'\\n'", "''", "'é日'", "'{} {a}'", "'x' 'y'", "'%d'")

    def atom(self):
        kind = self.randrange(10)
        if kind < 6:
            return self.choice([*DATA, "nope", "loop", "i", "y", "ns"])
        if kind < 8:
            return self.choice(self.TEXTS)
        return self.choice(["0", "1", "2", "-1", "3.0", "0.5", "1e3", "true", "false", "none",
                            "10"])

    def expression(self, depth=2):
        if depth == 0:
            return self.atom()
        sub = lambda: self.expression(depth - 1)  # noqa: E731
        kind = self.randrange(17)
        if kind < 2:
            return self.atom()
        if kind < 4:
            return f"{sub()}|{self.choice(self.FILTERS)}"
        if kind < 6:
            return f"({sub()} {self.choice(self.BINARY)} {sub()})"
        if kind == 6:
            return f"{sub()} {self.choice(self.BINARY)} {sub()}"
        if kind == 7:
            return f"{sub()}.{self.choice(self.METHODS)}"
        if kind == 8:
            return f"{sub()} is {self.choice(['', 'not '])}{self.choice(self.TESTS)}"
        if kind == 9:
            return f"{sub()}[{self.choice(['0', '-1', '1', repr('b'), repr('n'), sub()])}]"
        if kind == 10:
            part = lambda: self.choice(["", "", "0", "1", "-1", "2", "n"])  # noqa: E731
            return f"{sub()}[{part()}:{part()}{self.choice(['', ':' + part(), ':-1'])}]"
        if kind == 11:
            return f"({sub()} if {sub()}{self.choice([' else ' + sub(), ''])})"
        if kind == 12:
            return f"[{', '.join(sub() for _ in range(self.randrange(3)))}]"
        if kind == 13:
            return "{" + ", ".join(f"{self.choice(self.TEXTS)}: {sub()}"
                                   for _ in range(self.randrange(3))) + "}"
        if kind == 14:
            return f"{self.choice(['not ', '-', '+'])}{sub()}"
        if kind == 15:
            return f"({sub()}, {sub()})"
        return f"{sub()}.{self.choice(['b', 'a', 'items', 'n', 'index', 'last', 'length', 'role'])}"

    def text(self, depth):
        if depth == 0:
            return self.choice(["s", "t", "u", "e", "q", *self.TEXTS])
        kind = self.randrange(10)
        one = self.text(depth - 1)
        if kind == 0:
            return self.text(0)
        if kind < 3:
            return f"{one}|" + self.choice(["upper", "lower", "trim", "title", "capitalize", "e",
                                            "replace('l', 'L')", "indent(2)", "string", "safe",
                                            "truncate(6)", "truncate(7, true)", "urlencode",
                                            "reverse", "center(30)", "default('x', true)"])
        if kind < 5:
            return f"{one}." + self.choice([
                "upper()", "strip()", "lower()", "title()", "rstrip('ld')", "replace('o', '0')",
                "swapcase()", "zfill(20)", "removeprefix('He')", "split(',')[-1]", "lstrip()",
                "split()[0]", "partition(' ')[2]", "rjust(9, '*')"])
        if kind == 5:
            return f"({one} {self.choice('~+')} {self.text(depth - 1)})"
        if kind == 6:
            return f"({one} ~ {self.value(depth - 1)})"
        if kind == 7:
            return f"{one}[{self.choice(['1:', ':-2', '::-1', '2:5', '::2', '-3:', '0:0'])}]"
        if kind == 8:
            return self.value(depth - 1) + self.choice(["|string", "|tojson", "|tojson(indent=1)"])
        return f"{self.items(depth - 1)}|join({self.text(0)})"

    def number(self, depth):
        if depth == 0:
            return self.choice(["n", "m", "z", "f", "1", "2", "0.5", "-4", "h", "g", "b"])
        kind = self.randrange(6)
        one = self.number(depth - 1)
        if kind < 3:
            return f"({one} {self.choice('+-*')} {self.number(depth - 1)})"
        if kind == 3:
            return f"({one} {self.choice(['/', '//', '%', '**'])} {self.choice(['2', '3', '1.5'])})"
        if kind == 4:
            return f"{one}|" + self.choice(["abs", "int", "float", "round", "round(1, 'floor')"])
        return f"{self.choice([self.text, self.items])(depth - 1)}|length"

    def items(self, depth):
        if depth == 0:
            return self.choice(["l", "k", "w", "mixed", "[1, 2]", "('a', 'b')", "range(4)"])
        kind = self.randrange(8)
        one = self.items(depth - 1)
        if kind == 0:
            return f"[{self.value(depth - 1)}, {self.value(depth - 1)}]"
        if kind == 1:
            return f"{one}[{self.choice(['1:', ':-1', '::-1', '::2', '5:'])}]"
        if kind == 2:
            return f"({one}|list + {self.items(depth - 1)}|list)"
        if kind == 3:
            return self.text(depth - 1) + self.choice([
                ".split()", ".splitlines()", ".split('l', 1)", "|list", ".rsplit('o', 1)"])
        if kind == 4:
            return "r|" + self.choice(["map(attribute='n')|list", "selectattr('v', 'gt', 1)|list",
                                       "sort(attribute='v,n')", "groupby('n')", "sort('v', true)",
                                       "rejectattr('t')|map(attribute='v')|list", "batch(2)|list",
                                       "map(attribute='t.k', default=0)|list", "unique('n')|list"])
        if kind == 5:
            return self.choice(["d.items()|list", "d|dictsort", "d.keys()|list", "d|items|list",
                                "k|sort", "k|sort(case_sensitive=true)", "k|unique|list"])
        return f"{one}|" + self.choice(["list", "select|list", "reject('string')|list",
                                        "map('string')|list", "map('tojson')|list",
                                        "select('number')|list", "reverse|list", "slice(2)|list"])

    def condition(self, depth):
        if depth == 0:
            return self.choice(["b", "c", "x is none", "nope is defined", "i is defined", "w", "s"])
        kind = self.randrange(7)
        if kind == 0:
            operator = self.choice(["<", ">=", "==", "!="])
            return f"{self.number(depth - 1)} {operator} {self.number(depth - 1)}"
        if kind == 1:
            return f"{self.text(0)} {self.choice(['in', 'not in'])} {self.text(depth - 1)}"
        if kind == 2:
            operator = self.choice(["and", "or"])
            return f"({self.condition(depth - 1)} {operator} {self.condition(depth - 1)})"
        if kind == 3:
            return f"not {self.condition(depth - 1)}"
        if kind == 4:
            test = self.choice(["", "not "]) + self.choice(self.TESTS[:13])
            return f"{self.value(depth - 1)} is {test}"
        if kind == 5:
            return f"{self.choice(['1', self.text(0), 'none'])} in {self.items(depth - 1)}"
        return f"{self.text(depth - 1)}.{self.choice(['startswith', 'endswith'])}({self.text(0)})"

    def value(self, depth):
        """An expression that mostly makes sense."""
        kind = self.randrange(12)
        if kind == 0:
            return self.expression(depth)
        if kind == 1:
            return self.choice(["d", "o", "x", "nope", "d.a[1].k", "messages[-1].tool_calls",
                                "r[0]['t']"])
        if kind == 2:
            value = self.value(max(depth - 1, 0))
            return f"({value} if {self.condition(depth)} else {self.text(depth)})"
        return self.choice([self.text, self.text, self.number, self.items, self.condition])(depth)

    def blank(self):
        return self.choice(["", "", "\n", " ", "\n  ", "  \n", "\n\n", "\t"])

    def tag(self, inside):
        sign = lambda: self.choice(["", "", "", "-", "+"])  # noqa: E731
        return f"{self.blank()}{{%{sign()} {inside} {sign()}%}}{self.blank()}"

    def body(self, depth, n=3):
        return "".join(self.statement(depth) for _ in range(self.randrange(1, n + 1)))

    def statement(self, depth=2):
        kind = self.randrange(17)
        if kind < 2 or depth == 0 and kind > 6:
            return self.choice(["text", "a\nb", " ", "\n", "x "]) + self.blank()
        if kind < 5:
            sign = self.choice(["", "-"])
            return f"{{{{{sign} {self.value(2)} {self.choice(['', '-'])}}}}}{self.blank()}"
        if kind < 7:
            name = self.choice(["y", "i", "s", "n", "y, i", "ns.v"])
            return self.tag(f"set {name} = {self.value(2)}")
        inner = lambda: self.body(depth - 1)  # noqa: E731
        if kind < 9:
            elif_part = self.choice(["", self.tag(f"elif {self.condition(1)}") + inner()])
            else_part = self.choice(["", self.tag("else") + inner()])
            return (self.tag(f"if {self.condition(2)}") + inner() + elif_part + else_part +
                    self.tag("endif"))
        if kind < 13:
            target = self.choice(["i", "i", "y", "i, y"])
            source = self.choice(["l", "k", "r", "messages", "d", "d.items()", "s", "mixed", "w",
                                  "range(3)", "l|select", self.value(1)])
            test = self.choice(["", "", f" if {self.condition(1)}", " if i", " if i is defined"])
            loop = self.choice(["", "{{ loop.index }}", "{{ loop.last }}{{ loop.first }}",
                                "{{ loop.length }}/{{ loop.revindex }}",
                                "{{ loop.previtem }}{{ loop.nextitem }}",
                                "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(i) }}",
                                "{% if i %}{% continue %}{% endif %}",
                                "{% if loop.index > 1 %}{% break %}{% endif %}"])
            else_part = self.choice(["", "", self.tag("else") + inner()])
            return (self.tag(f"for {target} in {source}{test}") + loop + inner() + else_part +
                    self.tag("endfor"))
        if kind == 13:
            name = self.choice(["y", "i", "mac"])
            return (self.tag(f"macro {name}(p, i=1)") + "{{ p }}{{ i }}" +
                    self.choice(["{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", ""]) + inner() +
                    self.tag("endmacro") +
                    self.choice([f"{{{{ {name}({self.value(1)}) }}}}",
                                 f"{{{{ {name}(1, i={self.value(1)}) }}}}",
                                 self.tag(f"call {name}(2)") + inner() + self.tag("endcall")]))
        if kind == 14:
            return self.tag(f"with y = {self.value(1)}") + inner() + self.tag("endwith")
        if kind == 15:
            return (self.tag(f"set y{self.choice(['', '|upper', '|trim'])}") + inner() +
                    self.tag("endset") + "{{ y }}")
        return self.tag("filter upper") + inner() + self.tag("endfilter")

    def template(self):
        start = self.choice(["", "", "{% set ns = namespace(v=1) %}"])
        return start + self.body(2, 5)


def random_expressions(seed, n):
    generator = Generator(seed)
    cases = []
    for i in range(n):
        make = generator.expression if i % 2 else generator.value
        cases.append({"template": f"{{{{ {make(generator.randrange(1, 4))} }}}}", "data": DATA})
    return cases


def random_templates(seed, n):
    generator = Generator(seed)
    return [{"template": generator.template(), "data": DATA} for _ in range(n)]


def blank_control():
    """Every way to put signs and blanks around two tags."""
    cases = []
    blanks = ["", " ", "\n", "\n ", " \n", "a\n \t", "\r\n"]
    tags = [("{%", "if true", "%}"), ("{{", "1", "}}"), ("{#", "c", "#}"), ("{%", "raw", "%}")]
    signs = ["", "-", "+"]
    for begin, inside, end in tags:
        for before in blanks:
            for after in blanks:
                for left in signs:
                    for right in signs:
                        tag = f"{begin}{left} {inside} {right}{end}"
                        close = {"if true": "{% endif %}", "raw": " {{ x {%- endraw %}"}
                        text = f"{before}{tag}{after}z{before}{close.get(inside, '')}{after}"
                        cases.append({"template": text, "data": {}})
    return cases
