# SPDX-License-Identifier: Apache-2.0
"""At stake: every token of a context that does not fit the hot pool is attended, from whichever tier it lies in. The recall
model's right answer is known at any length: its logit is 32.00 and every other at most 8. Half of the faults one can inject leave
the best token alone, so the logits are checked, live and after both daemons were restarted."""
import pytest

from kvtier_harness import Instance

RIGHT_LOGIT, TOLERANCE, OTHERS_MAX = 32.0, 0.05, 8.05
BLOCK_TOKENS = 32
PAYLOAD_BYTES = 512 * BLOCK_TOKENS  # of the recall model: 2 layers, 1 KV head, 64 wide, f16
SESSION = "needles"


def tenth_of_kv(kvtier, model, tokens):
    """--vram that leaves a hot pool of a tenth of the context, measured on a daemon without a budget."""
    kvtier.up(model, "--max-model-len", tokens + BLOCK_TOKENS)
    levels = kvtier.status()
    kvtier.down()
    hot_blocks = tokens // BLOCK_TOKENS // 10
    return levels["weight_bytes"] + levels["workspace_bytes"] + hot_blocks * PAYLOAD_BYTES, hot_blocks


def check_answers(kvtier, ids, queries):
    first = min(query["pos"] for query in queries)
    _, rows, _ = kvtier.score("--prompt-ids", ids, "--from", first, "--top", 16)
    rows = {row["pos"]: row for row in rows}
    for query in queries:
        top = rows[query["pos"]]["top"]
        assert top[0][0] == query["answer"][0], query
        assert abs(top[0][1] - RIGHT_LOGIT) <= TOLERANCE, query
        assert all(logit <= OTHERS_MAX for _, logit in top[1:]), query


def recall(bin_dir, model, prompt, tokens, needles):
    ids, queries = prompt(tokens, needles)
    with Instance(bin_dir) as kvtier:
        vram, hot_blocks = tenth_of_kv(kvtier, model, tokens)
        options = ("--max-model-len", tokens + BLOCK_TOKENS, "--vram", Instance.size(vram))
        kvtier.up(model, *options)
        kvtier.generate("--session", SESSION, "--prompt-ids", ids, "--max-tokens", 1, "--temperature", 0)
        levels = kvtier.status()
        assert 0 < levels["hot_slot_count"] <= hot_blocks + 1
        assert levels["evicted_count"] > 0
        check_answers(kvtier, ids, queries)
        kvtier.run("gpuctl", "session", "save", SESSION)
        kvtier.down()
        kvtier.up(model, *options)
        check_answers(kvtier, ids, queries)
        assert kvtier.status("kvctl")["hit_disk_count"] > 0, "after the restart the KV came from disk"


def test_recall_4k(bin_dir, recall_model, recall_prompt):
    recall(bin_dir, recall_model, recall_prompt, 4096, 128)


@pytest.mark.heavy
def test_recall_32k(bin_dir, recall_model, recall_prompt):
    recall(bin_dir, recall_model, recall_prompt, 32768, 128)
