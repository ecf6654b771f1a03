#!/usr/bin/env bash
# Builds the container image and tries it, without Docker: scripts/docker_check.sh [--no-chat]
#   --no-chat   leaves out the chat completion, for a build without /v1/chat/completions
# The image is built by buildah on a bare Debian 12 that debootstrap makes, both from this machine's
# own mirror, and serves the demo model in a network of its own: no other machine can reach it.
# Takes root, 4 GB of disk and ten minutes, most of them the compiler's; removes all that it made.
# Environment:
#   PAGODA_DOCKER_CACHE=FOLDER   keeps the compiler's cache there, for the next run
#   STORAGE_DRIVER=NAME          buildah's; vfs, the default, works everywhere
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
source "$root/scripts/debian_root.sh"

chat=true
case ${1:-} in
  '') ;;
  --no-chat) chat=false ;;
  -h | --help) usage ;;
  *) die "unknown argument '$1'; scripts/docker_check.sh --help lists them." ;;
esac
[[ $(id -u) -eq 0 ]] || die "it changes roots and mounts, and so needs root."

export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=chroot
work=$(mktemp -d "${TMPDIR:-/var/tmp}/pagoda-docker-XXXXXX")
mkdir "$work/tmp"
export TMPDIR=$work/tmp  # where buildah keeps what is on its way
network=                 # make_network's process, in whose network the servers run
image=localhost/pagoda
url=http://127.0.0.1:8000
ready_seconds=120  # to load the demo model, also on a busy machine
end_seconds=40     # --shutdown-timeout, the last answers, and some room

bh() { buildah --root "$work/store" --runroot "$work/run" "$@"; }
in_network() { nsenter --target "$network" --net -- "$@"; }

# A network with nothing but a loopback of its own, held by a process that sleeps.
make_network() {
  local deadline=$((SECONDS + 10))
  unshare --net sleep 3600 &
  network=$!
  until [[ $(readlink "/proc/$network/ns/net") != $(readlink /proc/self/ns/net) ]] &&
    in_network ip link set lo up; do
    kill -0 "$network" 2>/dev/null && ((SECONDS <= deadline)) ||
      die "no network of its own can be made for the servers."
    sleep 0.1
  done
}

# The server in the network of this check, which holds nobody else's.
server_pid() {
  local folder own
  own=$(readlink "/proc/$network/ns/net")
  for folder in /proc/[0-9]*; do
    if [[ $(cat "$folder/comm" 2>/dev/null) == pagoda &&
      $(readlink "$folder/ns/net" 2>/dev/null) == "$own" ]]; then
      printf '%s' "${folder#/proc/}"
      return
    fi
  done
  return 1
}

outer_stages=${PAGODA_STAGES:-}
clean_up() {
  local pid
  if [[ -n $network ]]; then
    ! pid=$(server_pid) || kill -KILL "$pid" 2>/dev/null || true
    kill "$network" 2>/dev/null || true
  fi
  if command -v buildah >/dev/null; then
    bh rm --all >/dev/null 2>&1 || true
    bh rmi --all --force >/dev/null 2>&1 || true
  fi
  [[ -n $outer_stages ]] || { print_stages && rm -f "$PAGODA_STAGES"; }
  rm -rf --one-file-system -- "$work" || true
}

# Each stage runs where the shell goes on after a failure, so each failure is said by die.

get_tools() {
  need_commands buildah=buildah debootstrap=debootstrap curl=curl ip=iproute2 jq=jq \
    unshare=util-linux
  [[ -f $models/$demo_file ]] || "$root/scripts/setup.sh" --serve
}

make_base() {
  debian_root "$work/debian"
  printf 'FROM scratch\nCOPY debian /\nCMD ["bash"]\n' >"$work/Base"
  bh build --quiet --format docker --file "$work/Base" --tag localhost/debian:12 "$work" \
    >/dev/null || die "buildah could not make the base image."
  rm -rf -- "$work/debian"
}

make_image() {
  local cache=() version revision
  if [[ -n ${PAGODA_DOCKER_CACHE:-} ]]; then
    mkdir -p -- "$PAGODA_DOCKER_CACHE/ccache" || die "PAGODA_DOCKER_CACHE cannot be made."
    cache=(--volume "$(realpath "$PAGODA_DOCKER_CACHE")/ccache:/root/.cache/ccache")
  fi
  version=$(sed -n 's/^project(pagoda VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
  revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
  # Docker's own format: the other one has no health check.
  bh build --format docker --file "$root/Dockerfile" --tag "$image" \
    --build-arg BASE_IMAGE=localhost/debian:12 --build-arg RUNTIME_IMAGE=localhost/debian:12 \
    --build-arg VERSION="$version" --build-arg REVISION="$revision" "${cache[@]}" "$root" \
    >"$work/build.log" 2>&1 || {
    tail -n 30 "$work/build.log" >&2
    die "the image could not be built; the last lines are above."
  }
  bh images --format '{{.Name}} is {{.Size}}' >&2
  bh inspect --type image "$image" | jq .Docker.config >"$work/config.json" ||
    die "the image's settings cannot be read."
  bh from --quiet --name served "$image" >/dev/null || die "no container can be made of the image."
}

# config FILTER: lines of the image's settings, by jq.
config() { jq -r "$1" "$work/config.json"; }

check_settings() {
  local user python help=$work/help
  user=$(config .User)
  [[ $user =~ ^[1-9][0-9]*:[1-9][0-9]*$ ]] ||
    die "the image's user is '$user', not two numbers above 0."
  [[ $(config .StopSignal) == SIGTERM ]] || die "the image's stop signal is not SIGTERM."
  [[ $(config '.ExposedPorts | keys[]') == 8000/tcp ]] || die "the image does not name port 8000."
  [[ $(config '.Volumes | keys | join(" ")') == "/kv /models" ]] ||
    die "the image's volumes are not /kv and /models."
  [[ $(config '.Labels["org.opencontainers.image.version"]') =~ ^[0-9]+\. ]] ||
    die "the image's label of its version is not one."
  bh run served -- pagoda serve --help >"$help" || die "the image's pagoda does not run."
  for python in "$root/.venv/bin/python" python3; do
    "$python" -c 'import yaml' 2>/dev/null || continue
    "$python" "$root/scripts/check_compose.py" "$root/configs" "$work/config.json" "$help" ||
      die "configs/compose.yaml and configs/prometheus.yml do not fit the image; see above."
    return
  done
  die "no Python with PyYAML was found; run scripts/setup.sh first."
}

# status_of PATH [BODY]: the answer goes into $work/answer.
status_of() {
  local data=()
  [[ $# -eq 1 ]] || data=(-H 'Content-Type: application/json' -d "$2")
  in_network curl -s --max-time 60 -o "$work/answer" -w '%{http_code}' "${data[@]}" "$url$1" ||
    true
}

# wait_ready JOB LOG: until /health says 200.
wait_ready() {
  local deadline=$((SECONDS + ready_seconds))
  until [[ $(status_of /health) == 200 ]]; do
    if ! kill -0 "$1" 2>/dev/null || ((SECONDS > deadline)); then
      tail -n 20 "$2" >&2
      die "/health did not become 200 within $ready_seconds s; the server's last lines are above."
    fi
    sleep 0.2
  done
}

# end_server JOB: SIGTERM to the server; the container then ends with its status.
end_server() {
  local pid code=0 deadline=$((SECONDS + end_seconds))
  pid=$(server_pid) || die "the server is not there any more."
  kill -TERM "$pid" || die "the server cannot be signalled."
  while kill -0 "$1" 2>/dev/null && ((SECONDS <= deadline)); do
    sleep 0.1
  done
  ! kill -0 "$1" 2>/dev/null || kill -KILL "$pid" 2>/dev/null || true
  wait "$1" || code=$?
  [[ $code -eq 0 ]] || die "after SIGTERM the server ended with status $code, or not in time."
}

check_answers() {
  local status
  status=$(status_of /v1/completions \
    '{"prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}')
  [[ $status == 200 && $(jq -r '.choices[0].text' "$work/answer") == *Paris* ]] ||
    die "/v1/completions answered $status and '$(cat "$work/answer")', without Paris."
  $chat || return 0
  status=$(status_of /v1/chat/completions \
    '{"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0}')
  [[ $status == 200 && -n $(jq -r '.choices[0].message.content // ""' "$work/answer") ]] ||
    die "/v1/chat/completions answered $status and '$(cat "$work/answer")'."
}

# As `docker run -v MODELS:/models:ro pagoda demo` would, with the image's user and command.
check_serving() {
  local command health log=$work/serve.log pid wanted job
  mapfile -t command < <(config '(.Entrypoint + .Cmd)[]')
  mapfile -t health < <(config '.Healthcheck.Test[1:][]')
  [[ ${#health[@]} -gt 0 ]] || die "the image has no health check."
  in_network buildah --root "$work/store" --runroot "$work/run" run \
    --volume "$models:/models:ro" served -- "${command[@]}" >"$log" 2>&1 &
  job=$!
  wait_ready "$job" "$log"
  pid=$(server_pid) || die "no server is to be seen in its network."
  wanted=$(config '.User | split(":")[0]')
  [[ $(awk '/^Uid:/ { print $2, $3, $4, $5 }' "/proc/$pid/status") == \
    "$wanted $wanted $wanted $wanted" ]] || die "the server does not run as user $wanted."
  grep -q 'can be reached from other machines' "$log" ||
    die "no warning of an open address without a key is in the server's log."
  in_network buildah --root "$work/store" --runroot "$work/run" run served -- "${health[@]}" ||
    die "the image's health check fails though the server is ready."
  check_answers
  end_server "$job"
  ! in_network buildah --root "$work/store" --runroot "$work/run" run served -- "${health[@]}" \
    2>/dev/null || die "the image's health check succeeds though there is no server."
}

# As with --read-only and --user 4321:4321, a user that the image knows nothing of.
check_read_only() {
  local command environment merged log=$work/read-only.log job
  mapfile -t command < <(config '(.Entrypoint + .Cmd)[]')
  mapfile -t environment < <(config '.Env[]')
  merged=$(bh mount served) || die "the container cannot be mounted."
  in_network unshare --mount bash -c '
    set -e
    merged=$1 models=$2
    shift 2
    mount --bind "$merged" "$merged"
    mount -o remount,bind,ro "$merged"
    mount --bind /proc "$merged/proc"
    mount --rbind /dev "$merged/dev"
    mount --bind "$models" "$merged/models"
    mount -o remount,bind,ro "$merged/models"
    mount -t tmpfs tmpfs "$merged/kv"
    if touch "$merged/etc/written" 2>/dev/null; then echo "the root can be written"; exit 1; fi
    exec chroot --userspec=4321:4321 --groups=4321 "$merged" env -i --chdir=/models "$@"
    ' bash "$merged" "$models" "${environment[@]}" "${command[@]}" >"$log" 2>&1 &
  job=$!
  wait_ready "$job" "$log"
  check_answers
  end_server "$job"
  bh umount served >/dev/null || die "the container cannot be unmounted."
}

check_no_model() {
  local command code=0 log=$work/no-model.log
  mapfile -t command < <(config '(.Entrypoint + .Cmd)[]')
  timeout 30 buildah --root "$work/store" --runroot "$work/run" run served -- "${command[@]}" \
    >"$log" 2>&1 || code=$?
  grep -q "^pagoda: the demo model is not at .*$demo_file" "$log" || {
    cat "$log" >&2
    die "without a model the image does not say in a sentence what is missing."
  }
  [[ $code -ne 0 ]] || die "without a model the image ends with status 0."
}

begin_stages
trap clean_up EXIT
stage "tools and model" get_tools
stage "base image" make_base
stage "image" make_image
stage "settings of image, compose and Prometheus" check_settings
make_network
stage "serve as the image's user" check_serving
stage "serve read-only as any user" check_read_only
stage "no model mounted" check_no_model
