#!/bin/sh
# Jobs started by srun, on a Slurm of three nodes on this machine: slurmctld and three slurmd, each in its own
# network namespace (tests/hosts/net.sh), with their own munged and key; an installed Slurm is not touched, and
# everything is removed at the end. Run by `make check-slurm`; needs root and the packages of the group
# "slurm" in tools/packages.txt. Exits with 77 and the reason if something is missing.
#     slurm.sh BUILD_FOLDER
set -u
kolo=$(realpath "$1")/kolo
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../hosts/net.sh"
. "$here/expect.sh"
for needed in slurmctld slurmd srun munged; do
    command -v $needed >/dev/null || { echo "skip: no $needed: tools/install-deps.sh --slurm"; exit 77; }
done
hosts_possible || exit 77
daemons= # their process ids

slurm_down() {
    for pid in $daemons; do kill "$pid" 2>/dev/null || true; done
    sleep 0.5
    for pid in $daemons; do kill -9 "$pid" 2>/dev/null || true; done
    hosts_down
    rm -rf "$work"
}
trap slurm_down EXIT

hosts_up 3
export KOLO_TEST_HOSTS="$work/hosts" SLURM_CONF="$work/slurm.conf"
{
    echo 127.0.0.1 localhost
    for i in 1 2 3; do echo "10.77.0.$i $net-h$i"; done
} >"$work/hosts"
chmod 755 "$work"
mkdir "$work/state" "$work/log" "$work/spool" "$work/munge"

# The test's own munged, as root; all other daemons use its socket.
(umask 077; head -c 128 /dev/urandom >"$work/munge/key")
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" --log-file="$work/munge/log" \
    --num-threads=4 >"$work/log/munged" 2>&1 &
daemons=$!

cat >"$work/slurm.conf" <<END
ClusterName=kolo
SlurmctldHost=$net-h1(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdSpoolDir=$work/spool
StateSaveLocation=$work/state
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/d.%n.pid
SlurmctldPort=36817
SlurmdPort=36818
ReturnToService=2
SlurmdParameters=config_overrides
$(for i in 1 2 3; do echo "NodeName=$net-h$i NodeAddr=10.77.0.$i NodeHostname=$net-h$i CPUs=2 State=UNKNOWN"; done)
PartitionName=p Nodes=$net-h[1-3] Default=YES State=UP OverSubscribe=YES
END
echo "PMIxCliTmpDirBase=$work/spool" >"$work/mpi.conf"

# on I COMMAND...: as remote.sh on the host of that number, with a spool of the host's own (Slurm's PMIx keeps its sockets there).
on() {
    host=$net-h$1
    shift
    exec nsenter --net="/run/netns/$host" unshare --uts --mount sh -c \
        "hostname $host; mount --bind $work/hosts /etc/hosts; mount -t tmpfs none $work/spool; exec $*"
}
(on 1 slurmctld -D -f "$work/slurm.conf" >"$work/log/ctld" 2>&1) &
daemons="$daemons $!"
for i in 1 2 3; do
    (on $i slurmd -D -N "$net-h$i" -f "$work/slurm.conf" >"$work/log/d$i" 2>&1) &
    daemons="$daemons $!"
done
tries=0
until (on 1 sinfo -h -N -o %T) 2>"$work/out" | grep -c idle | grep -qx 3; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { fail "the nodes do not come up"; tail -n 5 "$work"/log/*; exit 1; }
    sleep 0.2
done

# by_srun ARGUMENTS...: srun, on the first node.
by_srun() { job "$here/remote.sh" "$net-h1" exec srun "$@"; }
allreduce="$kolo bench allreduce --seconds 0.1 --timeout 20"
hasty="$kolo bench allreduce --sizes 8 --timeout 2"

for mpi in pmix pmi2; do
    by_srun --mpi=$mpi -N 3 -n 6 $allreduce --sizes 8,64K
    all_well "allreduce on 3 nodes x 2 ranks, $mpi"
    output_has "6 ranks, transport shm+tcp"
    by_srun --mpi=$mpi -N 3 -n 3 "$kolo" train --model lenet --data synthetic:N=512 --steps 4 --batch 16 \
        --timeout 20 --progress none
    all_well "training on 3 nodes, $mpi"
    output_has "workers  *3, threads"
    by_srun --mpi=$mpi -N 1 -n 2 $allreduce --sizes 8
    all_well "two ranks on one node, $mpi"
    output_has "2 ranks, transport shm"
    by_srun --mpi=$mpi -N 2 -n 2 $hasty --interface lo
    fails_with "joining rank 0 at 127.0.0.1:[0-9]*: rank 0 did not listen within"
    by_srun --mpi=$mpi -N 2 -n 2 sh -c '"[ \$SLURM_PROCID = 1 ] && exec sleep 5; exec '"$hasty"'"'
    fails_with "not all 2 processes of the launcher joined"
    by_srun --mpi=$mpi -N 2 -n 2 "$kolo" train --model lenet --data synthetic:N=512 --workers 3
    fails_with "--workers 3, but the launcher started 2"
done
by_srun --mpi=none -N 2 -n 2 $hasty
fails_with "srun has started 2 processes but provides no process manager"
by_srun --mpi=none -n 1 $allreduce --sizes 8 --ranks 2
all_well "a job of one process may start ranks itself"

finish_tests
exit $((failures > 0))
