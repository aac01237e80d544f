#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks the peer (llama.cpp's llama-tokenize) for the ids of the tokenizer inputs, for tests/data.

    make_tokenizer_vectors.py LLAMA_TOKENIZE MODEL.gguf CASES.inp OUT.txt

A line of OUT is one case: its ids, separated by spaces. CASES holds texts separated by
"\n__ggml_vocab_test__\n". No BOS is added and special tokens in the text are text.
"""
import ast
import subprocess
import sys
import tempfile


def ids_of(tool, model, text):
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        command = [tool, "-m", model, "-f", file.name, "--ids", "--no-escape", "--no-bos", "--no-parse-special"]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    return ast.literal_eval(result.stdout.strip().splitlines()[-1])


def main():
    tool, model, cases, out = sys.argv[1:]
    with open(cases, "rb") as file:
        texts = file.read().split(b"\n__ggml_vocab_test__\n")
    with open(out, "w", encoding="ascii") as file:
        for text in texts:
            ids = ids_of(tool, model, text) if text else []
            file.write(" ".join(map(str, ids)) + "\n")


if __name__ == "__main__":
    main()
