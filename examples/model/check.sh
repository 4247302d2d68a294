#!/bin/sh
# The command trains, continues, evaluates, predicts with and prints the model of the example; what does not fit is
# refused in one line.
#     check.sh KOLO MINE.SO
set -eu
kolo=$1 object=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
cp "$object" mine.so
data="--data synthetic:N=64,test=16,shape=1x8x8,classes=4 --threads 1 --quiet"
small=--model\ ./mine.so:hidden=8
"$kolo" train $small $data --workers 2 --batch 4 --steps 8 --checkpoint-every 4 --out run
"$kolo" train --resume run --steps 16 --threads 1 --quiet # the model is in config.yaml
grep -q '^model: .*mine.so:hidden=8' run/config.yaml
grep -q '^lr: 0.002' run/config.yaml # of its recipe
final=run/checkpoint-final.safetensors
"$kolo" eval $small --checkpoint $final $data
"$kolo" predict $small --checkpoint $final --data synthetic:N=64,test=16,shape=1x8x8,classes=4 --samples 1 --top 1
"$kolo" dump $small --what plan >plan
grep -q silu plan
"$kolo" checkpoint verify $final
# A recipe of options without defaults.
LC_ALL=C sed 's/optimizer=adam lr=0.002/batch=16 augment=flip  /' mine.so >other.so
"$kolo" train --model ./other.so --data synthetic:N=64,test=16,shape=1x8x8,classes=4 --threads 1 --epochs 1 2>&1 | grep -q -- "--batch 16 --augment flip"

# refused STATUS TEXT COMMAND...: prints one line with the text and exits with the status.
refused() {
    want=$1 text=$2 status=0
    shift 2
    "$kolo" "$@" 2>error >out || status=$?
    [ "$status" = "$want" ] && [ "$(wc -l <error)" = 1 ] && grep -q -- "$text" error && return
    cat error
    echo "status $status instead of $want, or not \"$text\": kolo $*"
    exit 1
}
refused 2 "code: name it yourself" eval --checkpoint $final $data
refused 2 "kolo_session_export_onnx" checkpoint export $final --format onnx --out net.onnx
refused 2 "no option \"hiden\"" train --model ./mine.so:hiden=8 $data --steps 1
echo "int main(void) { return 0; }" >text.so
refused 1 "not a shared object" train --model ./text.so $data --steps 1
head -c 5000 mine.so >short.so
refused 1 "cut off" train --model ./short.so $data --steps 1
mkdir folder.so
refused 1 "folder.so" train --model ./folder.so $data --steps 1
refused 1 "missing.so" train --model ./missing.so $data --steps 1
# A fault, its status and a program that has it.
for fault in "2|no function kolo_model_entry|int kolo_other;" \
    "2|version 77 of models|const void *kolo_model_entry(int *v) { *v = 77; return 0; }" \
    "1|has no model|const void *kolo_model_entry(int *v) { *v = 2; return 0; }" \
    "2|undefined symbol|void kolo_gone(void); const void *kolo_model_entry(int *v) { kolo_gone(); return v; }"; do
    rest=${fault#*|}
    echo "${rest#*|}" | ${CC:-cc} -shared -fPIC -x c - -o fault.so
    refused "${fault%%|*}" "${rest%%|*}" dump --model ./fault.so
done
echo "mine.so: trained, continued, evaluated; faults refused"
