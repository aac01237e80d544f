# SPDX-License-Identifier: Apache-2.0
"""How far teacher-forced logits are from a reference: mean KLD over the reference's top ids plus one bucket for the rest, and
how often the best token is the same. Rows are those of `gpuctl score --json` (tests/data/golden/README.md)."""
import json
import math


def load(path):
    """(ids, {pos: row}) of a golden file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return lines[0]["ids"], {line["pos"]: line for line in lines if "pos" in line}


def row_kld(reference, got):
    logits = {token: logit - got["lse"] for token, logit in got["top"]}
    rest_reference = rest_got = 1.0
    divergence = 0.0
    for token, logit in reference["top"]:
        if token not in logits:
            continue
        log_p, log_q = logit - reference["lse"], logits[token]
        divergence += math.exp(log_p) * (log_p - log_q)
        rest_reference -= math.exp(log_p)
        rest_got -= math.exp(log_q)
    if rest_reference > 1e-6 and rest_got > 1e-9:
        divergence += rest_reference * math.log(rest_reference / rest_got)
    return divergence


def distance(reference_rows, got_rows):
    """(mean KLD, share of positions with the same best token); every reference position must be there."""
    got = {row["pos"]: row for row in got_rows}
    kld = sum(row_kld(row, got[pos]) for pos, row in reference_rows.items())
    same = sum(row["top"][0][0] == got[pos]["top"][0][0] for pos, row in reference_rows.items())
    return kld / len(reference_rows), same / len(reference_rows)
