# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the build under test, the models, and instances that end with their test. CTest passes
the environment (CMakeLists.txt of this folder); by hand: KVTIER_BIN_DIR=build/release pytest tests/end_to_end."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from kvtier_harness import Instance  # noqa: E402

REPOSITORY = pathlib.Path(__file__).parents[2]
MODEL_MAKERS = REPOSITORY / "tests/model"


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; only with ./run-tests --long")
    config.addinivalue_line("markers", "heavy: too slow under a sanitizer")


@pytest.fixture(scope="session")
def bin_dir():
    return pathlib.Path(os.environ.get("KVTIER_BIN_DIR", REPOSITORY / "build/release")).resolve()


@pytest.fixture
def instance(bin_dir):
    with Instance(bin_dir) as kvtier:
        yield kvtier


def make(maker, *arguments):
    subprocess.run([sys.executable, MODEL_MAKERS / maker, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def recall_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("recall") / "recall.gguf"
    make("make_recall_model.py", "model", path)
    return path


@pytest.fixture(scope="session")
def recall_prompt(tmp_path_factory):
    """prompt(n, needles): (path of a --prompt-ids file, queries of the recall prompt)."""
    folder = tmp_path_factory.mktemp("prompts")

    def prompt(tokens, needles):
        path = folder / f"{tokens}-{needles}.json"
        make("make_recall_model.py", "prompt", path, "--n", tokens, "--needles", needles)
        made = json.loads(path.read_text())
        ids = folder / f"{tokens}-{needles}.ids"
        ids.write_text(json.dumps(made["ids"]))
        return ids, made["queries"]

    return prompt


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    make("make_tiny_model.py", path, "--type", "mixed")
    return path


@pytest.fixture(scope="session")
def smollm2():
    path = os.environ.get("KVTIER_SMOLLM2", "")
    if not pathlib.Path(path).is_file():
        pytest.skip("no SmolLM2 model: ./run-tests fetches it")
    return pathlib.Path(path)
