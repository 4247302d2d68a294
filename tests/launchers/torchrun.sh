#!/bin/sh
# Jobs started by torchrun (TORCHRUN, or the one on the path). Exits with 77 without one that works.
#     torchrun.sh BUILD_FOLDER
set -u
build=$(realpath "$1")
kolo=$build/kolo
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../hosts/net.sh"
. "$here/expect.sh"
torchrun=$(command -v "${TORCHRUN:-torchrun}") || { echo "skip: no torchrun (TORCHRUN, PyPI's torch)"; exit 77; }
printf 'import os\nassert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True"\n' >"$work/store.py"
timeout 60 "$torchrun" --standalone --nproc-per-node 1 "$work/store.py" >"$work/out" 2>&1 ||
    { tail -n 3 "$work/out"; echo "skip: $torchrun does not work or has no store"; exit 77; }
trap 'hosts_down; rm -rf "$work"' EXIT
export PYTHONPATH="$here/../../python" KOLO_LIBRARY="$build/libkolo-comm.so" PYTHONDONTWRITEBYTECODE=1
port=$((20000 + $$ % 10000))

cat >"$work/program.py" <<'END'
import array, os, sys
import kolo

for group in range(2):  # a program may leave its group and join again
    with kolo.init(timeout_s=20) as comm:
        total = comm.allreduce(array.array("f", [comm.rank + 1.0]))
        assert list(total) == [comm.size * (comm.size + 1) / 2], total
if "restart" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and comm.rank == 1:
    sys.exit(3)
if "late" in sys.argv:
    if comm.rank == 1:
        sys.stdin.read()
        sys.exit(0)
    kolo.init(timeout_s=1)
print(f"rank {comm.rank} of {comm.size}, {len(set(comm.hosts))} hosts, done")
END

cat >"$work/backend.py" <<'END'
import torch, torch.distributed as dist, kolo.torch
for group in range(2):  # a program may leave its group and join again
    dist.init_process_group("kolo")
    tensor = torch.full((5,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    assert (tensor == 3).all(), tensor
    rank = dist.get_rank()
    dist.destroy_process_group()
print(f"rank {rank} has left torch.distributed twice")
END

# ranks_done N HOSTS: each of N ranks has printed its last line.
ranks_done() {
    for r in $(seq 0 $(($1 - 1))); do output_has "rank $r of $1, $2 hosts, done"; done
}

job "$torchrun" --nproc-per-node 2 "$work/program.py"
all_well "a Python program"
ranks_done 2 1
job "$torchrun" --max-restarts 1 --nproc-per-node 2 "$work/program.py" restart
all_well "a job that torchrun restarts"
ranks_done 2 1
job "$torchrun" --nproc-per-node 2 "$work/backend.py"
if grep -q 'backend "kolo" needs PyTorch' "$work/out"; then
    echo "not tested: the backend of torch.distributed, for which this PyTorch is too old"
else
    all_well "the backend of torch.distributed"
    for r in 0 1; do output_has "rank $r has left torch.distributed twice"; done
fi
job "$torchrun" --no-python --nproc-per-node 2 "$kolo" train --model lenet --data synthetic:N=512 --steps 4 --batch 16 \
    --timeout 20 --progress none
all_well "kolo train"
output_has "workers  *2, threads 1 each"
job env KOLO_MASTER_PORT=$port KOLO_SECRET_FILE="$work/secret" "$torchrun" --nproc-per-node 2 "$work/program.py"
all_well "without the store"
ranks_done 2 1
job env KOLO_SECRET_FILE="$work/none" "$torchrun" --no-python --nproc-per-node 2 "$kolo" bench allreduce --sizes 8 --timeout 5
fails_with "secret file $work/none: No such file"
job "$torchrun" --nproc-per-node 3 "$work/program.py" late
[ $ended != 0 ] || fail "a rank that does not come"
output_has "1 of 3 ranks\|2 of 3 ranks have joined within .*; missing: rank 1"

# agents ADDRESS: two agents of two ranks each; the first one serves the store at that address.
agents() {
    endpoint=$1
    shift
    for node in 1 2; do
        on_node $node "$torchrun" --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint $endpoint:$port \
            --rdzv-conf is_host=$((node == 1)) --local-addr "$(address_of $node)" "$work/program.py" >"$work/node$node" 2>&1 </dev/null &
        eval "agent$node=$!"
    done
    wait $agent1
    ended=$?
    wait $agent2 || ended=$?
    asked="torchrun --nnodes 2 --rdzv-endpoint $endpoint:$port"
    tail -n 20 "$work/node1" "$work/node2" >"$work/out"
}
address_of() { echo 127.0.0.1; }
on_node() { shift; timeout -k 2 $limit "$@"; }
agents 127.0.0.1
all_well "two agents on one host"
ranks_done 4 1
if hosts_possible; then
    hosts_up 2
    address_of() { echo "10.77.0.$1"; }
    on_node() { on_host "$@"; }
    agents 10.77.0.1
    all_well "two hosts"
    ranks_done 4 2
fi

finish_tests
exit $((failures > 0))
