#!/bin/sh
# Replaces ssh where hosts are network namespaces (tests/hosts/net.sh): runs a command in the network namespace
# of that host, with its own host name and hosts file (KOLO_TEST_HOSTS).
#     remote.sh [OPTIONS] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do
    case $1 in -l | -p | -o) shift ;; esac
    shift
done
host=$1
shift
exec nsenter --net="/run/netns/$host" unshare --uts --mount sh -c \
    "hostname $host; mount --bind $KOLO_TEST_HOSTS /etc/hosts; $*"
