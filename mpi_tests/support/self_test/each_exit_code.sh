#!/bin/sh
# Runs a program as one rank, prints with which code it left, and leaves with the same.
"$@"
code=$?
echo "rank ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} left with $code"
# The others' lines must be out before mpirun takes a failing rank as the end of the job.
sleep 1
exit $code
