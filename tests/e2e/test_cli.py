"""The program's commands, its flags and what it says when they are wrong."""
import json
import os
import signal
import socket
import subprocess

import pytest
import requests

from conftest import BIN, Terminal
from fake_openai import FakeServer


def run(*arguments, input=None, **environment):
    return subprocess.run([str(BIN), *arguments], capture_output=True, text=True, timeout=60,
                          input=input, env={**os.environ, **environment})


def sentence(result):
    assert result.returncode == 2 and result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("pagoda: ")]
    assert len(errors) == 1
    return errors[0]


def test_version_and_help():
    version = run("version").stdout
    assert version.startswith("pagoda 0.") and "portable" in version and "Boost" in version
    text = run("--help").stdout
    for command in ("serve", "chat", "complete", "bench", "inspect", "tokenize", "kv",
                    "version"):
        assert f"\n  {command} " in text
        assert "Examples:" in run(command, "--help").stdout
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
    assert "MODEL is required" in sentence(run("serve"))
    assert "https is not spoken" in sentence(run("chat", "https://example.org"))
    assert "is no address" in sentence(run("bench", "127.0.0.1:8000"))
    assert "--max-model-len" in sentence(run("serve", "demo", "--port", "0", "--max-model-len",
                                             "8193"))
    assert "--kv-cache-memory-bytes" in sentence(
        run("serve", "demo", "--port", "0", "--kv-cache-memory-bytes", "1000"))


def test_configuration_file(tmp_path, start):
    config = tmp_path / "pagoda.yaml"
    config.write_text("model: demo\nport: 1\nmax-num-seqs: 3\nserved-model-name: [a, b]\n"
                      "cors-allow-origins: https://example.org\nlog-format: json\n")
    server = start("--config", str(config))  # brings a --port
    models = requests.get(server.url + "/v1/models",
                          headers={"Origin": "https://example.org"})
    assert [m["id"] for m in models.json()["data"]] == ["a", "b"]
    assert models.headers["Access-Control-Allow-Origin"] == "https://example.org"
    ready = [line for line in map(json.loads, server.log().splitlines())
             if line["msg"] == "ready"]
    assert len(ready) == 1 and ready[0]["at once"].startswith("3 answers")
    config.write_text("model: demo\nprot: 1\n")
    assert f"{config}:2: there is no option prot; is port meant?" in sentence(
        run("serve", "--config", str(config)))
    assert "none.yaml" in sentence(run("serve", "--config", str(tmp_path / "none.yaml")))


def test_start_says_what_fits(start):
    log = start("--kv-cache-memory-bytes", "100MiB").log()
    assert "134.5 M parameters" in log and "22.5 KiB a token" in log
    assert "4544 tokens: 8 users of 512 tokens, 2 of 2048, 1 of 4544" in log
    assert "curl http://127.0.0.1:" in log


def test_files_that_options_name(tmp_path):
    wrong = tmp_path / "wrong.jinja"
    wrong.write_text("{% if %}")
    serve = ("serve", "demo", "--port", "0")
    assert "--chat-template" in sentence(run(*serve, "--chat-template", str(wrong)))
    assert "--chat-template is neither" in sentence(run(*serve, "--chat-template", "/none"))
    assert "--generation-config: /none" in sentence(run(*serve, "--generation-config", "/none"))
    wrong.write_text('{"temperature": "hot"}')
    assert "temperature" in sentence(run(*serve, "--generation-config", str(wrong)))


def test_inspect():
    result = run("inspect", "demo")
    assert result.returncode == 0 and "22.5 KiB a token" in result.stdout
    report = json.loads(run("inspect", "demo", "--json").stdout)
    # 30 layers of hidden size 576, feed-forward 1536, 9 heads and 3 for KV of 64, 49152 tokens.
    parts = report["parameters_by_part"]
    assert parts["embedding"] == 49152 * 576
    assert parts["attention"] == 30 * (2 * 576 * 576 + 2 * 192 * 576)
    assert parts["feed-forward"] == 30 * 3 * 576 * 1536
    assert parts["norms"] == 61 * 576
    assert report["parameters"] == sum(parts.values()) == 134_515_008
    assert report["kv"]["token_bytes"] == 30 * 2 * 3 * 64 * 2
    users = report["kv"]["users"]
    assert users["contexts"] == [1024, 4096, 8192]
    assert users["n_users"][0] == [2**30 // (360 * 1024) // (n // 16) for n in (1024, 4096, 8192)]
    assert "im_start" in report["chat_template"]


def test_bench(server, tmp_path):
    figures = tmp_path / "figures.json"
    result = run("bench", server.url, "--requests", "6", "--concurrency", "3", "--prompt-tokens",
                 "40", "--max-tokens", "8", "--json", str(figures))
    assert result.returncode == 0, result.stderr
    assert "6 ok, 0 failed" in result.stdout and "p99" in result.stdout
    report = json.loads(figures.read_text())
    tokens = report["tokens"]
    assert (tokens["prompt"], tokens["output"]) == (240, 48)
    assert tokens["cached"] < 48  # words in which two prompts begin alike by chance
    assert report["load"]["prompt_tokens_exact"] is True
    assert report["first_token_s"]["count"] == 6
    times = [report[name]["p50"] for name in ("first_token_s", "per_token_s", "request_s")]
    assert all(time > 0 for time in times) and times[0] < times[2]


def test_bench_of_the_chat_route_at_a_rate(server):
    result = run("bench", server.url, "--chat", "--requests", "3", "--request-rate", "20",
                 "--max-tokens", "4", "--prompt-tokens", "10")
    assert result.returncode == 0 and "3 ok, 0 failed" in result.stdout, result.stderr


def test_bench_counts_failures_by_kind(server):
    result = run("bench", server.url, "--requests", "2", "--prompt-tokens", "9000")
    assert "no request succeeded" in result.stderr and result.returncode == 2
    assert "2 status 400: " in result.stdout
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert "no server answers there" in sentence(run("bench", url))
    assert "--json" in sentence(run("bench", server.url, "--json", "/none/x.json"))


def test_bench_prints_what_it_has_after_ctrl_c(server):
    process = subprocess.Popen(
        [str(BIN), "bench", server.url, "--duration", "10min", "--concurrency", "1",
         "--max-tokens", "2", "--prompt-tokens", "4"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()  # the first line of progress: some requests are done
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert " ok, 0 failed" in out and "first token" in out


def test_chat_from_a_pipe(server):
    asked = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
             "temperature": 0, "max_tokens": 8}
    answer = server.post("/v1/chat/completions", asked).json()["choices"][0]["message"]["content"]
    assert len(answer) > 5
    for target in (server.url, "demo"):
        result = run("chat", target, "--temperature", "0", "--max-tokens", "8",
                     input="What is the capital of France?\n")
        assert result.returncode == 0 and result.stderr == "", result.stderr
        assert result.stdout == answer + "\n"
    assert "no-such.gguf" in sentence(run("chat", "/no-such.gguf", input="hi\n"))


@pytest.fixture
def parrot():
    fake = FakeServer()
    yield fake
    fake.shutdown()


def test_chat_keeps_the_conversation(parrot, tmp_path):
    saved = tmp_path / "talk.json"
    result = run("chat", parrot.url, "--system", "Be a bird.", "--seed", "5", "--top-p", "0.5",
                 input=f"one \\\ntwo\n/retry\nthree\n/save {saved}\n/reset\nfour\n/quit\nx\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "one \ntwo \none \ntwo \nthree \nfour \n"
    asked = parrot.requests
    assert asked[0]["model"] == "parrot" and asked[0]["stream_options"] == {"include_usage": True}
    assert asked[0]["top_p"] == 0.5 and "temperature" not in asked[0]
    bird = {"role": "system", "content": "Be a bird."}
    first = {"role": "user", "content": "one \ntwo"}
    answer = {"role": "assistant", "content": "one \ntwo "}
    third = {"role": "user", "content": "three"}
    assert asked[0]["messages"] == asked[1]["messages"] == [bird, first]
    assert [each["seed"] for each in asked] == [5, 6, 5, 5]
    assert asked[2]["messages"] == [bird, first, answer, third]
    assert asked[3]["messages"] == [bird, {"role": "user", "content": "four"}]
    assert json.loads(saved.read_text()) == [bird, first, answer, third,
                                             {"role": "assistant", "content": "three "}]


def test_chat_from_a_pipe_ends_with_the_first_error(parrot):
    result = run("chat", parrot.url, input="one\nfail\nthree\n")
    assert result.returncode == 2 and result.stdout == "one \n"
    assert "400: that is too much" in result.stderr
    assert "no command /savee" in run("chat", parrot.url, input="/savee x\n").stderr


def test_chat_on_a_terminal(parrot):
    chat = Terminal("chat", parrot.url)
    chat.read_until("Chat with parrot")
    chat.read_until("> ")
    chat.type("gr\u00fc\u00df dich\r")
    chat.read_until("gr\u00fc\u00df dich \r\n")  # the answer, after the line that was typed
    chat.read_until("3 tokens, ")
    assert "4 of 7 prompt tokens from the cache" in chat.read_until("\x1b[0m")
    # Ctrl-C stops an answer; the next one is heard.
    chat.read_until("> ")
    chat.type("slow\r")
    chat.read_until("on on ")
    chat.type("\x03")
    chat.read_until("stopped")
    assert parrot.gone.wait(10)
    # At the prompt it drops what was typed.
    chat.read_until("> ")
    chat.type("never sent\x03")
    chat.read_until("Ctrl-D or /quit leaves.")
    chat.read_until("> ")
    chat.type("fail\r")
    chat.read_until("pagoda: the server answered 400: that is too much")
    chat.read_until("> ")
    chat.type("\x1b[A\x1b[A\r")  # two lines up in the history: "slow" again
    chat.read_until("on on ")
    chat.type("\x03")
    chat.read_until("stopped")
    chat.read_until("> ")
    chat.type("/stats\r")
    chat.read_until("3 answers")
    chat.read_until("> ")
    chat.type("\x04")
    assert chat.exit_status() == 0
    last = [each["messages"][-1]["content"] for each in parrot.requests]
    assert last == ["gr\u00fc\u00df dich", "slow", "fail", "slow"]
    # The stopped answer stayed in the conversation, the failed question did not.
    roles = [each["role"] for each in parrot.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]


def test_models_that_are_not_there(tmp_path):
    assert "no-such-file" in sentence(run("serve", "/no-such-file.gguf", "--port", "0"))
    assert "scripts/setup.sh" in sentence(
        run("serve", "demo", "--port", "0", PAGODA_HOME=str(tmp_path)))
    assert "is a folder" in sentence(run("serve", str(tmp_path), "--port", "0"))
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
