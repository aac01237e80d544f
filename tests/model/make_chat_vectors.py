#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders chats with the Jinja templates of model files, for tests/data/chat_chatml.txt: make_chat_vectors.py OUT

Needs jinja2 (the tests do not). A record of OUT, every text preceded by its length in bytes:

    case COUNT GENERATE            COUNT messages; GENERATE: add_generation_prompt, 0 or 1
    template BYTES <newline> TEXT
    ROLE BYTES <newline> TEXT      COUNT times
    rendered BYTES <newline> TEXT
"""
import sys

import jinja2

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PLAIN = (
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CHATS = [
    [("user", "hello")],
    [("user", "")],
    [("system", "You are terse."), ("user", "hello hello\n")],
    [("user", " two\n\nlines "), ("assistant", "h\u00e9llo \U0001f999"), ("user", "'s 12 3")],
    [("assistant", "I begin"), ("tool", "{}")],
    [("system", "")],
]


def field(name, text):
    return f"{name} {len(text.encode())}\n{text}\n"


def main():
    # The settings of the library that the templates are written for.
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    with open(sys.argv[1], "w", encoding="utf-8", newline="") as out:
        for template in (SMOLLM2, PLAIN):
            for chat in CHATS:
                for generate in (False, True):
                    messages = [{"role": role, "content": content} for role, content in chat]
                    rendered = environment.from_string(template).render(
                        messages=messages, add_generation_prompt=generate
                    )
                    out.write(f"case {len(chat)} {int(generate)}\n" + field("template", template))
                    for role, content in chat:
                        out.write(field(role, content))
                    out.write(field("rendered", rendered))


if __name__ == "__main__":
    main()
