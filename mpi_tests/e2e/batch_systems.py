#!/usr/bin/env python3
"""Stand-ins of the commands of batch systems, as far as our scripts use them.

    batch_systems.py SYSTEM FOLDER COMMAND [ARGUMENTS...]

Options that the real command does not have are refused. Formats are those of the manuals:
qsub(1B), qstat(1B) and pbs_job_attributes(7B) of OpenPBS; bsub, bjobs -o and brequeue of LSF 10.1's
command reference; flux-batch(1), flux-job(1), flux-environment(7) of flux-core; squeue(1) and
scontrol(1) of Slurm.
"""
import getopt
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

from batch_system import System


class Pbs(System):
    commands = ("qsub", "qstat")
    sentinel = "#PBS"
    options = "A:a:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:X"
    attributes = {
        "N": "Job_Name", "A": "Account_Name", "q": "queue", "P": "project", "j": "Join_Path",
        "m": "Mail_Points", "M": "Mail_Users", "p": "Priority", "r": "Rerunable",
        "o": "Output_Path", "e": "Error_Path"
    }

    def submit_words(self, script, options, arguments):
        return ["qsub", *options, script, *arguments], False

    def qsub(self, words):
        given, rest = getopt.getopt(words, self.options)
        path = pathlib.Path(rest[0])
        script = path.read_text(encoding="utf-8")
        request, variables = {
            "Job_Name": path.name[:15], "project": "_pbs_project_default", "queue": "workq"
        }, {}
        written, _ = getopt.getopt(self.directives(script), self.options)
        for option, value in [*written, *given]:
            letter = option[1]
            if letter == "l":
                for part in value.split(","):
                    name, _, amount = part.partition("=")
                    request[f"Resource_List.{name}"] = amount
            elif letter == "W":
                name, _, amount = value.partition("=")
                request[name] = amount
            elif letter == "V":
                variables.update(os.environ)
            elif letter == "v":
                for name, _, text in (part.partition("=") for part in variable_list(value)):
                    variables[name] = text or os.environ.get(name, "")
            else:
                request[self.attributes.get(letter, letter)] = value
        here = os.getcwd()
        number = self.add(script, request,
                          {**variables, "PBS_O_WORKDIR": here, "PBS_O_QUEUE": request["queue"]},
                          here)
        print(f"{number}.server")

    def qstat(self, words):
        given, rest = getopt.getopt(words, "fxF:")
        if ("-f", "") not in given or len(rest) != 1:
            sys.exit("qstat: this stand-in knows -f JOB alone")
        job = self.job(int(rest[0].partition(".")[0]))
        used = int(time.time() - job["began"])
        lines = {
            "Job_Name": "", "Job_Owner": "me@login", "job_state": "R", "queue": "",
            "server": "server", **job["request"], "Resource_List.nodect": "2",
            "resources_used.walltime": f"00:00:{used % 60:02}",
            "Variable_List": ",".join(f"{name}={value}" for name, value in job["variables"].items())
        }
        lines.update(dict(line.split(" = ", 1) for line in self.told("").splitlines()))
        print(f"Job Id: {job['number']}.server")
        for name, value in lines.items():
            if value != "none":
                print(broken(f"    {name} = {value}"))
        print()

    def job_variables(self, job):
        number = job["number"]
        nodes = self.folder / f"nodes-{number}"
        nodes.write_text("localhost\nlocalhost\n", encoding="utf-8")
        return {
            "PBS_JOBID": f"{number}.server", "PBS_NODEFILE": str(nodes),
            "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBNAME": job["request"]["Job_Name"],
            "PBS_QUEUE": job["request"]["queue"]
        }

    def start_folder(self, job):
        # A job of PBS starts in the home.
        return self.folder


def variable_list(text):
    """The parts of the value of -v; a comma in quotes is none between them."""
    parts = shlex.shlex(text, posix=True)
    parts.whitespace, parts.whitespace_split, parts.commenters = ",", True, ""
    return list(parts)


def broken(line):
    """As qstat -f breaks what is longer than a line: at a comma, a longer piece anywhere."""
    text, length = "", 0
    for place, piece in enumerate(line.split(",")):
        piece = piece if place == 0 else f",{piece}"
        if length + len(piece) > 78 and place > 0:
            text, piece, length = f"{text},\n\t", piece[1:], 0
        while length + len(piece) > 78:
            room = 78 - length
            text, piece, length = f"{text}{piece[:room]}\n\t", piece[room:], 0
        text, length = text + piece, length + len(piece)
    return text


class Lsf(System):
    commands = ("bsub", "bjobs", "brequeue")
    sentinel = "#BSUB"
    cancel_signals = (signal.SIGINT, signal.SIGTERM)
    flags = ("-x", "-r", "-rn", "-B", "-N", "-H")
    valued = ("-J", "-n", "-R", "-W", "-P", "-q", "-o", "-oo", "-e", "-eo", "-G", "-app", "-gpu",
              "-nnodes", "-u", "-Q", "-alloc_flags", "-sp", "-m", "-w", "-b")

    def submit_words(self, script, options, arguments):
        return ["bsub", *options], True

    def read_options(self, words):
        request, words = {}, list(words)
        while words:
            name = words.pop(0)
            if name not in self.flags + self.valued:
                sys.exit(f"{name}: Illegal option. Job not submitted.")
            request[name] = "yes" if name in self.flags else words.pop(0)
        return request

    def bsub(self, words):
        script = sys.stdin.read()
        request = {**self.read_options(self.directives(script)), **self.read_options(words)}
        here = os.getcwd()
        number = self.add(script, request, {**os.environ, "LS_SUBCWD": here}, here)
        print(f"Job <{number}> is submitted to queue <{request.get('-q', 'normal')}>.")

    def bjobs(self, words):
        if words[:3] != ["-noheader", "-o", "time_left"] or len(words) != 4:
            sys.exit("bjobs: this stand-in knows -noheader -o time_left JOB alone")
        job = self.job(int(words[3]))
        hours, minutes = job["request"]["-W"].split(":")
        left = int(hours) * 60 + int(minutes) - int(time.time() - job["began"]) // 60 - 1
        print(self.told(f"{left // 60}:{left % 60} L"))

    def brequeue(self, words):
        job = self.job(int(words[0]))
        print(f"Job <{job['number']}> is being requeued", flush=True)
        self.requeue(job)

    def job_variables(self, job):
        number = job["number"]
        hosts = self.folder / f"hosts-{number}"
        hosts.write_text("localhost\nlocalhost\n", encoding="utf-8")
        return {
            "LSB_JOBID": str(number), "LSB_JOBNAME": job["request"].get("-J", ""),
            "LSB_DJOB_NUMPROC": "2", "LSB_DJOB_HOSTFILE": str(hosts),
            "LSB_MCPU_HOSTS": "localhost 2", "LSB_QUEUE": job["request"].get("-q", "normal")
        }


class Flux(System):
    commands = ("flux",)
    sentinel = "# flux:"
    cancel_signals = (signal.SIGHUP,)
    short = "N:n:c:g:t:q:B:x"
    names = {
        "-N": "nodes", "-n": "nslots", "-c": "cores-per-slot", "-g": "gpus-per-slot",
        "-t": "time-limit", "-q": "queue", "-B": "bank", "-x": "exclusive"
    }
    long = [
        "job-name=", "nodes=", "nslots=", "cores-per-slot=", "gpus-per-slot=", "time-limit=",
        "bank=", "queue=", "output=", "error=", "exclusive", "requires=", "setattr=", "urgency=",
        "dependency=", "env="
    ]
    # flux-environment(7), "INITIAL PROGRAM ENVIRONMENT".
    unset = ("FLUX_JOB", "FLUX_TASK", "FLUX_KVS_NAMESPACE", "PMI_", "SLURM_")

    def submit_words(self, script, options, arguments):
        return ["flux", "batch", *options, script, *arguments], False

    def flux(self, words):
        parent = words[0] == "--parent"
        words = words[1:] if parent else words
        if words[0] == "batch":
            self.batch(words[1:])
        elif words == ["getattr", "jobid"]:
            print(os.environ["STAND_IN_JOB"])
        elif words == ["getattr", "size"]:
            print(1)
        elif words == ["job", "timeleft"]:
            job = self.job_of(os.environ["STAND_IN_JOB"])
            system = job["request"]["attributes"]["system"]
            print(self.told(str(int(system["duration"] - (time.time() - job["began"])))))
        elif words[:2] == ["job", "info"] and parent:
            job = self.job_of(words[-2])
            spec = job["request"]
            if "--original" not in words:
                # The job manager keeps the environment out of what others may read.
                spec["attributes"]["system"].pop("environment")
            print(json.dumps(spec))
        elif words[:2] == ["job", "submit"] and parent:
            self.add_spec(json.load(sys.stdin))
        elif words[0] == "run":
            self.start_ranks(words[1:])
        elif words == ["job", "last"]:
            print((self.folder / "ranks").read_text(encoding="utf-8"))
        elif words[:2] == ["job", "kill"]:
            os.kill(int(words[3]), getattr(signal, words[2].removeprefix("--signal=")))
        elif words[0] == "python":
            os.execv(sys.executable, [sys.executable, *words[1:]])
        else:
            sys.exit(f"flux: this stand-in does not know {' '.join(words)}")

    def start_ranks(self, words):
        """Ranks have a session of their own: they live on where "flux run" is told to end."""
        given, command = getopt.getopt(words, "N:n:c:g:o:")
        ranks = dict(given)["-n"]
        launcher = [] if ranks == "1" else [
            "mpirun", "-np", ranks, "--bind-to", "none", "--oversubscribe"
        ]
        process = subprocess.Popen([*launcher, *command], start_new_session=True)
        (self.folder / "ranks").write_text(str(process.pid), encoding="utf-8")
        sys.exit(process.wait())

    def job_of(self, name):
        return self.job(int(name.removeprefix("ƒ"), 36) // 36**4)

    def batch(self, words):
        script = pathlib.Path(getopt.gnu_getopt(words, "+" + self.short,
                                                self.long)[1][0]).read_text(encoding="utf-8")
        request = {}
        written, _ = getopt.getopt(self.directives(script), self.short, self.long)
        given, rest = getopt.getopt(words, self.short, self.long)
        for option, value in [*written, *given]:
            request[self.names.get(option, option.lstrip("-"))] = value
        system = {
            "duration": float(request["time-limit"].rstrip("s")), "cwd": os.getcwd(),
            "environment": dict(os.environ), "job": {"name": request.get("job-name", "")},
            "files": {"script": {"data": script}}, **{
                name: request[name]
                for name in ("queue", "bank") if name in request
            }, "stand_in": {"options": request, "arguments": rest[1:]}
        }
        self.add_spec(
            {"version": 1, "resources": [], "tasks": [], "attributes": {"system": system}})

    def add_spec(self, spec):
        system = spec["attributes"]["system"]
        variables = {
            name: value
            for name, value in system["environment"].items()
            if not name.startswith(self.unset)
        }
        number = self.add(system["files"]["script"]["data"], spec, variables, system["cwd"],
                          system["stand_in"]["arguments"])
        print(self.name_of(number))

    def name_of(self, number):
        digits, value = "", number * 36**4
        while value:
            digits, value = "0123456789abcdefghijklmnopqrstuvwxyz"[value % 36] + digits, value // 36
        return f"ƒ{digits}"

    def job_variables(self, job):
        return {"FLUX_URI": "local:///run/flux/local", "STAND_IN_JOB": self.name_of(job["number"])}


class Slurm(System):
    """Slurm's answers alone: mpi_tests/slurm has a real one."""
    commands = ("sbatch", "squeue", "scontrol")
    sentinel = "#SBATCH"

    def submit_words(self, script, options, arguments):
        return ["sbatch", *options, script, *arguments], False

    def sbatch(self, words):
        place = next(index for index, word in enumerate(words) if not word.startswith("-"))
        script = pathlib.Path(words[place]).read_text(encoding="utf-8")
        request = dict(
            word.lstrip("-").split("=", 1)
            for word in [*self.directives(script), *words[:place]]
            if "=" in word)
        number = self.add(script, request, dict(os.environ), os.getcwd(), words[place + 1:])
        print(f"Submitted batch job {number}")

    def squeue(self, words):
        if words[:2] != ["-h", "-j"] or words[3:] != ["-o", "%L"]:
            sys.exit("squeue: this stand-in knows -h -j JOB -o %L alone")
        print(self.told("59:59"))

    def scontrol(self, words):
        if words[0] != "requeue":
            sys.exit("scontrol: this stand-in knows requeue alone")
        self.requeue(self.job(int(words[1])))

    def job_variables(self, job):
        count = {"SLURM_RESTART_COUNT": str(job["runs"] - 1)} if job["runs"] > 1 else {}
        return {
            "SLURM_JOB_ID": str(job["number"]), "SLURM_SUBMIT_DIR": job["folder"],
            "SLURM_NTASKS": "2", **count
        }


SYSTEMS = {"slurm": Slurm, "pbs": Pbs, "lsf": Lsf, "flux": Flux}

if __name__ == "__main__":
    getattr(SYSTEMS[sys.argv[1].lower()](sys.argv[2]), sys.argv[3])(sys.argv[4:])
