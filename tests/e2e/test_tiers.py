"""KV below the device: found again after a restart, never wrong, and open to operators."""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from conftest import BIN, Terminal  # noqa: E402
from kill_loop import KillLoop  # noqa: E402

WORDS = "river stone market garden letter window morning engine paper silver".split()


def prompt(seed, n_words=200):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


def ask(server, text, **fields):
    answer = server.complete(prompt=text, max_tokens=8, **fields)
    return answer["choices"][0]["text"], answer["usage"]["pagoda"]


def ssd_flags(folder, *more):
    return ("--kv-ssd-path", str(folder), "--kv-ssd-size", "1GiB", "--kv-ssd-write", "eager",
            "--kv-cache-memory-bytes", "100MiB", *more)


@pytest.fixture
def cold(server):
    """The answers without any cache of theirs."""
    def answer(text):
        return ask(server, text, cache_salt=str(random.random()))[0]
    return answer


def test_found_again_after_a_restart(start, tmp_path, cold):
    text = prompt(1)
    first = start(*ssd_flags(tmp_path / "kv"))
    answer, where = ask(first, text)
    assert answer == cold(text) and where["computed"] > 100
    assert ask(first, text, cache_salt="mine")[1]["device"] == 0
    first.wait_written()
    first.stop()
    assert all(os.stat(file).st_mode & 0o777 == 0o600 for file in (tmp_path / "kv").iterdir())
    again = start(*ssd_flags(tmp_path / "kv"))
    assert again.wait_metric("pagoda_kv_ssd_scan_done", 1)
    probe = again.post("/v1/kv/probe", {"prompt": text}).json()
    assert probe["tokens"]["ssd"] > 100, probe
    warm, where = ask(again, text)
    assert warm == answer and where["ssd"] > 100 and where["computed"] <= 16
    assert ask(again, text)[1]["device"] > 100
    assert ask(again, text, cache_salt="other")[1]["ssd"] == 0
    assert ask(again, text, cache_salt="mine")[1]["ssd"] > 100
    names = {family.name for family in text_string_to_metric_families(
        requests.get(again.url + "/metrics").text)}
    assert {"pagoda_kv_ssd_written_bytes", "pagoda_kv_restored_blocks"} <= names


def test_killed_at_random_moments(tmp_path):
    report = KillLoop(tmp_path, seed=3, n_requests=12).run(3)
    assert not report["wrong"] and report["answers"] > 10, report


def test_damage_is_computed_again(start, tmp_path, cold):
    text = prompt(2)
    first = start(*ssd_flags(tmp_path / "kv"))
    answer, _ = ask(first, text)
    first.wait_written()
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    for file in (tmp_path / "kv").glob("segment-*"):
        data = bytearray(file.read_bytes())
        for at in range(5000, len(data), 400_000):
            data[at] ^= 0x40
        file.write_bytes(data[:len(data) * 2 // 3])
    again = start(*ssd_flags(tmp_path / "kv", "--kv-restore-policy", "restore"))
    assert again.wait_metric("pagoda_kv_ssd_scan_done", 1)
    assert ask(again, text)[0] == answer == cold(text)


def test_another_identity_finds_nothing(start, tmp_path, cold):
    text = prompt(3)
    first = start(*ssd_flags(tmp_path / "kv"))
    answer, _ = ask(first, text)
    first.wait_written()
    first.stop()
    for flags in (("--block-size", "32"), ("--kernels", "portable")):
        other = start(*ssd_flags(tmp_path / "kv", *flags))
        assert other.wait_metric("pagoda_kv_ssd_scan_done", 1)
        text_of_other, where = ask(other, text)
        assert where["ssd"] == 0 and where["device"] == 0
        if flags[0] == "--block-size":
            assert text_of_other == answer
        other.stop()


def test_the_host_tier_gives_back_what_was_pushed_out(start, cold):
    # Room for a prompt or two on the device, for all of them in the host tier.
    server = start("--kv-cache-memory-bytes", "16MiB", "--kv-host-size", "200MiB",
                   "--kv-restore-policy", "restore")
    texts = [prompt(10 + i) for i in range(5)]
    answers = [ask(server, text)[0] for text in texts]
    for text, answer in zip(texts, answers):
        again, where = ask(server, text)
        assert again == answer and where["host"] + where["device"] > 100
    assert server.metric('pagoda_kv_hit_tokens_total{tier="host"}') > 300
    assert answers[0] == cold(texts[0])


def test_policies(start, tmp_path):
    text = prompt(4)
    first = start(*ssd_flags(tmp_path / "kv"))
    answer, _ = ask(first, text)
    first.wait_written()
    first.stop()
    never = start(*ssd_flags(tmp_path / "kv", "--kv-restore-policy", "recompute"))
    assert never.wait_metric("pagoda_kv_ssd_scan_done", 1)
    again, where = ask(never, text)
    assert again == answer and where["ssd"] == 0
    never.stop()
    slow = start(*ssd_flags(tmp_path / "kv", "--kv-ssd-read-limit", "3MiB"))
    assert slow.wait_metric("pagoda_kv_ssd_scan_done", 1)
    assert ask(slow, text)[0] == answer


def sentence(start, *flags):
    server = start(*flags, ready=False)
    assert server.process.wait(60) == 2
    errors = [line for line in server.log().splitlines() if line.startswith("pagoda: ")]
    assert len(errors) == 1, server.log()
    return errors[0]


def test_folders_that_do_not_do(start, tmp_path):
    start(*ssd_flags(tmp_path / "kv"))
    assert str(tmp_path / "kv") in sentence(start, *ssd_flags(tmp_path / "kv"))
    file = tmp_path / "file"
    file.write_text("x")
    assert str(file) in sentence(start, *ssd_flags(file))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    assert str(tmp_path / "full") in sentence(start, *ssd_flags(tmp_path / "full"))
    assert (tmp_path / "full" / "letter.txt").read_text() == "mine"
    assert "--kv-ssd-size" in sentence(start, "--kv-ssd-path", str(tmp_path / "small"),
                                       "--kv-ssd-size", "100KiB")
    assert "--admin-key" in sentence(start, "--admin-host", "0.0.0.0", "--admin-port", "0")


def test_sessions_and_their_operators(start, tmp_path):
    server = start(*ssd_flags(tmp_path / "kv", "--admin-port", "0", "--admin-key", "secret",
                              "--session-idle-host", "300ms", "--session-idle-ssd", "300ms"))
    port = server.log().split("operators are heard at http://127.0.0.1:")[1].split()[0]
    admin = f"http://127.0.0.1:{port}/v1/kv"
    key = {"Authorization": "Bearer secret"}
    assert requests.get(admin + "/stats").status_code == 401
    text = prompt(5)
    ask(server, text, session_id="a b", retention={"priority": 80, "ttl_s": 60})

    def session(method="GET", action="", expected=200):
        answer = requests.request(method, f"{admin}/sessions/a%20b{action}", headers=key)
        assert answer.status_code == expected, answer.text
        return answer.json()

    for _ in range(200):
        view = session()
        if view["state"] == "ssd" and not view["moving"]:
            break
        requests.get(server.url + "/health")
        signal.sigtimedwait([], 0.05)
    assert view["where"]["ssd"] > 100 and view["where"]["device"] == 0 and view["priority"] == 80
    found = requests.post(server.url + "/v1/kv/probe", json={"prompt": text}).json()
    assert found["tokens"]["ssd"] > 100 and found["restore_s"] > 0
    for _ in range(2):
        session("POST", "/prefetch")
    for _ in range(200):
        if session()["where"]["device"] > 100:
            break
        signal.sigtimedwait([], 0.05)
    assert session("POST", "/pin")["pinned"] and session("POST", "/pin")["pinned"]
    session("POST", "/offload", 409)
    assert not session("POST", "/unpin")["pinned"]
    listed = requests.get(admin + "/sessions", headers=key).json()
    assert [each["id"] for each in listed["sessions"]] == ["a b"] and listed["total"] == 1
    why = requests.post(admin + "/explain", headers=key,
                        json={"prompt": text + " and what else"}).json()
    # Unpinned, it may have begun to move down again.
    assert {why["blocks"][0]["source"], why["blocks"][-1]["source"]} in (
        {"device", "computed"}, {"ssd", "computed"})
    assert why["blocks"][-1]["miss"] == "short"
    assert session("DELETE")["deleted"]
    session("DELETE", expected=404)
    session(expected=404)
    why = requests.post(admin + "/explain", headers=key, json={"prompt": text}).json()
    assert why["blocks"][0]["miss"] == "evicted" and why["blocks"][0]["evicted_for"] == "dropped"
    ask(server, text, cache_salt="a secret")
    salts = admin + "/salts"
    assert requests.delete(salts, params={"salt": "a secret"}).status_code == 401
    refused = requests.delete(salts, headers=key)
    assert refused.status_code == 400 and "?salt=" in refused.json()["error"]["message"]
    for _ in range(200):  # its copy to the SSD may be under way
        erased = requests.delete(salts, headers=key, params={"salt": "a secret"}).json()
        if erased["erased"]:
            break
        signal.sigtimedwait([], 0.05)
    assert requests.delete(salts + "?salt=%ff", headers=key).status_code in (200, 400)
    assert erased == {"salt": "a secret", "erased": True, "in_use": False}
    found = requests.post(server.url + "/v1/kv/probe",
                          json={"prompt": text, "cache_salt": "a secret"}).json()
    assert sum(found["tokens"][tier] for tier in ("device", "host", "ssd")) == 0
    assert requests.post(admin + "/reset", headers=key).json() == {"reset": True}
    assert server.metric('pagoda_kv_blocks{state="cached"}') == 0
    assert requests.post(admin.removesuffix("/kv") + "/drain", headers=key).status_code == 200
    assert server.process.wait(30) == 0


def kv(*arguments):
    return subprocess.run([str(BIN), "kv", *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60)


def kv_sentence(status, *arguments):
    """What the command says on stderr and ends with."""
    result = kv(*arguments)
    errors = [line for line in result.stderr.splitlines() if line.startswith("pagoda: ")]
    assert result.returncode == status and len(errors) == 1, result
    return errors[0]


@pytest.fixture
def written(start, tmp_path):
    """A folder that a server has written and left, with a prompt of nobody and one of a salt."""
    folder = tmp_path / "kv"
    server = start(*ssd_flags(folder))
    ask(server, prompt(31))
    ask(server, prompt(32), cache_salt="mine")
    server.wait_written()
    server.stop()
    return folder


def test_the_folder_can_be_looked_into(written):
    text = kv("inspect", written).stdout
    assert "users' text at rest" in text and "\n    none " in text and "fault" not in text
    assert re.search(r"\n  newest +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\n", text)
    shown = json.loads(kv("inspect", written, "--json").stdout)
    assert shown["records"] > 20 and shown["unfinished_segments"] == 0 and not shown["faults"]
    assert sorted(salt["is_none"] for salt in shown["salts"]) == [False, True]
    assert len(shown["identities"]) == 1
    assert shown["identities"][0]["identity"][:12] in text
    assert sum(salt["data_bytes"] for salt in shown["salts"]) == shown["data_bytes"]
    files = list(written.glob("segment-*"))
    assert shown["segments"] == len(files)
    assert shown["file_bytes"] == sum(file.stat().st_size for file in files)
    assert abs(shown["newest_unix_s"] - time.time()) < 600


def test_the_folder_can_be_checked(written):
    good = kv("verify", written)
    assert good.returncode == 0 and good.stderr == ""
    assert re.search(r"records +\d+ good", good.stdout) and "faults      none" in good.stdout
    n_records = json.loads(kv("verify", written, "--json").stdout)["records"]
    segment = next(written.glob("segment-*"))
    data = bytearray(segment.read_bytes())
    data[100_000] ^= 1
    segment.write_bytes(data)
    assert not json.loads(kv("inspect", written, "--json").stdout)["faults"]
    assert "1 fault;" in kv_sentence(1, "verify", written)
    assert f"\n    {segment.name}, byte " in kv("verify", written).stdout
    report = json.loads(kv("verify", written, "--json").stdout)
    assert report["records"] == n_records - 1 and len(report["faults"]) == 1
    assert "checksum" in report["faults"][0]


def test_the_folder_can_be_emptied(written):
    n_files = len(list(written.glob("segment-*")))
    assert "--yes" in kv_sentence(2, "purge", written)
    for answer, status in (("\r", 130), ("n\r", 130), ("yellow\r", 130), ("y\r", 0)):
        assert len(list(written.glob("segment-*"))) == n_files
        asked = Terminal("kv", "purge", str(written))
        assert f"Remove {n_files} file" in asked.read_until("[y/N] ")
        asked.type(answer)
        if status != 0:
            asked.read_until("Nothing was removed.")
        assert asked.exit_status() == status
    assert not list(written.glob("segment-*"))
    again = kv("purge", written, "--yes")
    assert again.returncode == 0 and again.stdout == f"{written}: 0 files removed\n"
    assert kv("verify", written).returncode == 0


def test_folders_that_kv_refuses(start, tmp_path):
    folder = tmp_path / "kv"
    server = start(*ssd_flags(folder))
    answer, _ = ask(server, prompt(33))
    server.wait_written()
    for arguments in (("inspect",), ("inspect", "--json"), ("verify",), ("purge", "--yes")):
        said = kv_sentence(1, *arguments, folder)
        assert said == f"pagoda: {folder}: a server has this folder open; stop it first"
    assert ask(server, prompt(33))[0] == answer
    assert "there is no such folder" in kv_sentence(2, "inspect", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert "not a folder" in kv_sentence(2, "verify", server.log_path)
    assert "not the folder of an SSD tier" in kv_sentence(2, "purge", tmp_path, "--yes")
    assert not (tmp_path / "lock").exists()
    server.stop()
    format_file = folder / "FORMAT"
    format_file.write_bytes(b"pagoda kv cache, format 999\n".ljust(4096, b"\0"))
    assert "format 999, and this program knows" in kv_sentence(2, "purge", folder, "--yes")
    assert list(folder.glob("segment-*"))
    assert "there is no command kv burn" in kv_sentence(2, "burn", folder)


def test_a_trace_is_written_and_replayed(start, tmp_path):
    file = tmp_path / "trace.jsonl"
    server = start("--trace-out", str(file))
    ask(server, prompt(41))
    ask(server, prompt(41) + " and more")
    ask(server, prompt(42), cache_salt="a secret word", user="somebody")
    server.stop()
    assert os.stat(file).st_mode & 0o777 == 0o600
    text = file.read_text()
    assert len(text.splitlines()) == 4
    assert not any(word in text for word in ("river", "secret", "somebody"))
    run = subprocess.run([str(BIN), "replay", str(file), "--json"], capture_output=True, text=True,
                         check=True)
    report = json.loads(run.stdout)
    assert report["requests"] == 3
    whole = report["rows"][-1]
    assert 100 < whole["lru"]["device_tokens"] == report["hit_tokens"]
    odd = subprocess.run([str(BIN), "replay", __file__], capture_output=True, text=True)
    assert odd.returncode == 2 and f"{__file__}:1" in odd.stderr
