# SPDX-License-Identifier: Apache-2.0
"""At stake: what people type and programs read. Each command is run as INTERFACE and docs/gpuctl.md, docs/kvctl.md state it:
results, JSON keys, exit codes, and for every bad input one clear error line."""
import json
import signal
import subprocess
import time

import pytest

from kvtier_harness import (EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed, Instance)

CONTEXT = 512
GPUCTL_COMMANDS = ("up", "down", "status", "generate", "chat", "session", "tokenize", "detokenize", "score", "bench")
KVCTL_COMMANDS = ("status", "sessions", "session", "blocks", "block", "verify")


@pytest.fixture(scope="module")
def running(bin_dir, recall_model):
    with Instance(bin_dir) as kvtier:
        kvtier.up(recall_model, "--max-model-len", CONTEXT)
        yield kvtier


@pytest.fixture(scope="module")
def ids_256(recall_prompt):
    return recall_prompt(256, 20)[0]


def fails(kvtier, code, program, *arguments, stdin=None):
    """The one error line of a command that must fail with `code`."""
    done = kvtier.run(program, *arguments, check=False, stdin=stdin, timeout=60)
    assert done.returncode == code, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.startswith(f"{program}: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


# ---- help and usage

@pytest.mark.parametrize("program, commands", [("gpuctl", GPUCTL_COMMANDS), ("kvctl", KVCTL_COMMANDS)])
def test_help_lists_every_command(instance, program, commands):
    text = instance.run(program, "--help").stdout
    for command in commands:
        assert f" {command}" in text
        assert instance.run(program, command, "--help").stdout


@pytest.mark.parametrize("program", ["gpuctl", "kvctl", "gpud", "kvstored"])
def test_version(instance, program):
    assert instance.run(program, "--version").stdout.startswith(f"{program} 0.")


@pytest.mark.parametrize("arguments", [
    ("gpuctl", "frobnicate"), ("gpuctl", "status", "--frobnicate"), ("gpuctl", "generate", "--max-tokens", "many"),
    ("gpuctl", "generate", "--temperature"), ("kvctl", "block"), ("kvctl", "blocks", "--tier", "tape")])
def test_usage_errors(instance, arguments):
    fails(instance, EXIT_USAGE, *arguments)


@pytest.mark.parametrize("program", ["gpuctl", "kvctl"])
def test_no_daemon(instance, program):
    assert ";" in fails(instance, EXIT_UNREACHABLE, program, "status"), "the line ends with what to do"
    done = instance.run(program, "status", "--json", check=False)
    assert json.loads(done.stdout)["error"].keys() >= {"code", "message", "hint"}


# ---- generate

def test_generate_events(running, ids_256):
    run = running.generate("--prompt-ids", ids_256, "--max-tokens", 8, "--temperature", 0, "--ignore-eos")
    assert run.start["prompt_tokens"] == 256
    assert run.done.keys() >= {"finish_reason", "text", "token_ids", "prompt_tokens", "completion_tokens", "cached_tokens",
                               "cached", "computed_tokens", "ttft_ms", "decode_tokens_per_s", "session"}
    assert run.done["finish_reason"] == "length" and run.done["completion_tokens"] == 8
    assert [token["id"] for token in run.tokens] == run.ids
    assert "".join(token["text"] for token in run.tokens) == run.done["text"]
    assert run.done["cached_tokens"] + run.done["computed_tokens"] == 256
    assert sum(run.done["cached"].values()) == run.done["cached_tokens"]


def test_second_time_is_a_prefix_hit(running, ids_256):
    options = ("--prompt-ids", ids_256, "--max-tokens", 4, "--temperature", 0, "--ignore-eos")
    first, second = running.generate(*options), running.generate(*options)
    assert second.done["cached_tokens"] == 224  # the last block is computed: it gives the first token
    assert second.ids == first.ids


def test_prompt_from_stdin_and_stop(running):
    run = running.generate("-", "--max-tokens", 4, "--temperature", 0, stdin="w0001 w1030 . w1300 w0001")
    assert run.done["text"].strip() == "w1030 ." and run.done["finish_reason"] == "stop"
    run = running.generate("--prompt", "w0001 w1030 . w1300 w0001", "--max-tokens", 4, "--temperature", 0, "--stop", "30")
    assert run.done["text"] == " w10" and run.done["finish_reason"] == "stop"


def test_same_seed_same_text(running, ids_256):
    options = ("--prompt-ids", ids_256, "--max-tokens", 12, "--temperature", 40, "--top-k", 0, "--top-p", 1, "--min-p", 0,
               "--ignore-eos")
    runs = [running.generate(*options, "--seed", seed).ids for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_prompt_longer_than_the_context(running, recall_prompt):
    ids, _ = recall_prompt(CONTEXT + 88, 20)
    line = fails(running, EXIT_REFUSED, "gpuctl", "generate", "--prompt-ids", ids)
    assert str(CONTEXT) in line and str(CONTEXT + 88) in line


def test_ids_out_of_range(running, tmp_path):
    ids = tmp_path / "ids"
    ids.write_text("1 2 999999")
    assert "2048" in fails(running, 2, "gpuctl", "generate", "--prompt-ids", ids)


def test_ctrl_c_cancels_the_request_only(running, ids_256):
    command = [str(running.program("gpuctl")), "generate", "--prompt-ids", str(ids_256), "--ignore-eos", "--json"]
    process = subprocess.Popen(command, env=running.env, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while running.status()["running_count"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running.status()["running_count"] == 0


def test_ctrl_c_is_never_lost(running):
    """Also when it comes while gpuctl connects, or between two requests."""
    for delay_ms in range(0, 20, 2):
        command = [str(running.program("gpuctl")), "bench", "-p", "32", "-n", "32", "-d", "0", "-r", "1000"]
        process = subprocess.Popen(command, env=running.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(delay_ms / 1000)
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=30)
        assert process.returncode != 0


@pytest.mark.parametrize("arguments", [
    ("gpuctl", "status"), ("gpuctl", "status", "--json"), ("kvctl", "status"), ("kvctl", "status", "--json"),
    ("gpuctl", "generate", "--prompt", "w0001", "--max-tokens", "2", "--json")])
def test_output_that_cannot_be_written(running, arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(running.program(arguments[0])), *arguments[1:]], env=running.env, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "output" in done.stderr


def test_reader_that_leaves_ends_the_request(running, ids_256):
    before = running.status()["cancelled_count"]
    command = [str(running.program("gpuctl")), "score", "--prompt-ids", str(ids_256), "--top", "256", "--json"]
    process = subprocess.Popen(command, env=running.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(timeout=30) == 1
    process.stderr.close()
    deadline = time.monotonic() + 10
    while running.status()["cancelled_count"] == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running.status()["running_count"] == 0


# ---- sessions

def test_session_life(running, ids_256):
    turn = ("--session", "life", "--max-tokens", 4, "--temperature", 0, "--ignore-eos")
    first = running.generate("--prompt-ids", ids_256, *turn)
    again = running.generate("--prompt", "", *turn)
    assert again.done["prompt_tokens"] == 260 and again.done["session"] == "life"
    whole = running.generate("--prompt-ids", ids_256, "--max-tokens", 8, "--temperature", 0, "--ignore-eos")
    assert first.ids + again.ids == whole.ids
    running.run("gpuctl", "session", "save", "life")
    names = [row["name"] for row in running.json_lines("gpuctl", "session", "list")[0]["sessions"]]
    assert "life" in names
    assert running.json_lines("gpuctl", "session", "show", "life")[0]["tokens"] >= 260
    running.run("gpuctl", "session", "delete", "life")
    fails(running, EXIT_NOT_FOUND, "gpuctl", "session", "show", "life")


@pytest.mark.parametrize("name", ["a/b", "a\\b", "..", "", "x" * 129, "a\tb", "con", "NUL.txt"])
def test_bad_session_names(running, name):
    fails(running, EXIT_USAGE, "gpuctl", "generate", "--session", name, "--prompt", "w0001", "--max-tokens", 1)


def test_session_names_with_other_letters(running):
    run = running.generate("--session", "Übung 3 🦀", "--prompt", "w0001", "--max-tokens", 1, "--ignore-eos")
    assert run.done["session"] == "Übung 3 🦀"
    running.run("gpuctl", "session", "delete", "Übung 3 🦀")


def test_chat_needs_a_template(running):
    """The recall model has none: --chat says so instead of guessing."""
    line = fails(running, 1, "gpuctl", "generate", "--chat", "--prompt", "w0001")
    assert "template" in line


# ---- text

def test_tokenize_with_and_without_the_daemon(running, recall_model):
    text = "w0001 w1030 ."
    ids = running.json_lines("gpuctl", "tokenize", "-", stdin=text)[0]["ids"]
    assert ids == running.json_lines("gpuctl", "tokenize", "--model", recall_model, "-", stdin=text)[0]["ids"]
    assert len(ids) == 3
    words = running.run("gpuctl", "tokenize", "--ids", "-", stdin=text).stdout.split()
    assert [int(word) for word in words] == ids
    back = running.run("gpuctl", "detokenize", "-", stdin=" ".join(words)).stdout
    assert back.strip() == text


def test_score(running, ids_256):
    head, rows, summary = running.score("--prompt-ids", ids_256, "--from", 200, "--top", 3, "--logits-hash")
    assert head["n_tokens"] == 256 and len(head["ids"]) == 256
    assert [row["pos"] for row in rows] == list(range(200, 256))
    assert all(row.keys() >= {"pos", "id", "lse", "top", "logits_hash"} and len(row["top"]) == 3 for row in rows)
    assert summary.keys() >= {"tokens", "mean_nll", "perplexity"}


def test_bench(running):
    lines = running.json_lines("gpuctl", "bench", "-p", 16, "-n", 4, "-d", "0,64")
    assert lines
    for line in lines:
        assert line.keys() >= {"prompt_tokens", "generated_tokens", "depth_tokens", "prefill_tokens_per_s",
                               "decode_tokens_per_s", "repetitions", "threads", "kv_cache_dtype", "kernels"}


# ---- kvctl

def test_kvctl(running, ids_256):
    running.generate("--session", "seen", "--prompt-ids", ids_256, "--max-tokens", 4, "--ignore-eos")
    running.run("gpuctl", "session", "save", "seen")
    assert running.status("kvctl")["disk_block_count"] >= 8
    assert any(row["name"] == "seen" for row in running.json_lines("kvctl", "sessions")[0]["sessions"])
    assert running.json_lines("kvctl", "session", "seen")[0]["disk_blocks"] >= 8
    blocks = running.json_lines("kvctl", "blocks", "--session", "seen")[0]["blocks"]
    assert len(blocks) >= 8
    block = running.json_lines("kvctl", "block", blocks[0]["id"])[0]
    assert block["id"] == blocks[0]["id"]
    running.run("kvctl", "verify")
    fails(running, EXIT_NOT_FOUND, "kvctl", "session", "never")
    running.run("gpuctl", "session", "delete", "seen")


# ---- starting

@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 16, b"not a model" * 100])
def test_broken_model_file(instance, tmp_path, content):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    with pytest.raises(CommandFailed) as failure:
        instance.up(path)
    assert "broken.gguf" in failure.value.stderr
    fails(instance, EXIT_UNREACHABLE, "gpuctl", "status")


def test_budget_too_small(instance, recall_model):
    with pytest.raises(CommandFailed) as failure:
        instance.up(recall_model, "--max-model-len", CONTEXT, "--vram", "1M")
    assert "--vram" in failure.value.stderr or "budget" in failure.value.stderr


def test_up_twice(running, recall_model):
    done = running.run("gpuctl", "up", "--model", recall_model, check=False)
    assert done.returncode != 0 and "runs" in done.stderr
    assert running.status()["model_name"]
