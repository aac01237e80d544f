# SPDX-License-Identifier: Apache-2.0
"""At stake: the daemons as processes. One dies, is absent, is started twice or with nonsense; requests go on, sessions come
back, and what cannot be done is said in one line."""
import json
import os
import random
import signal
import subprocess
import time

import pytest

from conftest import make
from kvtier_harness import EXIT_BUSY, Instance

CONTEXT = 512
SECONDS = 60


class Daemons:
    """gpud and kvstored started by hand, each or both, ended with the test."""

    def __init__(self, kvtier):
        self.kvtier = kvtier
        self.processes = []

    def start(self, name, *options):
        log = open(self.kvtier.runtime_dir / f"{name}-{len(self.processes)}.log", "w+")
        process = subprocess.Popen([str(self.kvtier.program(name)), *map(str, options)], env=self.kvtier.env, stderr=log,
                                   stdout=log)
        process.log_file = log
        self.processes.append(process)
        return process

    def log(self, process):
        process.log_file.seek(0)
        return process.log_file.read()

    def stop(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
                process.wait(SECONDS)
            process.log_file.close()


@pytest.fixture
def daemons(instance):
    group = Daemons(instance)
    yield group
    group.stop()


def wait_until(what, condition):
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"not within {SECONDS} s: {what}")


def answers(kvtier, program="gpuctl"):
    return kvtier.run(program, "status", check=False).returncode == 0


def ended(process):
    return process.poll() is not None


def test_gpud_without_kvstored(daemons, instance, recall_model):
    """Serves from a private arena, says so, cannot save, and attaches when kvstored appears."""
    gpud = daemons.start("gpud", "--model", recall_model, "--max-model-len", CONTEXT)
    wait_until("gpud answers", lambda: answers(instance))
    assert "kvstored" in daemons.log(gpud)
    run = instance.generate("--session", "alone", "--prompt", "w0001 w1030 . w1300 w0001", "--max-tokens", 1, "--temperature", 0)
    assert run.done["text"].strip() == "w1030"
    done = instance.run("gpuctl", "session", "save", "alone", check=False)
    assert done.returncode != 0 and "kvstored is not running" in done.stderr
    daemons.start("kvstored")
    wait_until("kvstored answers", lambda: answers(instance, "kvctl"))
    instance.generate("--session", "later", "--prompt", "w0001 w1030 . w1300 w0001", "--max-tokens", 1)
    instance.run("gpuctl", "session", "save", "later")


def test_second_daemons_are_refused_by_name(daemons, instance, recall_model):
    daemons.start("kvstored")
    daemons.start("gpud", "--model", recall_model, "--max-model-len", CONTEXT)
    wait_until("gpud answers", lambda: answers(instance))
    for name, options in (("kvstored", ()), ("gpud", ("--model", recall_model))):
        second = daemons.start(name, *options)
        wait_until(f"the second {name} ends", lambda: ended(second))
        assert second.returncode != 0
        assert name in daemons.log(second) and "runs" in daemons.log(second)
    assert answers(instance) and answers(instance, "kvctl"), "the first ones are untouched"


@pytest.mark.parametrize("name, options", [
    ("gpud", ()), ("gpud", ("--model", "/nowhere.gguf")), ("gpud", ("--frobnicate",)), ("gpud", ("--threads", "-1")),
    ("kvstored", ("--swap-space", "lots")), ("kvstored", ("--frobnicate",)), ("kvstored", ("--swap-space", "900000G"))])
def test_bad_options(daemons, name, options):
    process = daemons.start(name, *options)
    wait_until("it ends", lambda: ended(process))
    assert process.returncode != 0
    lines = [line for line in daemons.log(process).splitlines() if line.strip()]
    assert len(lines) == 1, lines


@pytest.mark.parametrize("line", ["threads = many", "no_such_key = 1", "just words", "[unclosed"])
def test_bad_config_line(daemons, instance, line):
    (instance.config_dir / "kvstored.conf").write_text(line + "\n")
    process = daemons.start("kvstored")
    wait_until("it ends", lambda: ended(process))
    assert process.returncode != 0 and "kvstored.conf" in daemons.log(process)


def process_id(kvtier, name):
    """Of a running daemon of this instance: the processes that carry its runtime folder in their environment."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/environ", "rb") as environ:
                if comm.read().strip() == name and f"KVTIER_RUNTIME_DIR={kvtier.runtime_dir}".encode() in environ.read():
                    return int(pid)
        except OSError:
            continue
    return None


@pytest.mark.parametrize("victim", ["gpud", "kvstored"])
def test_a_daemon_killed_comes_back(bin_dir, recall_model, recall_prompt, victim):
    """kill -9; the supervisor starts it again; the named session goes on, and the bits are those of an uninterrupted run."""
    ids, _ = recall_prompt(256, 20)
    options = ("--temperature", 0, "--ignore-eos", "--logits-hash")
    with Instance(bin_dir) as kvtier:
        kvtier.up(recall_model, "--max-model-len", CONTEXT)
        whole = kvtier.generate("--prompt-ids", ids, "--max-tokens", 16, *options)
        first = kvtier.generate("--session", "s", "--prompt-ids", ids, "--max-tokens", 8, *options)
        kvtier.run("gpuctl", "session", "save", "s")
        killed = process_id(kvtier, victim)
        os.kill(killed, signal.SIGKILL)
        wait_until(f"{victim} is back", lambda: process_id(kvtier, victim) not in (None, killed))
        wait_until("both answer", lambda: answers(kvtier) and answers(kvtier, "kvctl"))
        rest = kvtier.generate("--session", "s", "--prompt", "", "--max-tokens", 8, *options)
        assert first.ids + rest.ids == whole.ids
        assert first.hashes + rest.hashes == whole.hashes
        assert rest.done["cached_tokens"] >= rest.done["prompt_tokens"] - 32


@pytest.mark.heavy
def test_full_store(bin_dir, tmp_path):
    """Two kept sessions that do not fit the disk budget together: the second save is refused by name, serving goes on, and when
    the first session is deleted the second can be saved."""
    model, ids = tmp_path / "wide.gguf", tmp_path / "ids"
    make("make_tiny_model.py", model, "--layers", 8, "--heads", 4, "--kv-heads", 4, "--head-dim", 64)  # 8 KiB of KV a token
    options = ("--max-tokens", 1, "--temperature", 0)
    with Instance(bin_dir) as kvtier:
        kvtier.up(model, "--max-model-len", 8192, "--disk-space", "64M")
        for number, session in enumerate(("first", "second")):
            ids.write_text(json.dumps(random.Random(number).choices(range(3, 2000), k=5000)))
            kvtier.generate("--session", session, "--prompt-ids", ids, *options)
            done = kvtier.run("gpuctl", "session", "save", session, check=False)
            assert (done.returncode == 0) == (session == "first"), done.stderr
        assert done.returncode == EXIT_BUSY and "full" in done.stderr
        status = kvtier.status("kvctl")
        assert not status["persistence_ok"] and "full" in status["persistence_state"]
        kvtier.generate("--prompt", "w0001 w1030 . w0001", *options)
        kvtier.run("gpuctl", "session", "delete", "first")
        wait_until("there is room for the second session",
                   lambda: kvtier.run("gpuctl", "session", "save", "second", check=False).returncode == 0)
        status = kvtier.status("kvctl")
        assert status["persistence_ok"] and status["mismatch_count"] == 0
        kvtier.run("kvctl", "verify")


def test_down_leaves_nothing(bin_dir, recall_model):
    with Instance(bin_dir) as kvtier:
        kvtier.up(recall_model, "--max-model-len", CONTEXT)
        arenas = {name for name in os.listdir("/dev/shm") if name.startswith("kvtier-")}
        assert arenas
        kvtier.down()
        assert process_id(kvtier, "gpud") is None and process_id(kvtier, "kvstored") is None
        left = [path.name for path in kvtier.runtime_dir.iterdir() if path.is_socket()]
        assert left == []
        kvtier.down()  # twice is fine


def test_a_stopped_kvstored_holds_up_no_status(bin_dir, recall_model):
    """SIGSTOP: `gpuctl status` says within a second that the store does not answer, and all is well afterwards."""
    with Instance(bin_dir) as kvtier:
        kvtier.up(recall_model, "--max-model-len", CONTEXT)
        stopped = process_id(kvtier, "kvstored")
        os.kill(stopped, signal.SIGSTOP)
        try:
            started = time.monotonic()
            assert "store" not in kvtier.status()
            assert time.monotonic() - started < 4  # far below the store's deadline of 5 s
        finally:
            os.kill(stopped, signal.SIGCONT)
        wait_until("the store answers", lambda: "store" in kvtier.status())


def test_down_without_a_supervisor(bin_dir, recall_model):
    """The supervisor was killed: the daemons go on, and `down` still stops both."""
    with Instance(bin_dir) as kvtier:
        kvtier.up(recall_model, "--max-model-len", CONTEXT)
        supervisor = int((kvtier.runtime_dir / "supervisor.lock").read_text())
        os.kill(supervisor, signal.SIGKILL)
        assert answers(kvtier) and answers(kvtier, "kvctl")
        kvtier.down()
        # Locks are given up a moment before the process ends, which may take a sanitizer's report longer.
        wait_until("both ended", lambda: process_id(kvtier, "gpud") is None and process_id(kvtier, "kvstored") is None)
