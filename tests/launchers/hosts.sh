#!/bin/sh
# Jobs over several hosts, started by Open MPI's mpirun through remote.sh in place of ssh; a host is a network
# namespace (tests/hosts/net.sh). Exits with 77 without Open MPI or network namespaces.
#     hosts.sh BUILD_FOLDER
set -u
kolo=$(realpath "$1")/kolo
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../hosts/net.sh"
. "$here/expect.sh"
open_mpi || { echo "skip: no Open MPI (openmpi-bin)"; exit 77; }
hosts_possible || exit 77
trap 'hosts_down; rm -rf "$work"' EXIT

hosts_up 2 1gbit
export KOLO_TEST_HOSTS="$work/hosts"
printf '127.0.0.1 localhost\n10.77.0.1 %s-h1\n10.77.0.2 %s-h2\n' "$net" "$net" >"$work/hosts"

# on_both COMMAND...: mpirun, run on the first host, starts two ranks on each.
on_both() {
    job "$here/remote.sh" "$net-h1" exec $mpirun --bind-to none --mca plm_rsh_agent "$here/remote.sh" \
        --mca orte_keep_fqdn_hostnames 1 --host "$net-h1:2,$net-h2:2" -n 4 "$@"
}
allreduce="$kolo bench allreduce --seconds 0.1 --timeout 20"

on_both $allreduce --sizes 8,64K,1M
all_well "allreduce on 2 hosts x 2 ranks"
output_has "4 ranks, transport shm+tcp"
on_both "$kolo" train --model lenet --data synthetic:N=512 --steps 4 --batch 16 --timeout 20 --progress none
all_well "training on 2 hosts x 2 ranks"
output_has "workers  *4, threads 1 each"
on_both $allreduce --sizes 64K --interface eth0
all_well "--interface eth0"
on_both env KOLO_MASTER_PORT=29513 $allreduce --sizes 64K
all_well "KOLO_MASTER_PORT"

# MPI's collectives, over the sockets of the two hosts.
if [ -e "${kolo%/*}/libkolo-mpi-openmpi.so" ]; then
    on_both $allreduce --sizes 8,64K,1M --transport mpi
    all_well "allreduce by MPI on 2 hosts x 2 ranks"
    output_has "4 ranks, transport mpi"
fi

# Rank 0's first address is unreachable from the other host.
ip -n "$net-h1" addr add 10.98.0.1/24 dev eth0
ip -n "$net-h1" addr del 10.77.0.1/24 dev eth0
ip -n "$net-h1" addr add 10.77.0.1/24 dev eth0
for kind in unreachable blackhole; do
    ip -n "$net-h2" route add $kind 10.98.0.0/24
    on_both $allreduce --sizes 64K
    all_well "an $kind first address"
    ip -n "$net-h2" route del $kind 10.98.0.0/24
done

# An address at which nothing listens.
on_both "$kolo" bench allreduce --sizes 8 --timeout 2 --interface lo
fails_with "joining rank 0 at 127.0.0.1:[0-9]*: rank 0 did not listen within"
on_both "$kolo" bench allreduce --sizes 8 --timeout 2 --interface eth7
fails_with "no network interface or address matches 'eth7'"

# A killed rank, with an mpirun that does not end the others (and then never ends by itself): the launcher is
# not used after the rendezvous, so the other ranks must detect the death.
kill_rank_3() {
    for p in $(ip netns pids "$net-h2"); do
        grep -zqsx OMPI_COMM_WORLD_RANK=3 "/proc/$p/environ" && grep -qs allreduce "/proc/$p/cmdline" &&
            kill -9 "$p"
    done
}
(sleep 4; kill_rank_3) &
limit=9
on_both --enable-recovery "$kolo" bench allreduce --sizes 1M --seconds 30 --timeout 20
[ "$(grep -c "^kolo: .*rank 3 is gone (" "$work/out")" = 3 ] ||
    fail "not all survivors name the killed rank within 5 s"
wait

finish_tests
exit $((failures > 0))
