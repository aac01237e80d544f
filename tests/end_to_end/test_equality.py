# SPDX-License-Identifier: Apache-2.0
"""At stake: the same tokens and the same bits whatever the threads, chunks, instruction set, tier, cache or restart. The
matrix (equality.py) runs on the recall model and a tiny random model, whose prompts are short; SmolLM2 runs once per
kernel set here, and the whole matrix with it is a long test."""
import json
import random

import pytest

from equality import FACTORS, Matrix, kernel_sets

TINY_PROMPT, SMOLLM2_PROMPT, SMOLLM2_LONG_PROMPT = 700, 256, 2000
SEED = 20240611


def random_ids(path, count, vocabulary):
    """A --prompt-ids file of `count` ids; fixed, since any would do."""
    path.write_text(json.dumps(random.Random(SEED).choices(range(3, vocabulary), k=count)))
    return path


@pytest.fixture(scope="module")
def recall_matrix(bin_dir, recall_model, recall_prompt):
    prompt, _ = recall_prompt(800, 60)
    return Matrix(bin_dir, recall_model, prompt, 800)


@pytest.fixture(scope="module")
def tiny_matrix(bin_dir, tiny_model, tmp_path_factory):
    return Matrix(bin_dir, tiny_model, random_ids(tmp_path_factory.mktemp("ids") / "tiny.ids", TINY_PROMPT, 2048), TINY_PROMPT)


@pytest.fixture(scope="module")
def smollm2_matrix(bin_dir, smollm2, tmp_path_factory):
    prompt = random_ids(tmp_path_factory.mktemp("ids") / "smollm2.ids", SMOLLM2_LONG_PROMPT, 49152)
    return Matrix(bin_dir, smollm2, prompt, SMOLLM2_LONG_PROMPT)


def check(matrix, factor):
    ids, hashes = FACTORS[factor](matrix)
    assert ids == matrix.base[0], f"{factor}: other tokens"
    assert hashes == matrix.base[1], f"{factor}: other bits"


@pytest.mark.parametrize("factor", FACTORS)
def test_recall_model(recall_matrix, factor):
    check(recall_matrix, factor)


@pytest.mark.parametrize("factor", FACTORS)
def test_tiny_model(tiny_matrix, factor):
    check(tiny_matrix, factor)


def test_bits_differ_when_they_should(tiny_matrix, tmp_path):
    """The comparison itself: another prompt gives other bits."""
    ids = json.loads(tiny_matrix.prompt.read_text())
    ids[3] = (ids[3] + 1) % 200 + 3
    other = tmp_path / "other.ids"
    other.write_text(json.dumps(ids))
    changed = Matrix(tiny_matrix.bin_dir, tiny_matrix.model, other, len(ids))
    assert changed.base[1] != tiny_matrix.base[1]


def test_smollm2_kernel_sets(bin_dir, smollm2, tmp_path):
    prompt = random_ids(tmp_path / "smollm2.ids", SMOLLM2_PROMPT, 49152)
    matrix = Matrix(bin_dir, smollm2, prompt, SMOLLM2_PROMPT)
    for name in kernel_sets():
        assert matrix.plain("--kernels", name) == matrix.base, name


@pytest.mark.long
@pytest.mark.parametrize("factor", FACTORS)
def test_smollm2_matrix(smollm2_matrix, factor):
    check(smollm2_matrix, factor)
