"""What stand-ins of batch systems have in common: jobs as files of a folder, and what starts them.

    system = Pbs(folder).install()       # the commands are in folder/bin
    system.submit("job.pbs", folder=..., options=["-q", "long"], variables={...})
    system.run()                         # each job, and those that are submitted meanwhile
"""
import fcntl
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

BASE = {"HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8", "USER": "me", "LOGNAME": "me"}


class System:
    commands = ()
    sentinel = ""
    cancel_signals = (signal.SIGTERM,)

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def install(self):
        (self.folder / "bin").mkdir(parents=True)
        module = os.path.abspath(sys.modules[type(self).__module__].__file__)
        for name in self.commands:
            path = self.folder / "bin" / name
            path.write_text(
                f'#!/bin/sh\nexec "{sys.executable}" -B "{module}" '
                f'{type(self).__name__} "{self.folder}" {name} "$@"\n',
                encoding="utf-8")
            path.chmod(0o755)
        return self

    @property
    def path(self):
        return f"{self.folder}/bin:{os.environ['PATH']}"

    def answer(self, text):
        """What is told when somebody asks for the time that is left; None: the command fails."""
        (self.folder / "answer").write_text("\0" if text is None else text, encoding="utf-8")

    def told(self, usual):
        """The text of answer(), else the usual one; ends the command where it shall fail."""
        path = self.folder / "answer"
        text = path.read_text(encoding="utf-8") if path.exists() else usual
        if text == "\0":
            sys.exit("the server does not answer")
        return text

    def jobs(self):
        return [
            json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(self.folder.glob("job-*.json"))
        ]

    def job(self, number):
        return json.loads((self.folder / f"job-{number:03}.json").read_text(encoding="utf-8"))

    def save(self, job):
        path = self.folder / f"job-{job['number']:03}.json"
        path.with_suffix(".new").write_text(json.dumps(job), encoding="utf-8")
        path.with_suffix(".new").rename(path)

    def add(self, script, request, variables, folder, arguments=()):
        """A new job; the script is copied, as all systems do."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            number = len(self.jobs()) + 1
            self.save({
                "number": number, "request": request, "variables": variables, "folder": str(folder),
                "arguments": list(arguments), "state": "queued", "runs": 0
            })
        spool = self.folder / f"spool-{number}"
        spool.write_text(script, encoding="utf-8")
        return number

    def submit(self, script, folder, options=(), arguments=(), variables=None):
        """What a user does; `variables` are in the environment of the shell."""
        environment = {**BASE, **(variables or {}), "PATH": self.path}
        words, standard_input = self.submit_words(script, options, arguments)
        given = open(pathlib.Path(folder) /
                     script, encoding="utf-8") if standard_input else subprocess.DEVNULL
        ended = subprocess.run(words,
                               cwd=folder,
                               env=environment,
                               stdin=given,
                               text=True,
                               stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT,
                               check=False)
        if standard_input:
            given.close()
        if ended.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {ended.stdout}")
        return ended.stdout

    def start(self, job):
        """Starts a job; its output goes to output-NUMBER."""
        job.update(state="running", runs=job["runs"] + 1, began=time.time())
        self.save(job)
        with (self.folder / f"output-{job['number']}").open("ab") as output:
            return subprocess.Popen(
                ["bash", str(self.folder / f"spool-{job['number']}"), *job["arguments"]],
                cwd=self.start_folder(job),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**BASE, **job["variables"], "PATH": self.path, **self.job_variables(job)})

    def finish(self, job, process, limit_s=60):
        """Waits for a job's end. Whoever queues it again ends it, too."""
        code = process.wait(limit_s)
        job = self.job(job["number"])
        job.update(code=code, state="queued" if job["state"] == "requeued" else "ended")
        self.save(job)
        return job

    def run(self):
        """Runs jobs until none is queued, ten runs at most. Returns all of them."""
        for _ in range(10):
            queued = [job for job in self.jobs() if job["state"] == "queued"]
            if not queued:
                return self.jobs()
            self.finish(queued[0], self.start(queued[0]))
        return self.jobs()

    def cancel(self, process):
        """As the system's command of that purpose: to all that the job has started."""
        for number in self.cancel_signals:
            os.killpg(process.pid, number)

    def said(self):
        return "".join(
            path.read_text(encoding="utf-8", errors="replace")
            for path in sorted(self.folder.glob("output-*")))

    def directives(self, script):
        """The words of the script's directives, which end with its first command."""
        words = []
        for line in script.splitlines()[1:]:
            if line.startswith(self.sentinel):
                words += shlex.split(line[len(self.sentinel):], comments=self.sentinel == "# flux:")
            elif line.strip() and not line.startswith("#"):
                break
        return words

    def start_folder(self, job):
        return job["folder"]

    def submit_words(self, script, options, arguments):
        raise NotImplementedError

    def job_variables(self, job):
        raise NotImplementedError

    def requeue(self, job):
        """The job goes back to the queue. Its processes end, also the one that asked for it."""
        job["state"] = "requeued"
        self.save(job)
        os.killpg(os.getpgid(0), signal.SIGKILL)
