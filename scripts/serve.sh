#!/usr/bin/env bash
# Sets up, builds and serves: scripts/serve.sh [MODEL] [flags of pagoda serve]
#   MODEL   a GGUF file, or demo (the default), which is fetched when it isn't here yet
# For example:
#   scripts/serve.sh
#   scripts/serve.sh demo --port 8001 --max-num-seqs 16
#   scripts/serve.sh ~/models/my-model.gguf
# When nothing changed it starts at once. All flags: build/release/bin/pagoda serve --help.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
export PAGODA_HOME  # so that the server looks for models where setup.sh puts them

case ${1:-} in
  -h | --help) usage ;;
  '' | -*) model=demo ;;
  *)
    model=$1
    shift
    ;;
esac

if [[ $model == demo ]]; then
  "$root/scripts/setup.sh" --serve
else
  # Said before the build, which may take minutes.
  [[ -e $model ]] || die "there is no model at '$model'; give the path of a GGUF file, or demo."
  "$root/scripts/setup.sh" --build
fi
PAGODA_TESTS=OFF "$root/scripts/build.sh" release >&2
# The server prints the address and a request to try once it is ready.
exec "$root/build/release/bin/pagoda" serve "$model" "$@"
