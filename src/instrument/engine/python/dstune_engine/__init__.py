"""The Python half of the workload `deepspeed`: DeepSpeed's engine in the ranks of a job.

The program hands commands to the main thread of each rank, one at a time, and takes a reply to
each. `main` has the loop, `commands` the commands. Nothing here imports torch before "prepare".
"""
