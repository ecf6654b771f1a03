"""The program's commands, its flags and what it says when they are wrong."""
import os
import socket
import subprocess

import requests

from conftest import BIN


def run(*arguments, **environment):
    return subprocess.run([str(BIN), *arguments], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **environment})


def sentence(result):
    assert result.returncode == 2 and result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("pagoda: ")]
    assert len(errors) == 1
    return errors[0]


def test_version_and_help():
    assert run("version").stdout.startswith("pagoda 0.")
    text = run("--help").stdout
    for command in ("serve", "complete", "tokenize", "version"):
        assert command in text
    serve = run("serve", "--help")
    assert serve.returncode == 0
    for word in ("--port", "KV cache:", "Listener:", "--kv-cache-memory-bytes", "[8000]"):
        assert word in serve.stdout


def test_tokenize():
    assert run("tokenize", "demo", "Hello world").stdout == "19556 905\n"


def test_complete():
    result = run("complete", "demo", "The capital of France is", "--max-tokens", "5")
    assert result.returncode == 0 and "Paris" in result.stdout


def test_wrong_flags():
    assert "is --port meant?" in sentence(run("serve", "demo", "--prot", "1"))
    assert "--port takes a whole number" in sentence(run("serve", "demo", "--port", "x"))
    assert "PAGODA_THREADS" in sentence(run("serve", "demo", PAGODA_THREADS="none"))
    assert "is serve meant?" in sentence(run("srve"))
    assert "--max-model-len" in sentence(run("serve", "demo", "--port", "0", "--max-model-len",
                                             "8193"))
    assert "--kv-cache-memory-bytes" in sentence(
        run("serve", "demo", "--port", "0", "--kv-cache-memory-bytes", "1000"))


def test_models_that_are_not_there(tmp_path):
    assert "no-such-file" in sentence(run("serve", "/no-such-file.gguf", "--port", "0"))
    assert "scripts/setup.sh" in sentence(
        run("serve", "demo", "--port", "0", PAGODA_HOME=str(tmp_path)))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    assert "broken.gguf" in sentence(run("serve", str(broken), "--port", "0"))


def test_busy_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port}" in sentence(run("serve", "demo", "--port", port))


def test_a_small_pool_shortens_the_context(start):
    server = start("--kv-cache-memory-bytes", "20MiB", "--served-model-name", "a",
                   "--served-model-name", "b")
    models = requests.get(server.url + "/v1/models").json()["data"]
    assert [m["id"] for m in models] == ["a", "b"]
    assert models[0]["root"] == "demo"
    length = models[0]["max_model_len"]
    assert length == 20 * 2**20 // (360 * 1024) * 16
    assert "lowered from 8192" in server.log()
    assert "lowered from 8192" in models[0]["context_note"]
    assert server.complete(model="b", prompt="x", max_tokens=length - 1,
                           logit_bias={"2": 100})["choices"][0]["finish_reason"] == "stop"
    answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": length})
    assert answer.json()["error"]["code"] == "context_length_exceeded"
