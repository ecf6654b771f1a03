#!/usr/bin/env bash
# Looks for inputs that break a parser: scripts/fuzz.sh NAME [SECONDS]
# Builds tests/fuzz/NAME_fuzz.cc with clang, libFuzzer and the sanitizers, and runs it for SECONDS
# (60) from tests/fuzz/corpus/NAME. New inputs go to build/fuzz/corpus/NAME, one that breaks it to
# build/fuzz/found: mend the code, then put that input into tests/fuzz/corpus/NAME for good.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

names() {
  find "$root/tests/fuzz" -name '*_fuzz.cc' -printf '%f\n' | sed 's/_fuzz\.cc$//' | sort | xargs
}

name=${1:-}
seconds=${2:-60}
[[ $name != -h && $name != --help ]] || usage
[[ -n $name && -f $root/tests/fuzz/${name}_fuzz.cc ]] ||
  die "give the name of a fuzz target; there are: $(names)."
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "'$seconds' is not a number of seconds."
command -v clang++ >/dev/null || die "clang++ is missing; install the Debian package clang."

"$root/scripts/build.sh" fuzz "pagoda_fuzz_$name"
found=$root/build/fuzz/found
corpus=$root/build/fuzz/corpus/$name
mkdir -p "$found" "$corpus"
seeds=()
[[ ! -d $root/tests/fuzz/corpus/$name ]] || seeds=("$root/tests/fuzz/corpus/$name")
say "fuzzing $name for $seconds s"
"$root/build/fuzz/bin/pagoda_fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
  -print_final_stats=1 -artifact_prefix="$found/$name-" "$corpus" "${seeds[@]}" ||
  die "$name broke; the input is in build/fuzz/found."
