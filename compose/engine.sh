#!/usr/bin/env bash
# engine.sh [start|stop|status]: a Docker engine with Compose v2 and buildx, for a machine that has none.
#
# Idempotent: where `docker version` and `docker compose version` work already, `start` does nothing at all.
# Debian 12, as root: the engine of Debian 13 (26.1, which knows `start_interval` of health checks; Debian 12's 20.10 does
#   not) from the mirror that this machine's apt uses, unpacked under PROZESS_ENGINE_PREFIX: no package is replaced. runc
#   is Debian 12's own, since that of Debian 13 needs a newer libc.
# Debian 13, as root: its packages. Elsewhere: says what to do, and exits with 3.
set -euo pipefail

prefix=${PROZESS_ENGINE_PREFIX:-/opt/prozess-engine}
data=${PROZESS_ENGINE_DATA:-/var/lib/docker}
state=${PROZESS_ENGINE_RUN:-/run/prozess-engine}
plugins=/usr/local/lib/docker/cli-plugins
start_timeout_s=60 stop_timeout_s=30
export PATH="$PATH:$prefix/usr/bin:$prefix/usr/sbin:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive

say() { printf 'engine: %s\n' "$*"; }
fail() { printf 'engine: %s\n' "$*" >&2; exit "${code:-1}"; }
engine_works() { docker version >/dev/null 2>&1; }
compose_works() { docker compose version >/dev/null 2>&1; }
versions() { say "engine $(docker version --format '{{.Server.Version}}'), compose $(docker compose version --short)"; }

# until_true SECONDS COMMAND…: ask five times a second.
until_true() {
    local tries=$(($1 * 5)); shift
    while ! "$@"; do tries=$((tries - 1)); [ $tries -gt 0 ] || return 1; sleep 0.2; done
}

status() {
    engine_works || { say "no engine answers"; return 1; }
    compose_works || { say "the engine answers, but there is no Compose v2"; return 1; }
    versions
}

ours() { [ -e "$state/dockerd.pid" ] && kill -0 "$(cat "$state/dockerd.pid")" 2>/dev/null; }

# Only an engine that this script started.
stop() {
    ours || { say "no engine of ours runs"; return 0; }
    local pid; pid=$(cat "$state/dockerd.pid")
    kill "$pid"
    gone() { ! kill -0 "$pid" 2>/dev/null; }
    until_true $stop_timeout_s gone || fail "dockerd (pid $pid) did not end within $stop_timeout_s s"
    rm -f "$state/dockerd.pid"
    say "stopped"
}

elsewhere() {
    cat >&2 <<TEXT
engine: no Docker engine with Compose v2 answers, and this is not Debian 12 or 13 ($1). Do one of these, then try again:
  Ubuntu           sudo apt-get install docker.io docker-compose-v2 docker-buildx
  Fedora           sudo dnf install moby-engine docker-compose docker-buildx && sudo systemctl start docker
  macOS, Windows   start Docker Desktop (faults of the network are then made by a privileged exec)
Both \`docker version\` and \`docker compose version\` must succeed.
TEXT
    exit 3
}

# The mirror that this machine uses for its own release: $1 = its codename.
mirror() {
    apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT) $(CREATED_BY)' |
        awk -v codename="$1" '$2 == codename && $3 == "main" && $4 == "Packages" { print $1; exit }'
}

install_packages() {
    local missing=() package
    for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    say "installed ${missing[*]}"
}

# Debian 13's packages, for which nothing of Debian 12 is replaced: an apt of our own that sees only that release.
unpack_newer() (
    install_packages runc iptables tini
    site=$(mirror "$1")
    [ -n "$site" ] || code=3 fail "apt has no source for $1. Add one to /etc/apt, or install Docker by hand."
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    mkdir -p "$scratch"/lists/partial "$scratch"/cache/archives/partial "$scratch"/debs
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site trixie main" >"$scratch/sources.list"
    newer=(-qq -o Dir::Etc::sourcelist="$scratch/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
        -o Dir::State::lists="$scratch/lists" -o Dir::Cache="$scratch/cache")
    apt-get "${newer[@]}" update
    (cd "$scratch/debs" && apt-get "${newer[@]}" download docker.io containerd docker-cli docker-buildx docker-compose)
    mkdir -p "$prefix" "$plugins"
    for deb in "$scratch"/debs/*.deb; do dpkg -x "$deb" "$prefix"; done
    ln -sf "$(command -v tini-static || command -v tini)" "$prefix/usr/bin/docker-init"
    for plugin in docker-compose docker-buildx; do
        ln -sfn "$prefix/usr/libexec/docker/cli-plugins/$plugin" "$plugins/$plugin"
    done
    PATH=/usr/local/bin:/usr/bin:/bin command -v docker >/dev/null || ln -s "$prefix/usr/bin/docker" /usr/local/bin/docker
    say "unpacked Debian 13's engine in $prefix"
)

# In a session of its own, and with nothing of its caller's open: whoever waits for the end of a pipe, or for a lock, would
# wait for dockerd. 256 small networks from a range that does not meet usual local ones.
start_daemon() {
    mkdir -p "$state"
    (
        exec >"$state/dockerd.log" 2>&1 </dev/null
        for open in /proc/self/fd/*; do
            open=${open##*/}
            [ "$open" -le 2 ] || eval "exec $open>&-"
        done
        PATH="$prefix/usr/bin:$prefix/usr/sbin:$PATH" exec setsid nohup dockerd --data-root "$data" \
            --default-address-pool base=172.30.0.0/16,size=24 --pidfile "$state/dockerd.pid"
    ) &
}

start() {
    if engine_works && compose_works; then versions; return 0; fi
    local id=unknown release='' codename=''
    if [ -r /etc/os-release ]; then
        # shellcheck disable=SC1091
        . /etc/os-release
        id=$ID release=${VERSION_ID:-} codename=${VERSION_CODENAME:-}
    fi
    [ "$id" = debian ] && { [ "$release" = 12 ] || [ "$release" = 13 ]; } || elsewhere "$id $release"
    [ "$(id -u)" = 0 ] || code=3 fail "must run as root: sudo $0"
    if [ "$release" = 13 ]; then
        install_packages docker.io docker-cli docker-compose docker-buildx iptables
    elif [ ! -x "$prefix/usr/sbin/dockerd" ] || ! compose_works; then
        unpack_newer "$codename"
    fi
    if ! engine_works; then
        if [ "$release" = 13 ] && [ -d /run/systemd/system ]; then systemctl start docker; else start_daemon; fi
        until_true $start_timeout_s engine_works ||
            fail "no engine after $start_timeout_s s; the end of $state/dockerd.log: $(tail -n 5 "$state/dockerd.log" 2>&1)"
    fi
    versions
}

case "${1:-start}" in
start) start ;;
stop) stop ;;
status) status ;;
*) echo "usage: $0 [start|stop|status]" >&2; exit 2 ;;
esac
