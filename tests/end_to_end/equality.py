# SPDX-License-Identifier: Apache-2.0
"""The equality matrix: one factor at a time is changed from a base run, and the greedy token ids and every bit of their
logits (the XXH3-64 of each) must be those of the base run. docs/NUMERICS.md promises it; this is how it is seen."""
from kvtier_harness import Instance

GENERATED = 64
MORE = 24  # of these after the restart, in the run that is interrupted
SESSION = "matrix"


def kernel_sets():
    """Those this machine can run, the reference first."""
    flags = set()
    with open("/proc/cpuinfo") as cpuinfo:
        for line in cpuinfo:
            if line.startswith("flags"):
                flags = set(line.split(":")[1].split())
                break
    sets = ["c"]
    if {"avx2", "fma", "f16c"} <= flags:
        sets.append("avx2")
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"} <= flags:
        sets.append("avx512")
    return sets


class Matrix:
    """Runs of one model on one prompt (a --prompt-ids file of `prompt_tokens` ids)."""

    def __init__(self, bin_dir, model, prompt, prompt_tokens):
        self.bin_dir, self.model, self.prompt = bin_dir, model, prompt
        self.context_tokens = prompt_tokens + GENERATED + 32
        self.levels = None  # status of the base run: the sizes that budgets are made of
        self.base = self.plain()

    def up(self, kvtier, *options):
        kvtier.up(self.model, "--max-model-len", self.context_tokens, *options)

    def generate(self, kvtier, *options, max_tokens=GENERATED):
        return kvtier.generate("--temperature", 0, "--ignore-eos", "--logits-hash", "--max-tokens", max_tokens, *options)

    def plain(self, *options):
        """(ids, hashes) of a cold run of a daemon started with `options`."""
        with Instance(self.bin_dir) as kvtier:
            self.up(kvtier, *options)
            run = self.generate(kvtier, "--prompt-ids", self.prompt)
            assert len(run.ids) == GENERATED and len(run.hashes) == GENERATED
            assert run.done["cached_tokens"] == 0
            self.levels = kvtier.status()
            return run.ids, run.hashes

    def budget(self, share):
        """A --vram whose hot pool holds `share` of the context, one block at least."""
        blocks = -(-self.context_tokens // self.levels["block_tokens"])
        hot_blocks = max(1, int(share * blocks))
        return self.levels["weight_bytes"] + self.levels["workspace_bytes"] + hot_blocks * self.levels["payload_bytes"]

    def with_budget(self, share):
        run = self.plain("--vram", Instance.size(self.budget(share)))
        assert self.levels["hot_slot_count"] > 0, "a budget means a hot pool"
        if share < 1:
            assert self.levels["evicted_count"] > 0, "a small hot pool must have evicted"
        return run

    def prefix_hit(self):
        with Instance(self.bin_dir) as kvtier:
            self.up(kvtier)
            self.generate(kvtier, "--prompt-ids", self.prompt, max_tokens=1)
            run = self.generate(kvtier, "--prompt-ids", self.prompt)
            assert run.done["cached_tokens"] > 0
            return run.ids, run.hashes

    def no_prefix_caching(self):
        with Instance(self.bin_dir) as kvtier:
            self.up(kvtier, "--no-enable-prefix-caching")
            self.generate(kvtier, "--prompt-ids", self.prompt, max_tokens=1)
            run = self.generate(kvtier, "--prompt-ids", self.prompt)
            assert run.done["cached_tokens"] == 0
            return run.ids, run.hashes

    def resumed(self):
        """Saved in the middle of the answer, both daemons restarted, gone on with."""
        with Instance(self.bin_dir) as kvtier:
            self.up(kvtier)
            first = self.generate(kvtier, "--session", SESSION, "--prompt-ids", self.prompt, max_tokens=GENERATED - MORE)
            kvtier.run("gpuctl", "session", "save", SESSION)
            kvtier.down()
            self.up(kvtier)
            rest = self.generate(kvtier, "--session", SESSION, "--prompt", "", max_tokens=MORE)
            context = rest.done["prompt_tokens"]
            assert rest.done["cached_tokens"] >= context - self.levels["block_tokens"]
            assert rest.done["cached"]["disk"] > 0
            return first.ids + rest.ids, first.hashes + rest.hashes


FACTORS = {
    "1 thread": lambda m: m.plain("--threads", 1),
    "2 threads": lambda m: m.plain("--threads", 2),
    "chunks of 1": lambda m: m.plain("--max-num-batched-tokens", 1),
    "chunks of 7": lambda m: m.plain("--max-num-batched-tokens", 7),
    "chunks of 512": lambda m: m.plain("--max-num-batched-tokens", 512),
    **{f"kernels {name}": (lambda m, name=name: m.plain("--kernels", name)) for name in kernel_sets()},
    "budget 100 %": lambda m: m.with_budget(1.0),
    "budget 25 %": lambda m: m.with_budget(0.25),
    "budget minimum": lambda m: m.with_budget(0),
    "prefix hit": lambda m: m.prefix_hit(),
    "no prefix caching": lambda m: m.no_prefix_caching(),
    "resumed after a restart": lambda m: m.resumed(),
}
