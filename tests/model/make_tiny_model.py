#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A `llama` model of random weights, small enough for the equality matrix: every tensor type, every run in
seconds. Deterministic: the same options give the same bytes.

    make_tiny_model.py OUT.gguf [--type f32|f16|bf16|q8_0|q4_0|q4_1|mixed] [--seed 0] [--layers 3] [--embd 128]
                       [--heads 4] [--kv-heads 2] [--head-dim 32] [--ff 256] [--context 8192] [--tied]

`mixed` gives each matrix of a layer another type. The vocabulary is the recall model's (SentencePiece). Weights
are scaled so that activations keep their size through the layers and the logits spread over about +-8: greedy
choices are then clear, and every bit of the logits depends on every weight.
"""
import argparse
import struct

import numpy as np

import make_recall_model as recall

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 8, "bf16": 30}
MIXED = ["q8_0", "q4_0", "q4_1", "f16", "bf16", "f32", "q4_1"]
BLOCK = 32  # values that share a scale


def half(x):
    return np.asarray(x, np.float16)


def pack_nibbles(q):
    """[n, 32] values 0..15: value i in the low half of byte i, value i + 16 in its high half."""
    return (q[:, :16] | q[:, 16:] << 4).astype(np.uint8)


def quantize(values, kind):
    """The bytes of float32 `values` [rows, columns] in GGUF form."""
    if kind == "f32":
        return values.astype("<f4").tobytes()
    if kind == "f16":
        return values.astype("<f2").tobytes()
    if kind == "bf16":
        bits = values.astype("<f4").view("<u4").astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    x = values.reshape(-1, BLOCK)
    if kind == "q8_0":
        d = half(np.abs(x).max(1) / 127)
        q = np.rint(x / np.maximum(d.astype(np.float32), 1e-12)[:, None]).clip(-127, 127).astype(np.int8)
        return np.concatenate([d[:, None].view(np.uint8), q.view(np.uint8)], 1).tobytes()
    if kind == "q4_0":
        d = half(np.abs(x).max(1) / 7)
        q = (np.rint(x / np.maximum(d.astype(np.float32), 1e-12)[:, None]) + 8).clip(0, 15).astype(np.uint8)
        return np.concatenate([d[:, None].view(np.uint8), pack_nibbles(q)], 1).tobytes()
    low = half(x.min(1))
    d = half((x.max(1) - low) / 15)
    q = (x - low.astype(np.float32)[:, None]) / np.maximum(d.astype(np.float32), 1e-12)[:, None]
    q = np.rint(q).clip(0, 15).astype(np.uint8)
    return np.concatenate([d[:, None].view(np.uint8), low[:, None].view(np.uint8), pack_nibbles(q)], 1).tobytes()


def tensors(o):
    """Name, type and float32 values, in the order of the file."""
    rng = np.random.default_rng(o.seed)
    mixed = [0]

    def matrix(name, rows, columns, gain=1.0):
        kind = MIXED[mixed[0] % len(MIXED)] if o.type == "mixed" else o.type
        mixed[0] += 1
        return name, kind, rng.standard_normal((rows, columns), np.float32) * np.float32(gain / columns**0.5)

    def norm(name):
        return name, "f32", (1 + 0.1 * rng.standard_normal(o.embd)).astype(np.float32)[None]

    vocab = len(recall.vocab()[0])
    yield matrix("token_embd.weight", vocab, o.embd, o.embd**0.5)
    for layer in range(o.layers):
        b = f"blk.{layer}."
        yield norm(b + "attn_norm.weight")
        yield matrix(b + "attn_q.weight", o.heads * o.head_dim, o.embd, 2)
        yield matrix(b + "attn_k.weight", o.kv_heads * o.head_dim, o.embd, 2)
        yield matrix(b + "attn_v.weight", o.kv_heads * o.head_dim, o.embd)
        yield matrix(b + "attn_output.weight", o.embd, o.heads * o.head_dim)
        yield norm(b + "ffn_norm.weight")
        yield matrix(b + "ffn_gate.weight", o.ff, o.embd)
        yield matrix(b + "ffn_up.weight", o.ff, o.embd)
        yield matrix(b + "ffn_down.weight", o.embd, o.ff)
    yield norm("output_norm.weight")
    if not o.tied:
        yield matrix("output.weight", vocab, o.embd, 2)


def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def number(key, value):
    return text(key) + struct.pack("<II", 4, value)


def real(key, value):
    return text(key) + struct.pack("<If", 6, value)


def flag(key, value):
    return text(key) + struct.pack("<I?", 7, value)


def string(key, value):
    return text(key) + struct.pack("<I", 8) + text(value)


def array(key, kind, items):
    return text(key) + struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)


def metadata(o):
    tokens, types, _, _ = recall.vocab()
    scores = [0.0 if i < 259 else -float(i) for i in range(len(tokens))]
    return [
        string("general.architecture", "llama"),
        string("general.name", f"tiny random {o.type} {o.seed}"),
        number("llama.context_length", o.context),
        number("llama.embedding_length", o.embd),
        number("llama.block_count", o.layers),
        number("llama.feed_forward_length", o.ff),
        number("llama.attention.head_count", o.heads),
        number("llama.attention.head_count_kv", o.kv_heads),
        number("llama.attention.key_length", o.head_dim),
        number("llama.attention.value_length", o.head_dim),
        number("llama.vocab_size", len(tokens)),
        real("llama.attention.layer_norm_rms_epsilon", 1e-5),
        number("llama.rope.dimension_count", o.head_dim),
        real("llama.rope.freq_base", 10000.0),
        string("tokenizer.ggml.model", "llama"),
        array("tokenizer.ggml.tokens", 8, [text(t) for t in tokens]),
        array("tokenizer.ggml.scores", 6, [struct.pack("<f", s) for s in scores]),
        array("tokenizer.ggml.token_type", 5, [struct.pack("<i", t) for t in types]),
        number("tokenizer.ggml.bos_token_id", recall.BOS),
        number("tokenizer.ggml.eos_token_id", recall.EOS),
        number("tokenizer.ggml.unknown_token_id", 0),
        flag("tokenizer.ggml.add_bos_token", True),
    ]


def pad(data):
    return data + b"\0" * (-len(data) % 32)


def write_model(o):
    listed = list(tensors(o))
    values = metadata(o)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(values)) + b"".join(values)
    data = b""
    for name, kind, x in listed:
        shape = x.shape[1:] if name.endswith("norm.weight") else x.shape[::-1]
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", TYPES[kind], len(data))
        data += pad(quantize(x, kind))
    with open(o.out, "wb") as file:
        file.write(pad(head) + data)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--type", default="f16", choices=[*TYPES, "mixed"])
    p.add_argument("--tied", action="store_true", help="no output.weight: the embedding serves as output")
    sizes = {"seed": 0, "layers": 3, "embd": 128, "heads": 4, "kv-heads": 2, "head-dim": 32, "ff": 256,
             "context": 8192}
    for name, value in sizes.items():
        p.add_argument("--" + name, type=int, default=value)
    write_model(p.parse_args())


if __name__ == "__main__":
    main()
