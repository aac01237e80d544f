# SPDX-License-Identifier: Apache-2.0
"""At stake: a daemon that runs for weeks. Over 1,000 requests the anonymous memory of both daemons stays flat within 2 % after
warm-up, and what is neither weights nor KV stays under 300 MB."""
import re

import pytest

from kvtier_harness import Instance
from test_daemons import process_id

WARM_UP, REQUESTS = 100, 1000
FLAT, OTHERS_MAX_BYTES = 1.02, 300 << 20


def anonymous_bytes(kvtier):
    total = 0
    for name in ("gpud", "kvstored"):
        with open(f"/proc/{process_id(kvtier, name)}/smaps_rollup") as rollup:
            total += int(re.search(r"^Anonymous:\s+(\d+) kB", rollup.read(), re.M)[1]) << 10
    return total


@pytest.mark.long
def test_flat_over_a_thousand_requests(bin_dir, smollm2):
    with Instance(bin_dir) as kvtier:
        kvtier.up(smollm2, "--max-model-len", 8192, "--swap-space", "1G")
        for count in range(REQUESTS):
            kvtier.generate("--prompt", f"Request {count} is about", "--max-tokens", 4, "--temperature", 0)
            if count == WARM_UP:
                before = anonymous_bytes(kvtier)
        after = anonymous_bytes(kvtier)
        others = after - kvtier.status()["weight_bytes"]
        print(f"anonymous {before} -> {after} bytes, beyond weights {others}")
        assert after <= before * FLAT
        assert others <= OTHERS_MAX_BYTES
