# SPDX-License-Identifier: Apache-2.0
"""Runs one kvtier instance through its own commands, as a user does: `gpuctl up`, `generate`, `down`. Used by the
end-to-end tests, the benchmark and ./quickstart; the standard library only. Each instance has its own runtime and
data folder, so that none meets another, and close() leaves nothing running and nothing behind."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_NOT_FOUND, EXIT_BUSY, EXIT_REFUSED, EXIT_DAMAGED = range(1, 8)

REPORTS_OF_SANITIZERS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "WARNING: ThreadSanitizer",
                         "runtime error:", "Assertion ")


class CommandFailed(Exception):
    def __init__(self, command, code, stderr):
        super().__init__(f"{' '.join(map(str, command))}: exit {code}: {stderr.strip()}")
        self.code = code
        self.stderr = stderr


class Generation:
    """What `generate --json` printed: the events by kind."""

    def __init__(self, events):
        self.start = next(e for e in events if e.get("event") == "start")
        self.tokens = [e for e in events if e.get("event") == "token"]
        self.done = next(e for e in events if e.get("event") == "done")

    @property
    def ids(self):
        return self.done["token_ids"]

    @property
    def hashes(self):
        return [token["logits_hash"] for token in self.tokens]


class Instance:
    def __init__(self, bin_dir, data_dir=None):
        """bin_dir: a build folder (build/release). data_dir: made when it is not there, and kept; None: a
        scratch one that close() removes."""
        self.bin_dir = pathlib.Path(bin_dir).resolve()
        # Short, because a socket's path holds 107 bytes.
        self.runtime_dir = pathlib.Path(tempfile.mkdtemp(prefix="kvt-", dir="/tmp"))
        self.own_data = data_dir is None
        self.data_dir = pathlib.Path(data_dir or tempfile.mkdtemp(prefix="kvtier-data-")).resolve()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.config_dir = self.runtime_dir / "config"
        self.config_dir.mkdir()
        self.env = dict(os.environ, KVTIER_RUNTIME_DIR=str(self.runtime_dir), KVTIER_DATA_DIR=str(self.data_dir),
                        KVTIER_CONFIG_DIR=str(self.config_dir))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def program(self, name):
        folder = {"gpuctl": "client", "kvctl": "client"}.get(name, name)
        return self.bin_dir / folder / name

    def run(self, name, *arguments, stdin=None, check=True, timeout=600):
        """Runs gpuctl or kvctl to its end. Returns the CompletedProcess; raises CommandFailed unless check is off."""
        command = [self.program(name), *map(str, arguments)]
        done = subprocess.run(command, env=self.env, input=stdin, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise CommandFailed([name, *map(str, arguments)], done.returncode, done.stderr + done.stdout[-2000:])
        return done

    def json_lines(self, name, *arguments, **options):
        done = self.run(name, *arguments, "--json", **options)
        return [json.loads(line) for line in done.stdout.splitlines() if line]

    def up(self, model, *options, timeout=120):
        return self.run("gpuctl", "up", "--model", model, *options, timeout=timeout)

    @staticmethod
    def size(count):
        """Bytes as an option takes them, rounded up."""
        return f"{-(-count // 1024)}K"

    def down(self):
        return self.run("gpuctl", "down", timeout=120)

    def generate(self, *options, stdin=None):
        return Generation(self.json_lines("gpuctl", "generate", *options, stdin=stdin))

    def score(self, *options):
        """(head, rows, summary) of `score --json`."""
        lines = self.json_lines("gpuctl", "score", *options)
        return lines[0], lines[1:-1], lines[-1]

    def status(self, name="gpuctl"):
        return self.json_lines(name, "status")[0]

    def logs(self):
        return {path.name: path.read_text(errors="replace") for path in self.data_dir.glob("log/*.log")}

    def reports(self):
        """Lines of the daemons' logs that mean a mistake of ours."""
        return [f"{name}: {line}" for name, text in self.logs().items() for line in text.splitlines()
                if any(report in line for report in REPORTS_OF_SANITIZERS)]

    def close(self):
        self.run("gpuctl", "down", check=False, timeout=120)
        reports = self.reports()
        shutil.rmtree(self.runtime_dir, ignore_errors=True)
        if self.own_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)
        if reports:
            raise AssertionError("the daemons reported:\n" + "\n".join(reports[:40]))
