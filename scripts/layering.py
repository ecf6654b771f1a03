#!/usr/bin/env python3
"""Checks the shape of the tree: who includes whom, what CMake links, sizes, things not used here.

    scripts/layering.py               checks this tree; prints one line a finding
    scripts/layering.py --self-test   plants each kind of fault in a small tree and expects it found
"""
import argparse
import pathlib
import re
import sys
import tempfile

# What each part may include, itself aside. `server` is main, the configuration and what wires the
# parts together; tests may include anything.
BELOW = {
    "base": set(),
    "kernels": {"base"},
    "model": {"base", "kernels"},
    "cache": {"base", "kernels"},
    "server/engine": {"base", "kernels", "model", "cache"},
    "server/http": {"base", "server/engine"},
    "server/client": {"base"},
    "server/api": {"base", "kernels", "model", "cache", "server/engine", "server/http"},
    "server/rpc": {"base", "kernels", "model", "cache", "server/engine", "server/api"},
}
BELOW["server"] = set(BELOW)
TOP_FOLDERS = ("base", "kernels", "model", "cache", "server")

MAX_FILE_LINES = 700
MAX_README_LINES = 80
MAX_COLUMNS = 100

# (what it is called, pattern over code without comments and strings, what to use)
BANNED = [
    ("std::regex", r"\bstd::w?regex\b|#include <regex>", "PCRE2"),
    ("absl::Mutex", r"\babsl::(Mutex|MutexLock|Notification|CondVar)\b|absl/synchronization/",
     "std::mutex, which the thread sanitizer sees"),
    ("iostream", r"#include <(iostream|sstream)>|\bstd::(cout|cerr)\b", "fmt and spdlog"),
    ("dynamic_cast", r"\bdynamic_cast\b", "a virtual function or an enum"),
    ("delete", r"(?<![=\w])\s\bdelete\b(\[\])?\s+[\w:(*]", "std::unique_ptr"),
    ("detach", r"\.detach\(\)", "a thread that is joined"),
    ("using namespace", r"^\s*using namespace (?!\w+(::\w+)*::literals)", "names in full"),
]
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
CUDA_HEADER = re.compile(r'#include [<"](cuda[\w/]*|cublas\w*|cooperative_groups)[\w./]*[>"]')
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def part_of(path):
    """The part of BELOW a path from the top of the tree belongs to, or None."""
    pieces = pathlib.PurePosixPath(path).parts
    for length in (2, 1):
        name = "/".join(pieces[:length])
        if name in BELOW and len(pieces) > length:
            return name
    return None


def strip_comments(text, strings=True):
    """C++ without comments and, if asked, without what stands in strings; lines keep their number."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''

    def replace(match):
        found = match.group(0)
        if found[0] != "/" and not strings:
            return found
        return "\n" * found.count("\n") if found[0] == "/" else '""'

    return re.sub(pattern, replace, text, flags=re.DOTALL)


def strip_for_code(text):
    # The name in an #include is a string to the pattern, yet belongs to the code.
    lines = strip_comments(text, strings=False).split("\n")
    return "\n".join(
        line if line.lstrip().startswith("#include") else strip_comments(line) for line in lines)


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.findings = []
        self.includes = {}  # path -> paths of this tree that it includes

    def report(self, path, line, text):
        where = f"{path}:{line}" if line else str(path)
        self.findings.append(f"{where}: {text}")

    def files(self, *suffixes, folders=TOP_FOLDERS + ("tests", "scripts")):
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts:
                    yield path.relative_to(self.root).as_posix(), path.read_text("utf-8")

    def check(self):
        for path, text in self.files(".h", ".cc", ".cu", ".cuh"):
            self.check_includes(path, text)
            self.check_code(path, text)
        for path, text in self.files(".h", ".cc", ".cu", ".cuh", ".py", ".sh"):
            self.check_size(path, text)
        self.check_cycles()
        self.check_cmake()
        self.check_readmes()
        return self.findings

    def check_includes(self, path, text):
        part = part_of(path)
        self.includes[path] = []
        for match in INCLUDE.finditer(text):
            target = match.group(1)
            line = text.count("\n", 0, match.start(1)) + 1
            if not (self.root / target).is_file():
                if target.split("/")[0] in TOP_FOLDERS:
                    self.report(path, line, f"includes {target}, which isn't in the tree")
                continue
            self.includes[path].append(target)
            other = part_of(target)
            if part is None:
                continue
            if other is None:
                self.report(path, line, f"{part} must not include {target}")
            elif other != part and other not in BELOW[part]:
                self.report(path, line, f"{part} must not include {other} ({target})")
        if not path.startswith(("kernels/cuda/", "tests/cuemu/")):
            for match in CUDA_HEADER.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                self.report(path, line, f"{match.group(0)} belongs in kernels/cuda and tests/cuemu alone")

    def check_code(self, path, text):
        is_test = path.startswith("tests/")
        for number, line in enumerate(strip_for_code(text).split("\n"), 1):
            for name, pattern, instead in BANNED:
                if not (is_test and name in ("iostream", "using namespace")):
                    if re.search(pattern, line):
                        self.report(path, number, f"{name} is not used here; take {instead}")
        # An .inl.h is included once for each kind of processor, on purpose.
        if path.endswith(".h") and not path.endswith(".inl.h") and "#pragma once" not in text:
            self.report(path, 0, "a header needs #pragma once")

    def check_size(self, path, text):
        lines = text.split("\n")
        if len(lines) - 1 > MAX_FILE_LINES:
            self.report(path, 0, f"{len(lines) - 1} lines; a file has at most {MAX_FILE_LINES}")
        if path == "scripts/layering.py":
            return  # It spells the words it looks for.
        is_script = path.endswith((".py", ".sh"))  # In C++ clang-format sees to the columns.
        for number, line in enumerate(lines, 1):
            if is_script and len(line) > MAX_COLUMNS:
                self.report(path, number, f"{len(line)} columns; a line has at most {MAX_COLUMNS}")
            if UNFINISHED.search(line):
                self.report(path, number, "a note of unfinished work; finish it or leave it out")

    def check_cycles(self):
        """Headers that include each other in a ring."""
        state = {}

        def visit(path, trail):
            state[path] = "open"
            for target in self.includes.get(path, []):
                if state.get(target) == "open":
                    ring = trail[trail.index(target):] + [target]
                    self.report(path, 0, "headers include each other: " + " -> ".join(ring))
                elif target not in state:
                    visit(target, trail + [target])
            state[path] = "done"

        for path in self.includes:
            if path not in state:
                visit(path, [path])

    def check_cmake(self):
        """What a library links must be allowed, and must cover what its files include."""
        libraries = self.cmake_libraries()
        for name, library in libraries.items():
            own = library["parts"]
            for dep in library["deps"]:
                if dep not in libraries:
                    self.report(library["file"], 0, f"pagoda_{name} links pagoda_{dep}, "
                                "which no pagoda_library makes")
                    continue
                for part in own:
                    for other in libraries[dep]["parts"] - own - BELOW[part]:
                        self.report(library["file"], 0,
                                    f"pagoda_{name} ({part}) must not link pagoda_{dep} ({other})")
            reached = self.reached_parts(libraries, name)
            for path in self.includes:
                if part_of(path) not in own or path.endswith((".cu", ".cuh")):
                    continue
                if path.endswith(".cc") and path not in library["sources"]:
                    continue
                for target in self.includes[path]:
                    other = part_of(target)
                    if other and other in BELOW and other not in reached:
                        self.report(path, 0, f"includes {target}, but pagoda_{name} does not link "
                                    f"the library of {other}")

    def cmake_libraries(self):
        libraries = {}
        for file in sorted(self.root.rglob("CMakeLists.txt")):
            path = file.relative_to(self.root)
            if path.parts[0] not in TOP_FOLDERS:
                continue
            text = re.sub(r"#[^\n]*", "", file.read_text("utf-8"))
            for match in re.finditer(r"\bpagoda_library\(([^)]*)\)", text):
                fields, key = {"NAME": [], "SRCS": [], "DEPS": []}, None
                for word in match.group(1).split():
                    if word in fields:
                        key = word
                    elif key:
                        fields[key].append(word)
                folder = path.parent
                sources = {(folder / source).as_posix() for source in fields["SRCS"]}
                name = fields["NAME"][0]
                libraries[name] = {
                    "file": path.as_posix(),
                    "sources": sources,
                    "parts": {part_of(s) for s in sources} - {None},
                    "deps": [d[len("pagoda_"):] for d in fields["DEPS"]
                             if d.startswith("pagoda_")],
                }
        return libraries

    def reached_parts(self, libraries, name):
        reached, waiting = set(), [name]
        seen = set()
        while waiting:
            current = waiting.pop()
            if current in seen or current not in libraries:
                continue
            seen.add(current)
            reached |= libraries[current]["parts"]
            waiting += libraries[current]["deps"]
        return reached

    def check_readmes(self):
        for folder in TOP_FOLDERS + ("configs", "tests", "scripts"):
            if not any((self.root / folder).glob("*")):
                continue
            readme = self.root / folder / "README.md"
            if not readme.is_file():
                self.report(folder, 0, "a folder has a README.md")
            elif readme.read_text("utf-8").count("\n") > MAX_README_LINES:
                self.report(f"{folder}/README.md", 0, f"more than {MAX_README_LINES} lines")


# A small tree without a fault.
CLEAN = {
    "base/a.h": "#pragma once\n// No std::regex and no dynamic_cast, says a comment.\n",
    "base/a.cc": '#include "base/a.h"\nstruct A { A(const A&) = delete; };\n'
                 'const char* kText = "std::cout << dynamic_cast";\n',
    "base/CMakeLists.txt": "pagoda_library(NAME base SRCS a.cc DEPS fmt::fmt)\n",
    "kernels/k.h": '#pragma once\n#include "base/a.h"\n',
    "kernels/k.cc": '#include "kernels/k.h"\n',
    "kernels/cuda/device.cu": "#include <cuda_runtime.h>\n",
    "kernels/CMakeLists.txt": "pagoda_library(NAME kernels SRCS k.cc DEPS pagoda_base)\n",
    "model/m.h": '#pragma once\n#include "kernels/k.h"\n',
    "model/m.cc": '#include "model/m.h"\n',
    "model/CMakeLists.txt": "pagoda_library(NAME model SRCS m.cc DEPS pagoda_kernels)\n",
    "cache/c.h": '#pragma once\n#include "kernels/k.h"\n',
    "cache/c.cc": '#include "cache/c.h"\n',
    "cache/CMakeLists.txt": "pagoda_library(NAME cache SRCS c.cc DEPS pagoda_kernels)\n",
    "server/engine/e.h": '#pragma once\n#include "model/m.h"\n#include "cache/c.h"\n',
    "server/engine/e.cc": '#include "server/engine/e.h"\n',
    "server/http/h.h": '#pragma once\n#include "server/engine/e.h"\n',
    "server/http/h.cc": '#include "server/http/h.h"\n',
    "server/CMakeLists.txt":
        "pagoda_library(NAME engine SRCS engine/e.cc DEPS pagoda_model pagoda_cache)\n"
        "pagoda_library(\n  NAME http\n  SRCS http/h.cc\n  DEPS pagoda_engine)\n",
    "tests/t.cc": '#include <iostream>\n#include "server/http/h.h"\n#include "base/a.h"\n',
    **{f"{folder}/README.md": "# One page\n" for folder in TOP_FOLDERS + ("tests",)},
}

# (files that are added or replaced, words that one finding must hold)
FAULTS = [
    ({"base/b.cc": '#include "kernels/k.h"\n'}, "base must not include kernels"),
    ({"kernels/x.cc": '#include "model/m.h"\n'}, "kernels must not include model"),
    ({"model/x.cc": '#include "cache/c.h"\n'}, "model must not include cache"),
    ({"cache/x.cc": '#include "model/m.h"\n'}, "cache must not include model"),
    ({"cache/x.cc": '#include "server/engine/e.h"\n'}, "cache must not include server/engine"),
    ({"server/engine/x.cc": '#include "server/http/h.h"\n'},
     "server/engine must not include server/http"),
    ({"server/x.h": "#pragma once\n", "server/engine/x.cc": '#include "server/x.h"\n'},
     "server/engine must not include server "),
    ({"server/api/a.h": "#pragma once\n", "server/http/x.cc": '#include "server/api/a.h"\n'},
     "server/http must not include server/api"),
    ({"tests/t.h": "#pragma once\n", "base/b.cc": '#include "tests/t.h"\n'},
     "base must not include tests/t.h"),
    ({"base/b.cc": '#include "base/gone.h"\n'}, "isn't in the tree"),
    ({"model/x.cc": "#include <cuda_runtime.h>\n"}, "kernels/cuda and tests/cuemu alone"),
    ({"base/p.h": '#pragma once\n#include "base/q.h"\n',
      "base/q.h": '#pragma once\n#include "base/p.h"\n'}, "include each other"),
    ({"model/CMakeLists.txt":
      "pagoda_library(NAME model SRCS m.cc DEPS pagoda_kernels pagoda_cache)\n"},
     "pagoda_model (model) must not link pagoda_cache"),
    ({"model/CMakeLists.txt": "pagoda_library(NAME model SRCS m.cc DEPS fmt::fmt)\n"},
     "pagoda_model does not link the library of kernels"),
    ({"cache/CMakeLists.txt": "pagoda_library(NAME cache SRCS c.cc DEPS pagoda_kernel)\n"},
     "no pagoda_library makes"),
    ({"base/b.cc": "#include <regex>\n"}, "std::regex is not used"),
    ({"base/b.cc": '#include "absl/synchronization/mutex.h"\n'}, "absl::Mutex is not used"),
    ({"base/b.cc": "#include <iostream>\n"}, "iostream is not used"),
    ({"base/b.cc": "B* b = dynamic_cast<B*>(a);\n"}, "dynamic_cast is not used"),
    ({"base/b.cc": "void f(int* p) {\n  delete p;\n}\n"}, "delete is not used"),
    ({"base/b.cc": "std::thread([] {}).detach();\n"}, "detach is not used"),
    ({"base/b.cc": "using namespace std;\n"}, "using namespace is not used"),
    ({"base/b.cc": "// TODO: later\n"}, "unfinished work"),
    ({"tests/t.py": "# FIXME\n"}, "unfinished work"),
    ({"base/b.h": "// Nothing.\n"}, "#pragma once"),
    ({"base/b.cc": "\n" * (MAX_FILE_LINES + 1)}, f"{MAX_FILE_LINES + 1} lines"),
    ({"tests/t.py": "# " + "x" * MAX_COLUMNS + "\n"}, "columns"),
    ({"configs/x.yaml": "a: 1\n"}, "has a README.md"),
    ({"base/README.md": "line\n" * (MAX_README_LINES + 1)}, "more than"),
]


def findings_in(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return Tree(folder).check()


def self_test():
    wrong = [f"in the clean tree: {finding}" for finding in findings_in(CLEAN)]
    for files, words in FAULTS:
        found = findings_in({**CLEAN, **files})
        if not any(words in finding for finding in found):
            wrong.append(f"not found: '{words}' by {files}; found {found}")
        # A new .cc is in no library, so one fault may be seen by two checks, but by no more.
        if len(found) > 2:
            wrong.append(f"one fault, {len(found)} findings: {found}")
    for line in wrong:
        print(line)
    print(f"self-test: {len(FAULTS)} faults planted, {len(wrong)} surprises")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    findings = Tree(pathlib.Path(__file__).resolve().parent.parent).check()
    for finding in findings:
        print(finding)
    if findings:
        print(f"layering: {len(findings)} findings; each line says what to mend")
        return 1
    print("layering: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
