#!/bin/bash -l
#SBATCH --job-name=horovod-n128-TAG
#SBATCH --nodes=128
#SBATCH --exclusive
#SBATCH --time=0-01:30:00
#SBATCH --output=RUN_DIR/slurm-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --constraint=gpu
#SBATCH --partition=normal
#SBATCH --account=s123

# harness: horovod, resnet50, 128 nodes with workers, 5 repeats
# Everything is in RUN_DIR; `harness jobs collect` makes the record once this job has ended.

# The site's part; what fails here would be measured wrongly.
set -o errexit
# Modules in TCL end with exit code 0 whatever happens, but say so.
load() {
    local said
    said=$(mktemp)
    module load "$1" 2>"$said"
    cat "$said" >&2
    if grep -q ERROR "$said"; then echo "the module $1 was not loaded" >&2; exit 1; fi
    rm "$said"
}
load daint-gpu
set +o errexit -o nounset

worker=WORKER

# One repeat: one srun starts every process of the plan in that run directory. The host file says where each task goes, the
# task's number which process it is. The first process that fails ends all of them; so does --wait, in seconds, once one has left.
measure() {
    local run=$1 repeat=$2 nodes=$3 tasks=$4 mpi=$5 python=$6 host_python=$7
    shift 7
    "$host_python" "$worker/agent/seat.py" --run "$run" --repeat "$repeat" --address '{host}' --promised LOADEDMODULES --cpus 24 \
        || { [ $? = 3 ]; return; }  # 3: it shall not be measured (again), which is no failure
    SLURM_HOSTFILE="$run/repeat-$repeat/hostfile" srun --distribution=arbitrary --nodes="$nodes" --ntasks="$tasks" --mpi="$mpi" \
        --export=ALL --kill-on-bad-exit=1 --wait=60 --overcommit --cpu-bind=none \
        "$@" "$python" "$worker/agent/task.py" --run "$run" --repeat "$repeat" </dev/null
    local code=$?
    "$host_python" "$worker/agent/seat.py" --run "$run" --repeat "$repeat" --ended "$code"
    return "$code"
}

# run directory, repeat, nodes, tasks, MPI, Python of the backend's environment or image, Python beside it, what opens the image
code=0
measure RUN_DIR 1 128 128 pmi2 PYTHON PYTHON || code=$?
measure RUN_DIR 2 128 128 pmi2 PYTHON PYTHON || code=$?
measure RUN_DIR 3 128 128 pmi2 PYTHON PYTHON || code=$?
measure RUN_DIR 4 128 128 pmi2 PYTHON PYTHON || code=$?
measure RUN_DIR 5 128 128 pmi2 PYTHON PYTHON || code=$?
exit "$code"
