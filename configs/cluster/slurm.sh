#!/bin/bash
# Trains on several nodes under Slurm, with one task per node, which uses all of its GPUs:
#
#   sbatch configs/cluster/slurm.sh bert_tf.run_pretraining --flagfile=configs/base.flags \
#     --input_file=/shared/text/*.txt --output_dir=/shared/runs/base
#
# Run it from the repository. Input and run directory must be on a file system that all nodes share.
# Each task gets SIGTERM two minutes before the time limit: it saves and ends with 75, and the job is
# requeued. After the loss of a worker (69; 137 if it was killed) the script restarts all workers.
#SBATCH --job-name=bert_tf
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -uo pipefail

STOPPED=75
LOST=69
KILLED=137
MOST_RESTARTS=5

for ((restart = 0; restart <= MOST_RESTARTS; restart++)); do
  # block: tasks are numbered node by node, as the launcher expects. Not --kill-on-bad-exit: workers
  # find out themselves who is gone, and say so.
  srun --distribution=block --label python -m bert_tf.launch --slurm -- "$@"
  status=$?
  case $status in
    "$STOPPED")
      scontrol requeue "$SLURM_JOB_ID"
      exit 0
      ;;
    "$LOST" | "$KILLED") echo "Status $status: starting all workers again." ;;
    *) exit "$status" ;;
  esac
done
exit "$status"
