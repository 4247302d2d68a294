# What the tests of launchers share, to be read by them (. expect.sh): a folder $work with a secret in it, and
# the count of $failures.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")
failures=0
limit=60 # seconds of a job
export TMPDIR="$work" # Open MPI keeps the state of a job there

# open_mpi: true when Open MPI is there; $mpirun then starts it, also as root and with more ranks than cores.
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

# job COMMAND...: runs it; what it said is in $work/out, how it ended in $ended, how long it took in $took. Hydra's proxy
# breaks when it answers a process that it has just ended, and what ranks said last is lost with it: then once more.
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
says() { grep -q -- "$1" "$work/out" || fail "does not say '$1': $asked"; }

# fails_with TEXT: some rank (the launcher may end the others first) has said why in one line, in good time.
fails_with() {
    [ $ended != 0 ] || fail "should fail: $asked"
    grep -q -- "^kolo: .*$1" "$work/out" || fail "does not say '$1': $asked"
    [ $took -lt 14 ] || fail "took $took s: $asked"
}

finish_tests() { [ $failures != 0 ] || echo "launchers: all well"; }
