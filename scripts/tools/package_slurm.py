#!/usr/bin/env python3
"""package_slurm.py USER FOLDER SPACE: the installed dstune-mpi under a Slurm of its own, by root.

The user prints a batch script in a folder that is no checkout, submits it there, and the job runs on two
ranks to its end. mpi_tests/slurm/cluster.py has to lie beside this file. package_systems.sh calls it.
"""
import json
import pathlib
import pwd
import subprocess
import sys

from cluster import Cluster, missing


def main():
    user, folder, space = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    if missing():
        sys.exit(missing())
    script = folder / "tune.sbatch"
    as_user = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": pwd.getpwnam(user).pw_dir, "USER": user}
    printed = subprocess.run(["dstune-mpi", "batch", "slurm", "--nodes", "1", "--tasks-per-node", "2", space],
                             cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, check=True, **as_user)
    script.write_text(printed.stdout, encoding="utf-8")
    print(printed.stdout)
    with Cluster(nodes=1) as cluster:
        variables = {**environment, "SLURM_CONF": cluster.variables["SLURM_CONF"],
                     "OMPI_MCA_rmaps_base_oversubscribe": "1",
                     "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
        submitted = cluster.command("sbatch", "--parsable", str(script), cwd=folder, env=variables, **as_user)
        if submitted.returncode != 0:
            sys.exit(f"sbatch: {submitted.stdout}")
        number = int(submitted.stdout.split(";")[0])
        fields = cluster.wait([number], 300)[number]
    for log in sorted(folder.glob("*.log")):
        print(log.read_text(encoding="utf-8", errors="replace"))
    status = json.loads((folder / "autotuning_results" / "exit_status.json").read_text(encoding="utf-8"))
    print(fields["JobState"], fields["ExitCode"], fields["UserId"], status)
    if fields["JobState"] != "COMPLETED" or status["exit_code"] != 0:
        sys.exit(1)
    print((folder / "autotuning_results" / "ds_config_optimal.json").read_text(encoding="utf-8"))


main()
