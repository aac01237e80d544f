#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures kvtier beside its peer, llama.cpp, on the same model with the same threads, in the same minutes: the two take turns,
and every speed is stated as a ratio of medians, because machines are shared and noisy. Also the tiers: what write-through costs
a decode, and what resuming from disk takes of the cold time to first token. Prints JSON (--json) or Markdown.

    run_bench.py --model F.gguf --peer DIR [--threads 2] [--rounds 5] [--bin-dir build/release] [--json]

DIR holds llama-bench (a build of llama.cpp); without --peer only the tiers are measured."""
import argparse
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "end_to_end"))
from kvtier_harness import Instance  # noqa: E402

PREFILL, DECODE, DEPTHS = 512, 64, (0, 4096)
CONTEXT = 8192
RESUME_TOKENS = 6144
SEED = 7


def peer_round(options):
    """{("prefill" | "decode", depth): tokens a second} of one llama-bench run."""
    command = [options.peer / "llama-bench", "-m", options.model, "-t", options.threads, "-fa", 1, "-p", PREFILL,
               "-n", DECODE, "-d", ",".join(map(str, DEPTHS)), "-r", 1, "-o", "json"]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    return {("prefill" if row["n_prompt"] else "decode", row["n_depth"]): row["avg_ts"] for row in json.loads(done.stdout)}


def own_round(kvtier):
    rates = {}
    for row in kvtier.json_lines("gpuctl", "bench", "-r", 1, "-p", PREFILL, "-n", DECODE, "-d", ",".join(map(str, DEPTHS))):
        for kind in ("prefill", "decode"):
            if row.get(f"{kind}_tokens_per_s"):
                rates[kind, row["depth_tokens"]] = row[f"{kind}_tokens_per_s"]
    return rates


def against_peer(options):
    """Rows of the speed table; the peer and kvtier take turns, `rounds` times."""
    ours, theirs = [], []
    with Instance(options.bin_dir) as kvtier:
        kvtier.up(options.model, "--max-model-len", CONTEXT, "--threads", options.threads)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            theirs.append(peer_round(options))
            ours.append(own_round(kvtier))
    rows = []
    for kind, depth in [(kind, depth) for kind in ("prefill", "decode") for depth in DEPTHS]:
        own = statistics.median(rates[kind, depth] for rates in ours)
        peer = statistics.median(rates[kind, depth] for rates in theirs)
        rows.append({"what": kind, "tokens": PREFILL if kind == "prefill" else DECODE, "depth_tokens": depth,
                     "kvtier_tokens_per_s": round(own, 1), "peer_tokens_per_s": round(peer, 1), "ratio": round(own / peer, 3)})
    return rows


def write_ids(folder, count):
    path = folder / "bench.ids"
    path.write_text(json.dumps(random.Random(SEED).choices(range(100, 40000), k=count)))
    return path


def hot_budget(options, share):
    """--vram whose hot pool holds `share` of the context."""
    with Instance(options.bin_dir) as kvtier:
        kvtier.up(options.model, "--max-model-len", CONTEXT, "--threads", options.threads)
        levels = kvtier.status()
    blocks = int(share * CONTEXT / levels["block_tokens"])
    return Instance.size(levels["weight_bytes"] + levels["workspace_bytes"] + blocks * levels["payload_bytes"])


def write_through(options, vram):
    """Time spent closing blocks, as a share of decode time and of prefill time, hot pool a quarter of the context."""
    with Instance(options.bin_dir) as kvtier:
        kvtier.up(options.model, "--max-model-len", CONTEXT, "--threads", options.threads, "--vram", vram)
        ids = write_ids(kvtier.data_dir, 512)
        shares = {}
        for kind, tokens in (("prefill", 1), ("decode", 512)):
            before = kvtier.status()["write_through_ms"]
            run = kvtier.generate("--prompt-ids", ids, "--max-tokens", tokens, "--temperature", 0, "--ignore-eos")
            spent = kvtier.status()["write_through_ms"] - before
            shares[kind] = spent / (run.done["ttft_ms"] if kind == "prefill" else run.done["decode_ms"])
        return {f"write_through_share_of_{kind}": round(share, 4) for kind, share in shares.items()}


def drop_page_cache(folder):
    """Of the store's files, so that resuming reads the disk."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resume(options, vram):
    """Time to first token of a session after both daemons restarted, page cache dropped, over its cold one."""
    ratios, cold_ms, warm_ms = [], [], []
    for number in range(options.rounds):
        print(f"resume {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
        with Instance(options.bin_dir) as kvtier:
            start = ("--max-model-len", CONTEXT, "--threads", options.threads, "--vram", vram)
            ids = write_ids(kvtier.data_dir, RESUME_TOKENS)
            kvtier.up(options.model, *start)
            turn = ("--session", "bench", "--temperature", 0, "--ignore-eos", "--max-tokens", 2)
            cold = kvtier.generate("--prompt-ids", ids, *turn).done["ttft_ms"]
            kvtier.run("gpuctl", "session", "save", "bench")
            kvtier.down()
            drop_page_cache(kvtier.data_dir)
            kvtier.up(options.model, *start)
            warm = kvtier.generate("--prompt", "", *turn).done["ttft_ms"]
        cold_ms.append(cold)
        warm_ms.append(warm)
        ratios.append(warm / cold)
    return {"resume_tokens": RESUME_TOKENS, "cold_ttft_ms": round(statistics.median(cold_ms), 1),
            "resume_from_disk_ttft_ms": round(statistics.median(warm_ms), 1), "resume_ratio": round(statistics.median(ratios), 4)}


def cpu_name():
    with open("/proc/cpuinfo") as cpuinfo:
        return next((line.split(":")[1].strip() for line in cpuinfo if line.startswith("model name")), "unknown CPU")


def print_markdown(result):
    print(f"{result['date']}, {result['cpu']}, {result['threads']} threads, {result['model']}, f16 KV, exact attention; medians of "
          f"{result['rounds']}\n")
    if result["speed"]:
        print("| what | kvtier tok/s | peer tok/s | ratio |\n|---|---|---|---|")
        for row in result["speed"]:
            print(f"| {row['what']} {row['tokens']} at depth {row['depth_tokens']:,} | {row['kvtier_tokens_per_s']} | "
                  f"{row['peer_tokens_per_s']} | {row['ratio']} |")
        print()
    print("| tiers | |\n|---|---|")
    for name, value in result["tiers"].items():
        print(f"| {name.replace('_', ' ')} | {value} |")


def main():
    parser = argparse.ArgumentParser(description="kvtier beside llama.cpp")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--peer", type=pathlib.Path)
    parser.add_argument("--bin-dir", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.bin_dir = options.bin_dir.resolve()
    vram = hot_budget(options, 0.25)
    result = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": options.threads,
              "model": options.model.name, "rounds": options.rounds,
              "speed": against_peer(options) if options.peer else [],
              "tiers": {**write_through(options, vram), **resume(options, vram)}}
    if options.json:
        print(json.dumps(result))
    else:
        print_markdown(result)


if __name__ == "__main__":
    main()
