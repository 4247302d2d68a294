# Common functions of the launcher tests, to be sourced (. expect.sh): a folder $work with a secret file, and
# the number of $failures.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")
failures=0
limit=60 # seconds of a job
export TMPDIR="$work" # Open MPI keeps the state of a job there

# open_mpi: true if Open MPI is installed; $mpirun then starts it, also as root and with more ranks than cores.
open_mpi() {
    for mpirun in mpirun.openmpi mpirun; do
        "$mpirun" --version 2>/dev/null | grep -q "Open MPI" || continue
        mpirun="$mpirun --oversubscribe"
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        return 0
    done
    return 1
}

fail() {
    echo "FAILED: $1"
    cat "$work/out"
    failures=$((failures + 1))
}

# job COMMAND...: runs it; its output is in $work/out, its exit status in $ended, its duration in $took. Hydra's proxy
# crashes when it answers a process that it has just ended, and loses the last output of ranks: then runs it again.
job() {
    asked="$*"
    for try in 1 2 3; do
        began=$(date +%s)
        timeout -k 2 $limit "$@" >"$work/out" 2>&1 </dev/null
        ended=$? took=$(($(date +%s) - began))
        grep -q "HYDU_sock_write .*Broken pipe" "$work/out" || return 0
        [ $try = 3 ] || echo "again, as Hydra broke: $asked"
    done
}

all_well() { [ $ended = 0 ] || fail "$1: ended with $ended: $asked"; }
output_has() { grep -q -- "$1" "$work/out" || fail "no output '$1': $asked"; }

# fails_with TEXT: some rank (the launcher may end the others first) has reported the error in one line, in time.
fails_with() {
    [ $ended != 0 ] || fail "should fail: $asked"
    grep -q -- "^kolo: .*$1" "$work/out" || fail "no output '$1': $asked"
    [ $took -lt 14 ] || fail "took $took s: $asked"
}

finish_tests() { [ $failures != 0 ] || echo "launchers: all well"; }
