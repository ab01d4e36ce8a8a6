#!/bin/sh
# A run on several nodes of a Slurm cluster: the head on the first one, collectors on all of them.
#   sbatch --nodes=3 --ntasks-per-node=1 examples/hosts.sh run.toml
# The folder of the run must be on storage that all nodes share. On a single machine, for a try without Slurm:
#   SLURM_JOB_NODELIST=local sh examples/hosts.sh run.toml
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
set -eu
config=$1

if command -v scontrol >/dev/null; then
    nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
    cores=${SLURM_CPUS_ON_NODE:-1}
    address=$(hostname -I | cut -d ' ' -f 1)
else
    nodes="local a b"
    cores=1
    address=127.0.0.1
fi

# Hosts are called node1, node2, ...; the head has one as well, beside its learner.
hosts=""
names='"head"'
number=0
for node in $nodes; do
    number=$((number + 1))
    [ "$number" -eq 1 ] && continue
    hosts="$hosts${hosts:+, }node$number = $cores"
    names="$names, \"node$number\""
done
run=$(hive up "$config" -d --set "hosts.cores={ $hosts }" --set "hosts.address=$address" \
    --set "collection.hosts=[$names]" --set "collection.workers=$((cores * number))")
echo "run $run"

number=0
for node in $nodes; do
    number=$((number + 1))
    [ "$number" -eq 1 ] && continue
    file="${HIVE_HOME:-runs}/$run/hosts/node$number.join"
    if command -v srun >/dev/null; then
        srun --nodes=1 --ntasks=1 --nodelist="$node" hive join "$file" &
    else
        hive join "$file" &
    fi
done
wait  # for the hosts, which leave when the run ends
hive ls
