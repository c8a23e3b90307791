#!/usr/bin/env bash
# Print the home of Java 17 or newer, which Spark 4 needs. As root on Debian, install Java if it is missing.
set -euo pipefail

say() { echo "java: $*" >&2; }

# Print the major version of the Java in $1, or 0 without one.
major() {
    local version
    version=$("$1/bin/java" -version 2>&1 | sed -nE '1,3s/.*version "([0-9]+).*/\1/p') || true
    echo "${version:-0}"
}

path_home() {
    local java
    java=$(command -v java) || return 0
    # Java itself reports its home, because the command can be a wrapper in another directory.
    "$java" -XshowSettings:properties -version 2>&1 | sed -nE 's/^ *java\.home = (.*)$/\1/p' || true
}

find_java() {
    local home
    for home in "${JAVA_HOME:-}" "$(path_home)" /usr/lib/jvm/*; do
        if [ -n "$home" ] && [ -x "$home/bin/java" ] && [ "$(major "$home")" -ge 17 ]; then
            echo "$home"
            return
        fi
    done
    return 1
}

install_java() {
    command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
    local package
    apt-get update -qq 2>&1 | no_hosts
    for package in openjdk-17-jre-headless default-jre-headless; do
        say "installing $package from Debian"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" 2>&1 >/dev/null | no_hosts && return
    done
    return 1
}

no_hosts() { sed -E 's#https?://[^/ ]+#<index>#g' >&2; }

find_java || { install_java && find_java; } || {
    say "no Java 17 or newer found; install one (Debian: openjdk-17-jre-headless) or set JAVA_HOME to its home"
    exit 1
}
