#!/bin/sh
# Installs the Debian packages of tools/packages.txt that are missing. When none is, it does nothing and
# touches no network.
#     install-deps.sh          all packages
#     install-deps.sh --run    those to build and train
#     install-deps.sh --slurm  all, and those of make check-slurm
#     install-deps.sh --list   prints what is missing, installs nothing; exit 1 if anything is
set -u

list=$(dirname "$0")/packages.txt
groups="run check"
only_list=no
for arg; do
    case $arg in
    --run) groups=run ;;
    --slurm) groups="run check slurm" ;;
    --list) only_list=yes ;;
    *)
        echo "usage: install-deps.sh [--run | --slurm] [--list]" >&2
        exit 2
        ;;
    esac
done

# missing: the packages of the groups that are not installed, on one line.
missing() {
    awk -v groups=" $groups " '!/^#/ && index(groups, " " $2 " ") { print $1 }' "$list" |
        while read -r package; do
            [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
                printf '%s ' "$package"
        done
}

give_up() {
    echo "install-deps: $1; missing packages: $need" >&2
    exit 1
}

if ! command -v dpkg-query >/dev/null; then
    need=$(awk -v groups=" $groups " '!/^#/ && index(groups, " " $2 " ") { printf "%s ", $1 }' "$list")
    echo "install-deps: no Debian system: install what these packages of Debian hold: $need" >&2
    exit 1
fi

need=$(missing)
[ -n "$need" ] || exit 0
if [ $only_list = yes ]; then
    echo "$need"
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
    [ -t 0 ] || as_root="sudo -n" # nobody there to type a password
else
    give_up "neither root nor sudo: have an administrator run apt-get install"
fi

echo "install-deps: installing $need"
# Two attempts, since a mirror may fail for a moment.
for attempt in 1 2; do
    if $as_root env DEBIAN_FRONTEND=noninteractive sh -c '
        apt-get -q update && apt-get -q install --yes --no-install-recommends "$@"' sh $need </dev/null
    then
        break
    fi
    [ $attempt = 2 ] || sleep 5
done
need=$(missing)
[ -z "$need" ] || give_up "apt-get could not install all"
