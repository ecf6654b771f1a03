#!/usr/bin/env bash
# Runs many seeds of the simulator, a thousand at a time: scripts/sim.sh [FIRST LAST]
# (default: 1 100000). What is done is noted in build/sim; broken off and started again it goes on
# behind that. Exit status 1 when a seed failed; its line says how to run it alone.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} != -h && ${1:-} != --help ]] || usage
first=${1:-1} last=${2:-100000}
[[ $first =~ ^[0-9]+$ && $last =~ ^[0-9]+$ && $first -le $last ]] ||
  die "takes two numbers, the first and the last seed."

sim=$root/build/release/bin/pagoda_sim
[[ -x $sim ]] || "$root/scripts/build.sh" release pagoda_sim
# Another program begins anew.
notes=$root/build/sim/$(sha256sum "$sim" | cut -c1-12)
mkdir -p -- "$notes"

failed=0
for ((begin = first; begin <= last; begin += 1000)); do
  end=$((begin + 999 < last ? begin + 999 : last))
  note=$notes/$begin-$end
  if [[ ! -f $note ]]; then
    "$sim" --seeds "$begin..$end" >"$note.new" 2>&1 || true
    # One that ended the process has no last line.
    grep -q '^seeds ' "$note.new" || echo "seeds $begin..$end: the process died" >>"$note.new"
    mv -- "$note.new" "$note"
  fi
  if ! grep -q ' 0 seeds failed$' "$note"; then
    failed=$((failed + 1))
    cat -- "$note"
  fi
  printf '\r%s of %s' "$end" "$last" >&2
done
printf '\n' >&2
cat -- "$notes"/* | awk '/^seeds / { n++; requests += $3; steps += $7; restarts += $(NF - 4) }
  END { printf "%d runs of up to 1000 seeds: %d requests, %d steps, %d restarts\n",
               n, requests, steps, restarts }'
[[ $failed -eq 0 ]] || die "$failed runs have failed seeds; they stand above."
echo "no seed failed"
