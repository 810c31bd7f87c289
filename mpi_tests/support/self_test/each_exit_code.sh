#!/bin/sh
# Runs a program as one rank, prints with which code it left, and leaves with the same. The rank
# ODD_RANK gets ODD_ARGUMENT on top.
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
[ "$rank" != "${ODD_RANK:-none}" ] || set -- "$@" "$ODD_ARGUMENT"
"$@"
code=$?
echo "rank $rank left with $code"
# The others' lines must be out before mpirun takes a failing rank as the end of the job.
sleep 1
exit $code
