#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job of kvtier, shown by ./quickstart: a document whose KV does not fit the device budget is read, asked
about, saved; both daemons are stopped and started; the answer goes on where it stopped, with nothing recomputed, and
equals that of a run that was never interrupted. Ends with a table; fails when one of these is not so.

    main_job.py --bin-dir build/release --model MODEL.gguf --work-dir DIR DOCUMENT..."""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from kvtier_harness import CommandFailed, Instance  # noqa: E402

CONTEXT_TOKENS = 8192
DOCUMENT_TOKENS_MIN = 6000
DOCUMENT_TOKENS_MAX = 7000  # leaves room for the question and the answer
HOT_SHARE_MAX = 0.25        # of the context
FIRST_TOKENS, MORE_TOKENS = 24, 24
SESSION = "quickstart"
BEFORE, QUESTION = "Here is a document.\n\n", "\n\nIn one sentence, what is this document about?"
# Greedy, so that the runs can be compared; the penalty keeps so small a model from repeating itself.
ANSWER = ("--chat", "--temperature", 0, "--repeat-penalty", 1.15, "--repeat-last-n", 256, "--ignore-eos")


def say(text):
    print(f"\n--> {text}", file=sys.stderr, flush=True)


def count_tokens(instance, model, text):
    return len(json.loads(instance.run("gpuctl", "tokenize", "--model", model, "--json", "-", stdin=text).stdout)["ids"])


def fit_document(instance, model, paths):
    """The documents joined, cut after the last whole line that keeps them within DOCUMENT_TOKENS_MAX."""
    text = "\n\n".join(path.read_text() for path in paths)
    tokens = count_tokens(instance, model, text)
    while tokens > DOCUMENT_TOKENS_MAX:
        text = text[:int(len(text) * DOCUMENT_TOKENS_MAX / tokens)].rsplit("\n", 1)[0]
        tokens = count_tokens(instance, model, text)
    if tokens < DOCUMENT_TOKENS_MIN:
        raise SystemExit(f"the documents have {tokens} tokens, the main job is about {DOCUMENT_TOKENS_MIN} or more")
    return text


def generate(instance, *options):
    """`gpuctl generate`, its text shown while it comes and its progress bar left on stderr; returns (start, done)."""
    command = [instance.program("gpuctl"), "generate", "--json", *options]
    process = subprocess.Popen([str(word) for word in command], env=instance.env, stdout=subprocess.PIPE, text=True)
    events = {}
    for line in process.stdout:
        event = json.loads(line)
        events[event.get("event", "error")] = event
        if event.get("event") == "token":
            print(event["text"], end="", flush=True)
    print(flush=True)
    if process.wait() != 0:
        raise CommandFailed(["gpuctl", "generate", *options], process.returncode, str(events.get("error", "")))
    return events["start"], events["done"]


def up(instance, model, *options):
    command = [instance.program("gpuctl"), "up", "--model", model, "--max-model-len", CONTEXT_TOKENS, *options]
    if subprocess.run([str(word) for word in command], env=instance.env).returncode != 0:
        raise SystemExit("gpuctl up failed")


def interrupted_run(work_dir, bin_dir, model, document, vram):
    """The job itself; returns what the table shows."""
    seen = {}
    with Instance(bin_dir, work_dir / "data") as kvtier:
        say(f"starting both daemons with a device budget of {vram}")
        up(kvtier, model, "--vram", vram)
        say("reading the document and answering (cold: nothing is cached)")
        seen["cold_start"], seen["cold"] = generate(kvtier, "--session", SESSION, "--prompt-file", document,
                                                    "--max-tokens", FIRST_TOKENS, *ANSWER)
        say("saving the session")
        kvtier.run("gpuctl", "session", "save", SESSION)
        seen["gpud"] = kvtier.status()
        seen["kvstored"] = kvtier.status("kvctl")
        say("stopping both daemons")
        kvtier.down()
        say("starting both daemons again")
        up(kvtier, model, "--vram", vram)
        say("going on where it stopped (warm: the document's KV comes from disk)")
        seen["warm_start"], seen["warm"] = generate(kvtier, "--session", SESSION, "--prompt", "",
                                                    "--max-tokens", MORE_TOKENS, *ANSWER[1:])
        seen["block_tokens"] = kvtier.status()["block_tokens"]
    return seen


def uninterrupted_run(work_dir, bin_dir, model, document):
    with Instance(bin_dir, work_dir / "reference") as kvtier:
        say("for comparison: the same question in one go, on a fresh instance without a budget")
        up(kvtier, model)
        return generate(kvtier, "--prompt-file", document, "--max-tokens", FIRST_TOKENS + MORE_TOKENS, *ANSWER)[1]


def seconds(milliseconds):
    return f"{milliseconds / 1000:.2f} s"


def table(seen, reference):
    """Rows (name, value, whether it is as it must be)."""
    gpud, block_tokens = seen["gpud"], seen["block_tokens"]
    prompt = seen["cold_start"]["prompt_tokens"]
    hot_tokens = gpud["hot_slot_count"] * block_tokens
    resumed, cached = seen["warm_start"]["prompt_tokens"], seen["warm_start"]["cached_tokens"]
    ratio = seen["warm"]["ttft_ms"] / seen["cold"]["ttft_ms"]
    same = seen["cold"]["token_ids"] + seen["warm"]["token_ids"] == reference["token_ids"]
    store = seen["kvstored"]
    return [
        ("prompt", f"{prompt:,} tokens", prompt >= DOCUMENT_TOKENS_MIN),
        ("hot pool holds", f"{gpud['hot_slot_count']} blocks = {hot_tokens:,} tokens, "
                           f"{100 * hot_tokens / CONTEXT_TOKENS:.0f} % of the context of {CONTEXT_TOKENS:,}",
         0 < hot_tokens <= HOT_SHARE_MAX * CONTEXT_TOKENS),
        ("blocks per tier", f"hot {gpud['hot_used_count']}, RAM {store['slot_cached_count'] + store['slot_leased_count']}, "
                            f"disk {store['disk_block_count']}",
         store["disk_block_count"] >= prompt // block_tokens),
        ("cold: time to first token", seconds(seen["cold"]["ttft_ms"]), True),
        ("both daemons stopped and started", "", True),
        ("cached tokens", f"{cached:,} of {resumed:,}", cached >= resumed - block_tokens),
        ("warm: time to first token", seconds(seen["warm"]["ttft_ms"]), True),
        ("warm / cold", f"{ratio:.4f}", ratio < 1),
        ("continuation", ("identical to" if same else "DIFFERS from") +
         f" an uninterrupted run's ({len(reference['token_ids'])} tokens)", same),
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--work-dir", type=pathlib.Path, required=True)
    parser.add_argument("--vram", required=True)
    parser.add_argument("documents", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    shutil.rmtree(options.work_dir, ignore_errors=True)
    options.work_dir.mkdir(parents=True)
    document = options.work_dir / "document.txt"
    with Instance(options.bin_dir) as kvtier:
        document.write_text(BEFORE + fit_document(kvtier, options.model, options.documents) + QUESTION)
    seen = interrupted_run(options.work_dir, options.bin_dir, options.model, document, options.vram)
    reference = uninterrupted_run(options.work_dir, options.bin_dir, options.model, document)
    rows = table(seen, reference)
    print()
    for name, value, right in rows:
        print(f"  {name:<34}{value}{'' if right else '   <-- not as it must be'}")
    if not all(right for _, _, right in rows):
        raise SystemExit("main_job.py: the main job did not do what it must; see the rows marked above")


if __name__ == "__main__":
    try:
        main()
    except CommandFailed as failure:
        raise SystemExit(f"main_job.py: {failure}")
