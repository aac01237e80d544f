#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of gguf_fuzz: small valid models and vocabularies of each kind. make_gguf_seeds.py FOLDER"""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "model"))
from make_tiny_model import array, flag, number, pad, real, string, text  # noqa: E402

WIDTH = 32
SPM = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "b", "ab", "\u2581a"]
SPM_TYPES = [2, 3, 3, 6, 1, 1, 1, 1, 1]
BPE = ["<|im_start|>", "<|im_end|>", "a", "b", "\u0120", "ab", "\u0120a", "<u>"]
BPE_TYPES = [3, 3, 1, 1, 1, 1, 1, 4]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tokens(names, types):
    return [
        array("tokenizer.ggml.tokens", 8, [text(n) for n in names]),
        array("tokenizer.ggml.token_type", 5, [struct.pack("<i", t) for t in types]),
    ]


def spm():
    scores = array("tokenizer.ggml.scores", 6, [struct.pack("<f", -i) for i in range(len(SPM))])
    ids = [number(f"tokenizer.ggml.{n}_token_id", i) for n, i in (("unknown", 0), ("bos", 1), ("eos", 2))]
    return [string("tokenizer.ggml.model", "llama"), scores, *tokens(SPM, SPM_TYPES), *ids]


def bpe(pre):
    return [
        string("tokenizer.ggml.model", "gpt2"),
        string("tokenizer.ggml.pre", pre),
        array("tokenizer.ggml.merges", 8, [text("a b"), text("\u0120 a")]),
        *tokens(BPE, BPE_TYPES),
        number("tokenizer.ggml.bos_token_id", 0),
        number("tokenizer.ggml.eos_token_id", 1),
        flag("tokenizer.ggml.add_bos_token", True),
        string("tokenizer.chat_template", CHATML),
    ]


def config():
    sizes = {"context_length": 64, "embedding_length": WIDTH, "block_count": 1, "feed_forward_length": WIDTH,
             "attention.head_count": 2, "attention.head_count_kv": 1, "rope.dimension_count": 16}
    return [
        string("general.architecture", "llama"),
        *[number("llama." + k, v) for k, v in sizes.items()],
        real("llama.attention.layer_norm_rms_epsilon", 1e-5),
        real("llama.rope.freq_base", 1e4),
    ]


def weights(vocab):
    q4_0, f32 = 2, 0
    yield "token_embd.weight", q4_0, (WIDTH, vocab)
    rows = {"attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32, "ffn_gate": 32, "ffn_up": 32, "ffn_down": 32}
    for name, count in rows.items():
        yield f"blk.0.{name}.weight", q4_0, (WIDTH, count)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        yield name + ".weight", f32, (WIDTH,)
    yield "rope_freqs.weight", f32, (8,)


def model(values, listed=(), version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(listed), len(values)) + b"".join(values)
    data = b""
    for name, kind, shape in listed:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", kind, len(data))
        rows = shape[1] if len(shape) > 1 else 1
        data += pad(b"\x00\x3c" * (rows * 9) if kind == 2 else struct.pack("<f", 1) * shape[0])
    return pad(head) + data


def main():
    folder = pathlib.Path(sys.argv[1])
    seeds = {
        "spm_model": model(config() + spm(), list(weights(len(SPM)))),
        "bpe_model": model(config() + bpe("smollm"), list(weights(len(BPE))), 2),
        "spm_vocabulary": model(spm()),
        "bpe_gpt2": model(bpe("gpt-2")),
        "bpe_default": model(bpe("default")),
        "aligned": model([number("general.alignment", 64)]),
    }
    for name, data in seeds.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
