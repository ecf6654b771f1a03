"""The reference for Pagoda's tokenizer: Hugging Face `tokenizers` objects made from a GGUF file's
vocabulary, a runner for `tokenize_tool`, and seeded generators of text that tokenizers get wrong.
"""

import os
import random
import struct
import subprocess
import unicodedata

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

FAMILIES = ("gpt-2", "smollm", "llama-bpe", "qwen2")

CONTROL, USER_DEFINED = 3, 4  # token types of GGUF

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL


class Vocabulary:
    """What a GGUF file says of its tokenizer."""

    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        self.path = path
        self.tokens = fields["tokenizer.ggml.tokens"].contents()
        self.types = fields["tokenizer.ggml.token_type"].contents()
        self.merges = fields["tokenizer.ggml.merges"].contents()

    def of_type(self, kind):
        return [token for token, of in zip(self.tokens, self.types) if of == kind]


def reference(vocabulary, family, parse_special):
    """The tokenizer that a tokenizer.json of that family describes, with this vocabulary."""
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(vocabulary.tokens)},
            merges=[tuple(merge.split(" ")) for merge in vocabulary.merges],
            ignore_merges=family == "llama-bpe",
        )
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    chains = {
        "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
        "smollm": [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ],
        "llama-bpe": [pre_tokenizers.Split(Regex(_LLAMA3), "isolated"), byte_level],
        "qwen2": [pre_tokenizers.Split(Regex(_QWEN2), "isolated"), byte_level],
    }
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(chains[family])
    if family == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    # Not encode_special_tokens: there a control token in the text, though it becomes text, hides
    # the added tokens inside it.
    if parse_special:
        tokenizer.add_special_tokens(
            [AddedToken(t, special=True, normalized=False) for t in vocabulary.of_type(CONTROL)]
        )
    tokenizer.add_tokens(
        [AddedToken(t, special=False, normalized=False) for t in vocabulary.of_type(USER_DEFINED)]
    )
    return tokenizer


def encode_reference(tokenizer, texts):
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def run_tool(path, strings, family=None, parse_special=False, parts=False):
    """The ids and the decoded bytes that Pagoda makes of each of `strings` (bytes)."""
    tool = os.path.join(os.environ.get("PAGODA_BIN_DIR", "build/release/bin"), "tokenize_tool")
    command = [tool, path, "--decode"]
    command += ["--pre", family] if family else []
    command += ["--parse-special"] if parse_special else []
    command += ["--parts"] if parts else []
    stdin = b"".join(struct.pack("<I", len(s)) + s for s in strings)
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    ids, texts, at, out = [], [], 0, done.stdout
    for _ in strings:
        (n,) = struct.unpack_from("<I", out, at)
        ids.append(list(struct.unpack_from(f"<{n}i", out, at + 4)))
        at += 4 + 4 * n
        (n,) = struct.unpack_from("<I", out, at)
        texts.append(out[at + 4 : at + 4 + n])
        at += 4 + n
    assert at == len(out)
    return ids, texts


def write_pair_vocabulary(path, control, user_defined):
    """A vocabulary in which almost any two neighbouring bytes merge, so that a border which the
    pre-tokenizer puts elsewhere changes the ids whatever the text is."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet, extra = [], 0x100
    for byte in range(256):
        if byte in printable:
            alphabet.append(chr(byte))
        else:
            alphabet.append(chr(extra))
            extra += 1
    pairs = [(a, b) for a in alphabet for b in alphabet]
    random.Random(7).shuffle(pairs)
    tokens = alphabet + [a + b for a, b in pairs]
    types = [1] * len(tokens) + [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + control + user_defined)
    writer.add_token_types(types)
    writer.add_token_merges([f"{a} {b}" for a, b in pairs])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


# Text.

SPACES = [chr(c) for c in (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
                           0x2028, 0x2029, 0x202F, 0x205F, 0x3000)]
# Characters that some engine or other takes for white space, and the separators of ASCII.
NEARLY_SPACES = [chr(c) for c in (0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF,
                                  *range(0x1C, 0x20), 0, 7, 8, 0x7F)]
SCRIPTS = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F),
           (0x590, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF), (0xE00, 0xE5B),
           (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF),
           (0x2000, 0x206F), (0x2100, 0x218B), (0x2190, 0x22FF), (0x3041, 0x30FF),
           (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFB4F), (0xFF00, 0xFFEF),
           (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x1F100, 0x1F1FF), (0x20000, 0x2A6DF)]
MARKS = [c for c in range(0x300, 0x1E8D7) if unicodedata.category(chr(c)) in ("Mn", "Mc", "Me")]
MARKS += [0x1DF6, 0x11A34, 0x8D4, 0x16FF0, 0x897, 0x10D69, 0x113CE]  # of several Unicode versions
NUMBERS = [c for c in range(0x110000) if unicodedata.category(chr(c)) in ("Nd", "Nl", "No")]
NUMBERS += [0x11DE0, 0x16FF4, 0x10D40, 0x1E5F1, 0x1CCF0]
EMOJI = [*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00), *range(0x2600, 0x27C0)]
WORDS = ("the of and to in is it you that he was for on are with as I his they be at one have this "
         "from or had by hot word but what some we can out other were all there when up use your "
         "how said an each she which do their time if will way about many then them write would "
         "like so these her long make thing see him two has look more day could go come did number "
         "sound no most people my over know water than call first who may down side been now find "
         "Müller naïve café straße Ærøskøbing Привет мир 你好 世界 こんにちは 안녕하세요 שלום مرحبا "
         "สวัสดี नमस्ते don't we'll I'm they've YOU'RE it's").split()
CODE = ("def return if else for while import from class self None True int main void std:: -> => "
        "( ) [ ] { } ; : , . = == != <= >= + - * / % & | ^ ~ << >> && || += -= ++ -- // /* */ # "
        "<html> </div> &amp; \"str\" 'c' f\"{x}\" \\n \\t 0x1F 3.14e-10 1_000 i j x_1 fooBar "
        "snake_case CamelCase CONST_VALUE @decorator $var {{ }} ``` <!-- --> ?. ?? ... ::").split()
CONTRACTIONS = ("s t re ve m ll d l r v S T RE Ve M LL lL D \u017f \u212a rE \ufb06 \u1e9e st "
                "sé é 1").split() + [" s"]


def _char(rng, ranges):
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))


def _any_char(rng):
    while True:
        code = rng.choice((rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x20000),
                           rng.randrange(0x110000)))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def _random_unicode(rng):
    return "".join(_any_char(rng) for _ in range(rng.randint(1, 24)))


def _mixed_scripts(rng):
    out = []
    for _ in range(rng.randint(1, 6)):
        script = rng.choice(SCRIPTS)
        out += [_char(rng, [script]) for _ in range(rng.randint(1, 6))]
        out.append(rng.choice(("", " ", " ", "-", "'", "\n")))
    return "".join(out)


def _prose(rng):
    out = []
    for _ in range(rng.randint(1, 14)):
        word = rng.choice(WORDS)
        out.append(rng.choice((word, word, word.capitalize(), word.upper())))
        out.append(rng.choice((" ", " ", " ", " ", ", ", ". ", "\n", "  ", " — ", "! ", "-", "")))
    return "".join(out)


def _code(rng):
    out = []
    for _ in range(rng.randint(1, 12)):
        out.append(rng.choice(CODE))
        out.append(rng.choice(("", "", " ", " ", "\n", "\n    ", "\n\t\t", "\r\n", ";\n\n")))
    return "".join(out)


def _emoji(rng):
    out = []
    for _ in range(rng.randint(1, 5)):
        out.append(chr(rng.choice(EMOJI)))
        out.append(rng.choice(("", "", "\ufe0f", chr(rng.randint(0x1F3FB, 0x1F3FF)))))
        out.append(rng.choice(("", "\u200d", "\u200d", " ")))
    flag = chr(rng.randint(0x1F1E6, 0x1F1FF)) + chr(rng.randint(0x1F1E6, 0x1F1FF))
    return "".join(out) + rng.choice(("", flag, "1\ufe0f\u20e3", " ok", "\n"))


def _marks(rng):
    out = []
    for _ in range(rng.randint(1, 6)):
        out.append(rng.choice(("a", "E", "o", "\u1100", "\u1161", "\uac00", "\u11a8", "\u0915",
                               "\u304b", " ", "1", ".", "\u212b", "\u00e9", "\u1e69",
                               "\U00011131", "\u0b47")))
        out += [chr(rng.choice(MARKS[:120] if rng.random() < 0.6 else MARKS))
                for _ in range(rng.randint(0, 4))]
    return "".join(out)


def _white_space(rng):
    out = []
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice((SPACES, SPACES, NEARLY_SPACES, [" "], ["\n"], ["\t"], ["\r", "\n"],
                           [" ", "\n"]))
        out += [rng.choice(kind) for _ in range(rng.randint(1, 6))]
        out.append(rng.choice(("", "a", "Word", "1", "12", ".", "'s", "!\n", "é", "中", "\u0301")))
    return "".join(out)


def _digits(rng):
    out = []
    for _ in range(rng.randint(1, 5)):
        ascii_only = rng.random() < 0.6
        out += [rng.choice("0123456789") if ascii_only else chr(rng.choice(NUMBERS))
                for _ in range(rng.randint(1, 8))]
        out.append(rng.choice(("", " ", "  ", ".", ",", "e-", "x", " x", "\n", "\t ", "'s", "%",
                               "²")))
    return "".join(out)


def _contractions(rng):
    out = []
    for _ in range(rng.randint(1, 5)):
        out.append(rng.choice(("I", "don", "X", "", " ", "1", "it", "é", "\n", "''")))
        out.append(rng.choice(("'", "'", "'", "\u2019", "`")) + rng.choice(CONTRACTIONS))
        out.append(rng.choice(("", " ", "a", "s", "'")))
    return "".join(out)


def _long_word(rng):
    alphabet = rng.choice(("a", "ab", "abcdefghijklmnopqrstuvwxyz", "ACGT", "0", "0123456789", "=",
                           "-=#", " ", "\n", "\r\n ", "äöü", "中文字", "\u0301", "!?", "\U0001F600"))
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(33, 600)))


def _added(rng, added):
    out = []
    for _ in range(rng.randint(1, 4)):
        token = rng.choice(added)
        out.append(rng.choice((_prose, _white_space, _code))(rng)[: rng.randint(0, 9)])
        out.append(rng.choice((token, token, token, token[:-1], token[1:], token * 2,
                               token + token[1:])))
    return "".join(out) + rng.choice(("", " ", "\n", "x"))


def generate(seed, n, added):
    """`n` different strings, every kind of text above in them, each token of `added` first."""
    rng = random.Random(seed)
    kinds = [(_random_unicode, 14), (_mixed_scripts, 10), (_prose, 12), (_code, 12), (_emoji, 8),
             (_marks, 12), (_white_space, 14), (_digits, 10), (_contractions, 8), (_long_word, 1)]
    makers = [kind for kind, weight in kinds for _ in range(weight)]
    strings = dict.fromkeys(form.replace("@", t) for t in added
                            for form in ("@", "a@b", " @ ", "@\n", "@@", "1@2"))
    strings[""] = None
    while len(strings) < n:
        text = _added(rng, added) if rng.random() < 0.1 else rng.choice(makers)(rng)
        strings[text] = None
    return list(strings)


def every_code_point(step=16):
    """Every code point of the planes in use between letters, digits, blanks and others, `step` of
    them in a string; of the planes without characters or for private use, one in 61."""
    in_use = [*range(0xD800), *range(0xE000, 0x33480), *range(0xE0000, 0xE1000)]
    codes = sorted({*in_use, *range(0x33480, 0x110000, 61)})
    for i in range(0, len(codes), step):
        yield "".join("a@b @1@ \n!@!!@?".replace("@", chr(c)) for c in codes[i : i + step])


def first_difference(texts, got, want):
    for text, a, b in zip(texts, got, want):
        if a != b:
            return f"{text!r}: pagoda {a}, reference {b}"
    return None
