#!/bin/sh
# Says which tools are missing or too old, all of them at once and each with its install line; exits 1 if any is.
#   doctor.sh            every tool that work on this repository needs
#   doctor.sh cargo cc   only these
# Only shell built-ins are used beside the tools themselves, so that it works where almost nothing is installed.
set -u

bad=0

# complain WHAT DEBIAN MACOS
complain() {
    if [ "$bad" = 0 ]; then
        printf 'Some tools are missing or too old:\n' >&2
    fi
    bad=1
    printf '\n  %s\n' "$1" >&2
    if [ "$2" = "$3" ]; then
        printf '      any system:  %s\n' "$2" >&2
    else
        printf '      Debian:      %s\n      macOS:       %s\n' "$2" "$3" >&2
    fi
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# number TEXT: its leading digits, or 0
number() {
    digits=${1%%[!0-9]*}
    printf '%s' "${digits:-0}"
}

# at_least HAVE MAJOR MINOR
at_least() {
    major=$(number "$1")
    rest=${1#*.}
    minor=$(number "$rest")
    [ "$major" -gt "$2" ] || { [ "$major" -eq "$2" ] && [ "$minor" -ge "$3" ]; }
}

# version COMMAND [ARG...]: the first word of its output that begins with a digit (or with v and a digit)
version() {
    for word in $("$@" 2>/dev/null); do
        case $word in
            [0-9]*) printf '%s' "$word"; return ;;
            v[0-9]*) printf '%s' "${word#v}"; return ;;
        esac
    done
}

rustup="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
if has rustup; then rustup="rustup update stable"; fi

# simple TOOL PACKAGE MACOS
simple() {
    has "$1" || complain "$1 is missing" "sudo apt install $2" "$3"
}

check() {
    case $1 in
        cargo)
            found=$(version cargo --version)
            if [ -z "$found" ]; then
                complain "cargo is missing (1.88 or newer)" "$rustup" "$rustup"
            elif ! at_least "$found" 1 88; then
                complain "cargo is too old: $found, needed 1.88 or newer" "$rustup" "$rustup"
            fi ;;
        rustfmt | clippy)
            # Without cargo there is nothing to add them to; its own line comes first.
            sub=$1
            if [ "$sub" = rustfmt ]; then sub=fmt; fi
            if has cargo && [ -z "$(version cargo "$sub" --version)" ]; then
                complain "cargo $sub is missing" "rustup component add $1" "rustup component add $1"
            fi ;;
        cc) simple cc build-essential "xcode-select --install" ;;
        make) simple make make "xcode-select --install" ;;
        git) simple git git "xcode-select --install" ;;
        go) simple go golang "brew install go" ;;
        python3)
            found=$(version python3 --version)
            if [ -z "$found" ]; then
                complain "python3 is missing (3.11 or newer)" "sudo apt install python3 python3-venv" "brew install python"
            elif ! at_least "$found" 3 11; then
                complain "python3 is too old: $found, needed 3.11 or newer" \
                    "sudo apt install python3 python3-venv   # Debian 12 or newer" "brew install python"
            # Debian's python3 can create no environment until python3-venv is there; only trying shows it.
            elif ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
                complain "python3 cannot make virtual environments" "sudo apt install python3-venv" "brew install python"
            fi ;;
        node)
            found=$(version node --version)
            if [ -z "$found" ]; then
                complain "node is missing (20 or newer)" "sudo apt install nodejs npm   # Debian 13 or newer" "brew install node"
            elif ! at_least "$found" 20 0; then
                complain "node is too old: $found, needed 20 or newer" \
                    "sudo apt install nodejs npm   # Debian 13 or newer" "brew install node"
            fi
            if ! has npm; then complain "npm is missing" "sudo apt install npm" "brew install node"; fi ;;
        *)
            printf 'doctor.sh: unknown tool: %s\n' "$1" >&2
            exit 2 ;;
    esac
}

if [ $# = 0 ]; then
    set -- cargo rustfmt clippy cc make git python3 node
fi
for tool in "$@"; do
    check "$tool"
done

if [ "$bad" = 1 ]; then
    printf '\nInstall these and run the same command again. Nothing was built.\n' >&2
    exit 1
fi
