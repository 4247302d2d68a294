#!/bin/sh
# Jobs on this host started by Open MPI's mpirun and MPICH's mpiexec, without a rank environment. Exits with 77
# if neither is installed.
#     local.sh BUILD_FOLDER
set -u
kolo=$(realpath "$1")/kolo
here=$(cd "$(dirname "$0")" && pwd)
. "$here/expect.sh"
bench="$kolo bench allreduce --sizes 8,64K --seconds 0.05 --timeout 20"
hasty="$kolo bench allreduce --sizes 8 --seconds 0.05 --timeout 2"
lenet="$kolo train --model lenet --data synthetic:N=512 --steps 4 --batch 16 --no-recipe --timeout 20 --progress none"
endless="$kolo train --model lenet --data synthetic:N=512 --steps 1000000 --batch 16 --progress none"
ran=no

# Ranks end with their launcher.
a_killed_launcher() {
    "$@" -n 2 $endless --out "$work/endless" >"$work/out" 2>&1 &
    for _ in $(seq 200); do [ -s "$work/endless/metrics.jsonl" ] && break; sleep 0.05; done
    kill -9 $!
    wait $! 2>/dev/null
    for _ in $(seq 100); do pgrep -f "$work/endless" >/dev/null || break; sleep 0.05; done
    ! pgrep -f "$work/endless" >/dev/null || fail "ranks outlive a killed $1"
    rm -r "$work/endless"
}

# The tests for both launchers; "$@" starts ranks and takes -n N COMMAND.
any_launcher() {
    job "$@" -n 4 $lenet
    all_well "train on 4 ranks"
    output_has "workers  *4, threads 1 each"
    job "$@" -n 2 $lenet --checkpoint-every 2 --out "$work/run"
    all_well "a run that leaves checkpoints"
    job "$@" -n 2 $kolo train --resume "$work/run" --steps 6
    all_well "a run that goes on"
    output_has "workers  *2, threads 1 each"
    rm -r "$work/run"
    job "$@" -n 3 sh -c "[ \$$rank = 1 ] && ROLE=server || ROLE=worker; export ROLE; exec $lenet --sync ps"
    all_well "a server by its role"
    output_has "workers  *2, threads 1 each"
    job "$@" -n 2 sh -c "[ \$$rank = 1 ] && export ROLE=server; exec $lenet --sync ps"
    fails_with "rank 1 has ROLE=server, and rank 0 has no role"
    a_killed_launcher "$@"
    job "$@" -n 3 $bench
    all_well "allreduce on 3 ranks"
    output_has "allreduce (sum), 3 ranks, transport shm"
    job "$@" -n 2 $bench --transport tcp
    all_well "allreduce over TCP"
    job "$@" -n 1 $bench --ranks 2 # a job of one process may start ranks itself
    all_well "a job in a job"
    output_has "2 ranks"
    job "$@" -n 2 $lenet --workers 3
    fails_with "--workers 3, but the launcher started 2"
    job "$@" -n 2 env KOLO_SECRET_FILE="$work/none" $bench
    fails_with "secret file $work/none: No such file"
    job "$@" -n 2 env KOLO_SECRET_FILE="$work/secret" $bench
    all_well "a secret in a file"
    job "$@" -n 2 sh -c '[ $'"$rank"' = 0 ] && export KOLO_SECRET_FILE='"$work/secret; exec $bench"
    fails_with "KOLO_SECRET_FILE is set on rank 0 but not on rank 1"
    job "$@" -n 2 $bench --insecure
    all_well "--insecure"
    job "$@" -n 2 sh -c "[ \$$rank = 1 ] && flag=--insecure; exec $bench \$flag"
    fails_with "rank 0 and rank 1 disagree on --insecure"
    # A port that another job has; it waits there for a rank that never comes.
    RANK=0 WORLD_SIZE=2 MASTER_PORT=$port $bench --insecure >/dev/null 2>&1 &
    listening=$(printf ':%04X 00000000:0000 0A' "$port")
    for _ in $(seq 200); do grep -q "$listening" /proc/net/tcp && break; sleep 0.05; done
    job env KOLO_MASTER_PORT=$port "$@" -n 2 $bench
    fails_with "cannot listen on 127.0.0.1:$port: Address already in use"
    kill $!
    wait $!
    # MPI's collectives: a rank that comes too late for the others; ranks that do not agree on them.
    if ls "${kolo%/*}"/libkolo-mpi-*.so >/dev/null 2>&1; then
        job "$@" -n 2 $bench --transport mpi
        all_well "allreduce by MPI"
        output_has "transport mpi"
        job "$@" -n 2 sh -c "[ \$$rank = 1 ] && sleep 4; exec $hasty --transport mpi"
        fails_with "rank 0: MPI has waited [0-9.]* s for the last of its 2 ranks to start"
        fails_with "rank 1: MPI has waited [0-9.]* s for the last of its 2 ranks to start"
        job "$@" -n 2 sh -c "[ \$$rank = 0 ] && by=mpi; exec $hasty --transport \${by:-tcp}"
        fails_with "all ranks must use the same transport"
        job "$@" -n 3 sh -c "[ \$$rank = 2 ] && by=mpi; exec $hasty --transport \${by:-tcp}"
        fails_with "--transport.*mpi" # as reported by the rank that detects it
    fi
    # A rank that never joins; two with one number, where the environment speaks.
    job "$@" -n 2 sh -c "[ \$$rank = 1 ] && exec sleep 15; exec $hasty"
    fails_with "not all 2 processes of the launcher joined"
    job "$@" -n 3 sh -c "RANK=\$(($rank > 0)) WORLD_SIZE=3 MASTER_PORT=$port exec $bench --insecure"
    fails_with "two processes joined as rank 1"
    job "$@" -n 2 sh -c "RANK=\$$rank WORLD_SIZE=\$(($rank + 2)) MASTER_PORT=$port exec $bench --insecure"
    fails_with "ranks disagree on the world size"
}

# The rendezvous at a given port.
port=$((20000 + $$ % 10000))

if open_mpi; then
    ran=yes rank=OMPI_COMM_WORLD_RANK
    any_launcher $mpirun
    if [ "$(nproc)" -ge 2 ]; then
        for bind in core none; do # both processors are theirs, either way
            job $mpirun --bind-to $bind -n 2 $bench
            all_well "--bind-to $bind"
            ! grep -q "kolo: warning" "$work/out" || fail "2 ranks oversubscribe $(nproc) processors"
        done
    fi
    job $mpirun -n 2 env SLURM_STEP_NUM_TASKS=1 $bench
    all_well "mpirun inside of a job of one"
else
    echo "skip: no Open MPI (openmpi-bin)"
fi
if command -v mpiexec.hydra >/dev/null; then
    ran=yes rank=PMI_RANK
    any_launcher mpiexec.hydra
    # MPICH leaves a file of a process that ends within MPI_Init.
    for file in $(find /dev/shm -name 'mpich_shar_tmp*' -newer "$work/secret"); do
        grep -qsF "$file" /proc/[0-9]*/maps || rm -f "$file"
    done
else
    echo "skip: no MPICH (mpich)"
fi

# Several processes without a process manager do not train independently.
job env SLURM_STEP_NUM_TASKS=4 $lenet
fails_with "srun has started 4 processes but provides no process manager"
job env PMI_SIZE=2 PMI_RANK=0 $lenet
fails_with "the launcher has started 2 processes but provides"
job env RANK=0 WORLD_SIZE=1 SLURM_STEP_NUM_TASKS=4 $lenet
all_well "a process alone among several"

finish_tests
[ $failures = 0 ] && [ $ran = no ] && exit 77
exit $((failures > 0))
