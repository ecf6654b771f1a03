#!/usr/bin/env bash
# Checks the tree: scripts/check.sh [--quick]
# Format, layering, script syntax, then the tests of three builds: release; dev (address and
# undefined-behaviour sanitizers), all tests; tsan, what runs on several threads. It ends with a
# table of times. --quick stops after the release tests. The end-to-end tests are run by
# scripts/test.sh.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

quick=false
case ${1:-} in
  '') ;;
  --quick) quick=true ;;
  -h | --help) usage ;;
  *) die "unknown argument '$1'; scripts/check.sh --help lists them." ;;
esac

source_folders=()
for folder in base kernels model cache server tests; do
  [[ ! -d $root/$folder ]] || source_folders+=("$root/$folder")
done

check_format() {
  command -v clang-format >/dev/null || die "clang-format is missing; run scripts/setup.sh first."
  find "${source_folders[@]}" \( -name '*.cc' -o -name '*.h' \) -print0 |
    xargs -0 -P "$(nproc)" -n 16 clang-format --dry-run -Werror ||
    die "files above are not formatted; mend them with clang-format -i FILE."
}

check_scripts() {
  local file
  for file in "$root"/scripts/*.sh "$root/.ci/run"; do
    bash -n "$file" || return 1
  done
  find "$root/scripts" "$root/tests" -name '*.py' -print0 |
    xargs -0 python3 -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]'
}

# run_tests PRESET [ctest arguments]
run_tests() {
  local preset=$1
  shift
  ctest --test-dir "$root/build/$preset" -j "$(nproc)" --output-on-failure --no-tests=error \
    --progress "$@"
}

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

begin_stages
stage "format" check_format
stage "layering" python3 "$root/scripts/layering.py"
stage "layering's own test" python3 "$root/scripts/layering.py" --self-test
stage "script syntax" check_scripts
stage "release: build" "$root/scripts/build.sh" release
stage "release: unit, ops, sim, fuzz corpus" run_tests release -LE e2e
if ! $quick; then
  stage "dev (ASan, UBSan): build" "$root/scripts/build.sh" dev
  stage "dev (ASan, UBSan): unit, ops, sim, fuzz" run_tests dev -LE e2e
  stage "tsan: build" "$root/scripts/build.sh" tsan threaded_tests
  stage "tsan: tests of threaded code" run_tests tsan -L threads
fi
