"""The engine's log probabilities against an independent forward pass in NumPy.

The oracle reads the same GGUF file with the `gguf` package, dequantises every matrix and computes
a llama in float32, as its paper and the rotary embedding's describe it. The engine multiplies in
eight bits, so the two differ a little everywhere and in their first choice only where two tokens
are almost equally likely.
"""

import json
import math
import os
import pathlib
import subprocess

import gguf
import numpy as np
import pytest
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN_DIR = pathlib.Path(os.environ.get("PAGODA_BIN_DIR", ROOT / "build/release/bin"))
HOME = pathlib.Path(os.environ.get("PAGODA_HOME", pathlib.Path.home() / ".cache/pagoda"))
MODEL = HOME / "models/SmolLM2-135M-Instruct.Q4_1.gguf"

# The margin, in logits, from which the first choice must agree, and the bounds of its error.
CLEAR_MARGIN = 0.5
MEDIAN_ERROR = 0.03
LARGEST_ERROR = 0.3

TEXTS = {
    "English prose": (
        "The ferry left the harbour an hour late, because the captain would not sail before the "
        "fog had lifted from the breakwater. On the upper deck an old man unfolded a map of the "
        "islands and explained to his granddaughter where the lighthouses stood, which of them "
        "still had keepers, and why the northern one had been painted red and white. She listened "
        "politely, but what she wanted to know was whether there would be seals."
    ),
    "German prose": (
        "Am Abend vor der Abreise saßen sie noch lange in der Küche, tranken Tee und sprachen über "
        "das Haus, das sie verkaufen mussten. Draußen fiel der erste Schnee, und niemand wollte "
        "als Erster aufstehen, um das Licht auszumachen."
    ),
    "Python": (
        "def moving_average(values, width):\n"
        '    """Yields the mean of each window of `width` values."""\n'
        "    if width < 1:\n"
        '        raise ValueError("width must be positive")\n'
        "    total = sum(values[:width])\n"
        "    for i in range(width, len(values) + 1):\n"
        "        yield total / width\n"
        "        if i < len(values):\n"
        "            total += values[i] - values[i - width]\n"
    ),
    "C": (
        "static int compare_words(const void *a, const void *b) {\n"
        "  const struct word *left = a;\n"
        "  const struct word *right = b;\n"
        "  if (left->count != right->count)\n"
        "    return left->count < right->count ? 1 : -1;\n"
        "  return strcmp(left->text, right->text);\n"
        "}\n"
    ),
    "mixed list": (
        "Shopping list, 14 March 2031:\n"
        "1. bread (two loaves)\n"
        "2. crème fraîche – 200 g\n"
        "3. AA batteries ×8, €6.49\n"
        "4. 日本茶\n"
        "5. https://example.org/recipes?id=42\n"
        "6. call +44 20 7946 0018 about the boiler!!\n"
    ),
}


class Llama:
    """A llama in float32, one text at a time and without a cache."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.weights = {}  # dequantised, of the layer at hand
        self.n_layers = self.field("llama.block_count")
        self.n_heads = self.field("llama.attention.head_count")
        self.n_kv_heads = self.field("llama.attention.head_count_kv")
        self.eps = self.field("llama.attention.layer_norm_rms_epsilon")
        self.rope_dim = self.field("llama.rope.dimension_count")
        self.rope_base = self.field("llama.rope.freq_base")
        self.embedding = self.weight("token_embd.weight")
        self.head_dim = self.embedding.shape[1] // self.n_heads

    def field(self, key):
        return self.reader.fields[key].contents()

    def weight(self, name):
        if name not in self.weights:
            tensor = self.tensors[name]
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            self.weights[name] = values.reshape([int(dim) for dim in reversed(tensor.shape)])
        return self.weights[name]

    def norm(self, x, name):
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(self.eps))
        return x / scale * self.weight(name)

    def rotate(self, x, positions):
        """Turns neighbouring pairs of each head: [n, heads, head_dim]."""
        powers = -np.arange(0, self.rope_dim, 2, dtype=np.float64) / self.rope_dim
        angles = positions[:, None] * np.power(float(self.rope_base), powers)[None, :]
        cos = np.cos(angles).astype(np.float32)[:, None, :]
        sin = np.sin(angles).astype(np.float32)[:, None, :]
        even, odd = x[..., 0 : self.rope_dim : 2], x[..., 1 : self.rope_dim : 2]
        turned = x.copy()
        turned[..., 0 : self.rope_dim : 2] = even * cos - odd * sin
        turned[..., 1 : self.rope_dim : 2] = even * sin + odd * cos
        return turned

    def attention(self, x, layer, positions):
        n = len(x)
        q, k, v = (x @ self.weight(f"blk.{layer}.attn_{part}.weight").T for part in "qkv")
        q = self.rotate(q.reshape(n, self.n_heads, self.head_dim), positions)
        k = self.rotate(k.reshape(n, self.n_kv_heads, self.head_dim), positions)
        v = v.reshape(n, self.n_kv_heads, self.head_dim)
        hidden_from = np.triu(np.full((n, n), -np.inf, dtype=np.float32), 1)
        heads = []
        for head in range(self.n_heads):
            kv_head = head * self.n_kv_heads // self.n_heads
            scores = q[:, head] @ k[:, kv_head].T / np.float32(math.sqrt(self.head_dim))
            scores += hidden_from
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            heads.append(weights @ v[:, kv_head])
        return np.concatenate(heads, axis=-1) @ self.weight(f"blk.{layer}.attn_output.weight").T

    def feed_forward(self, x, layer):
        gate = x @ self.weight(f"blk.{layer}.ffn_gate.weight").T
        up = x @ self.weight(f"blk.{layer}.ffn_up.weight").T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weight(f"blk.{layer}.ffn_down.weight").T

    def logprobs(self, texts):
        """For each text (a list of ids) the log probabilities after each position.

        Goes layer by layer over all texts, so that each matrix is dequantised once.
        """
        streams = [self.embedding[ids] for ids in texts]
        positions = [np.arange(len(ids), dtype=np.float64) for ids in texts]
        for layer in range(self.n_layers):
            self.weights = {}
            for x, at in zip(streams, positions):
                x += self.attention(self.norm(x, f"blk.{layer}.attn_norm.weight"), layer, at)
                x += self.feed_forward(self.norm(x, f"blk.{layer}.ffn_norm.weight"), layer)
        output = self.weight("output.weight") if "output.weight" in self.tensors else self.embedding
        for x in streams:
            logits = (self.norm(x, "output_norm.weight") @ output.T).astype(np.float64)
            logits -= logits.max(axis=-1, keepdims=True)
            yield logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def tokenize(llama, texts):
    """Byte-level BPE with single digits, by the `tokenizers` library."""
    tokens = llama.field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in llama.field("tokenizer.ggml.merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return [tokenizer.encode(text).ids for text in texts]


def engine_answers(texts, max_rows):
    tool = BIN_DIR / "logits_tool"
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in texts)
    done = subprocess.run(
        [tool, MODEL, str(max_rows)], input=lines, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def llama():
    assert MODEL.exists(), f"{MODEL} is missing; scripts/setup.sh installs it"
    return Llama(MODEL)


@pytest.fixture(scope="module")
def texts(llama):
    ids = tokenize(llama, list(TEXTS.values()))
    assert sum(len(text) - 1 for text in ids) >= 300
    return ids


def test_log_probabilities(llama, texts, capsys):
    answers = [json.loads(line) for line in engine_answers(texts, 48).splitlines()]
    assert [len(answer) for answer in answers] == [len(ids) - 1 for ids in texts]
    top_errors, next_errors, wrong, n_clear, n_same = [], [], [], 0, 0
    for name, ids, answer, expected in zip(TEXTS, texts, answers, llama.logprobs(texts)):
        for i, row in enumerate(answer):
            second, first = np.argsort(expected[i])[-2:]
            margin = expected[i][first] - expected[i][second]
            n_clear += margin > CLEAR_MARGIN
            n_same += row["top"] == first
            if row["top"] != first and margin > CLEAR_MARGIN:
                wrong.append((name, i, int(first), row["top"], float(margin)))
            top_errors.append(abs(row["top_logprob"] - expected[i][row["top"]]))
            next_errors.append(abs(row["next_logprob"] - expected[i][ids[i + 1]]))
    n = len(top_errors)
    with capsys.disabled():
        print(
            f"\n{n} positions: first choice the same in {n_same}, margin over {CLEAR_MARGIN} in "
            f"{n_clear} and wrong in {len(wrong)} of those; error of its log probability: median "
            f"{np.median(top_errors):.4f}, largest {np.max(top_errors):.4f}; of the next token's: "
            f"median {np.median(next_errors):.4f}, largest {np.max(next_errors):.4f}"
        )
    assert not wrong
    assert np.median(top_errors) <= MEDIAN_ERROR
    assert np.max(top_errors) <= LARGEST_ERROR


def test_chunks_change_nothing(texts):
    """The same bytes come out whatever the size of a prefill chunk."""
    whole = engine_answers(texts[:3], 512)
    for max_rows in (1, 7, 64):
        assert engine_answers(texts[:3], max_rows) == whole
