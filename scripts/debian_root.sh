# A bare Debian 12 in a folder, for checks that need a machine with nothing on it; sourced after
# lib.sh, never run. It takes root, and the mirror that this machine's apt uses already.

# Installs those of the packages whose command is missing: need_commands COMMAND=PACKAGE...
need_commands() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 -qq update &&
    apt-get -o DPkg::Lock::Timeout=300 -qq install -y --no-install-recommends "${missing[@]}" \
      >/dev/null || die "apt-get could not install: ${missing[*]}; see its message above."
}

# Prints "URI CODENAME" of this machine's sources of Debian 12: its release, updates, security.
debian_sources() {
  apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 ~ /^bookworm(-updates|-security)?$/ && $3 == "main" { print $1, $2 }' | sort -u
}

# debian_root FOLDER: makes it, about 80 MiB. Like the slim images of Debian it has no manuals and
# no translations, and what is installed later brings none.
debian_root() {
  local folder=$1 mirror sources log=$1.log
  need_commands debootstrap=debootstrap
  sources=$(debian_sources)
  mirror=$(awk '$2 == "bookworm" { print $1; exit }' <<<"$sources")
  [[ -n $mirror ]] ||
    die "apt of this machine knows no mirror of Debian 12 (bookworm); add one to its sources."
  debootstrap --variant=minbase bookworm "$folder" "$mirror" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "debootstrap could not make a Debian 12; its last lines are above."
  }
  sed 's/^/deb /; s/$/ main/' <<<"$sources" >"$folder/etc/apt/sources.list"
  # How this machine reaches its mirror (a proxy, clocks that differ) holds there too.
  apt-config dump | grep -E '^Acquire::(https?|Retries|Check-Valid-Until|Check-Date)\b' \
    >"$folder/etc/apt/apt.conf.d/90machine" || true
  printf '%s\n' 'Acquire::Languages "none";' >"$folder/etc/apt/apt.conf.d/90languages"
  printf 'path-exclude=/usr/share/%s\n' 'doc/*' 'man/*' 'info/*' 'locale/*' \
    >"$folder/etc/dpkg/dpkg.cfg.d/90slim"
  printf '%s\n' 'path-include=/usr/share/doc/*/copyright' \
    'path-include=/usr/share/doc/pagoda/*' >>"$folder/etc/dpkg/dpkg.cfg.d/90slim"
  find "$folder/usr/share/doc" -type f ! -name copyright -delete
  rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* \
    "$folder"/usr/share/{man,info,locale}/* "$folder"/var/log/bootstrap.log
}
