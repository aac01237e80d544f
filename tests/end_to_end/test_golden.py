# SPDX-License-Identifier: Apache-2.0
"""At stake: the model computes what the model means. A text is scored and compared with logits of exact arithmetic
(tests/data/golden); the limit is llama.cpp's own distance on this file plus 10 %."""
import pathlib

import golden

DATA = pathlib.Path(__file__).parents[1] / "data/golden"
KLD_MAX = 0.0024


def test_smollm2(instance, smollm2):
    ids, reference = golden.load(DATA / "smollm2-135m.jsonl")
    instance.up(smollm2, "--max-model-len", 1024)
    head, rows, summary = instance.score("--file", DATA / "sample.txt", "--top", 16)
    assert head["ids"] == ids and head["n_tokens"] == len(ids)
    kld, same = golden.distance(reference, rows)
    print(f"mean KLD {kld:.5f}, same best token {100 * same:.1f} %, perplexity {summary['perplexity']:.3f}")
    assert kld <= KLD_MAX
    assert same >= 0.953  # llama.cpp's 95.8 % less half a point
