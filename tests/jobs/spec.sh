#!/bin/bash
#SBATCH --job-name=my-1st-run
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=08:00:00
#SBATCH --partition=gpu,long
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=my-1st-run-%j.log
# Made by `llmtui engine script`. sbatch takes it; 300 s before the time limit the run saves a checkpoint and the job is
# requeued, until the run is complete. scancel ends it at a checkpoint, if that is saved within the cluster's KillWait (30 s by
# default). Tokens belong in the environment, not here.

: "${SLURM_JOB_ID:?give this script to sbatch}"
cd '/home/o'\''neill/my project' || exit 3
llmtui=${LLMTUI:-/opt/bin/llmtui}
runs='/scratch/o'\''neill/runs & more'
mkdir -p "$runs" || exit 3

# The program alone gets the signal: it saves a checkpoint and ends, and its ranks with it.
ending=
program=
forward() {
    interrupted=1
    [ -z "$program" ] || kill -s "$1" "$program" 2> /dev/null
}
trap 'ending=again; forward USR1' USR1
trap 'ending=${ending:-stop}; forward TERM' TERM

# Which run is this job's: one that begins again goes on with it.
note="$runs/.job-$SLURM_JOB_ID"
if [ -s "$note" ]; then
    run=$(cat "$note")
else
    run=$("$llmtui" --runs-dir "$runs" train 'it'\''s $mine.yaml' -s engine=torch -s 'data.path=/data/a b/"x".txt' --no-start) || exit
    printf '%s\n' "$run" > "$note" || exit 3
fi
echo "job: run $run"

before=$(ls "$run/checkpoints" 2> /dev/null)
"$llmtui" --runs-dir "$runs" train --resume "$run" --headless &
program=$!
[ -z "$ending" ] || forward TERM
while
    interrupted=
    wait "$program"
    status=$?
    [ -n "$interrupted" ]
do :; done
program=

state=$("$llmtui" --runs-dir "$runs" engine state "$run") || exit
echo "job: the program ended with $status, the run is $state"
if [ "$state" = finished ]; then
    rm -f "$note" "$note.idle"
    exit 0
fi
if [ "$ending" = again ] && { [ "$status" -eq 0 ] || [ "$status" -gt 128 ]; }; then
    if [ "$(ls "$run/checkpoints" 2> /dev/null)" = "$before" ]; then
        echo idle >> "$note.idle"
        if [ "$(wc -l < "$note.idle")" -ge 3 ]; then
            echo "job: no new checkpoint 3 times; use more --time, or a smaller checkpoint.every" >&2
            exit 1
        fi
    else
        rm -f "$note.idle"
    fi
    scontrol requeue "$SLURM_JOB_ID" && exit 0
    echo "job: not requeued; continue with: llmtui engine script $run --slurm" >&2
    exit 1
fi
if [ "$status" -eq 0 ]; then
    echo "job: stopped on request; continue with: llmtui engine script $run --slurm"
fi
exit "$status"
