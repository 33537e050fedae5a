#!/usr/bin/env bash
#SBATCH --job-name=cse
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --exclusive
# Run a sweep under Slurm, from the repository's root, which must be on a shared disk:
#
#   sbatch --export=ALL,CSE_DATA=/project/data experiments/clusters/slurm.sh rankcse --scale paper
#
# The arguments after the script are sweep.py's. Re-run the same command to resume after the time limit. The disk that all
# nodes share has the record and MLflow's database in mlruns/, and in CSE_SHARED the run folders, with states of unfinished
# runs that are up to ten minutes old. Each node works in a new folder on its local disk, below CSE_SCRATCH or /tmp, which
# is deleted with the job. Each job has a new token. It needs whole nodes: Ray can't start beside another Ray.
set -euo pipefail
[ -z "${CSE_VENV=.venv}" ] || . "$CSE_VENV/bin/activate"

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes%%$'\n'*}  # not `| head -n 1`: a closed pipe can kill scontrol
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN CSE_RAY=auto
export CSE_SHARED=${CSE_SHARED:-file://$PWD/mlruns/shared}
export CSE_STORE=${CSE_SCRATCH:-/tmp}/cse-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300  # seconds: imports from a shared disk take their time
status=$(mktemp "$PWD/.sweep-XXXXXX")  # Ray's command does not return the sweep's exit status
trap 'rm -f "$status"' EXIT

srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
    bash -c 'mkdir -m 700 "$CSE_STORE" && trap "rm -rf \"$CSE_STORE\"" EXIT && "$@"' node \
    ray symmetric-run --address "$head:6379" \
    --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus "${SLURM_CPUS_PER_TASK:-1}" --num-gpus "${SLURM_GPUS_ON_NODE:-0}" -- \
    bash -c 'python experiments/sweep.py "${@:2}"; echo $? > "$1"' sweep "$status" "$@"
exit "$(grep . "$status" || echo 1)"
