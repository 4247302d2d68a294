#!/bin/sh
# Stands in for ssh where hosts are network namespaces (tests/hosts/net.sh): runs a command as if on the host
# of that name, in its network namespace, with a host name and a hosts file (KOLO_TEST_HOSTS) of its own.
#     remote.sh [OPTIONS] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do
    case $1 in -l | -p | -o) shift ;; esac
    shift
done
host=$1
shift
exec nsenter --net="/run/netns/$host" unshare --uts --mount sh -c \
    "hostname $host; mount --bind $KOLO_TEST_HOSTS /etc/hosts; $*"
