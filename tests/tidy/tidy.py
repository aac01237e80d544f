#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the house style alive (CONTRIBUTING.md). Reads the tree as text and fails on what would make it rot: includes
that point up or in circles, third-party headers outside their place, undocumented prototypes, modules without a test,
README lists that lie, getenv outside config, missing SPDX lines, and what is far too long. It reports, without failing,
what is merely long. The layout that .clang-format gives (a function's braces stand in column 0) is relied on.

    tidy.py [ROOT]"""
import collections
import pathlib
import re
import sys

# Who may include whom, arrows pointing down. Left: a module (`folder/name`; files `name_*` belong to it unless they
# have a line of their own). Right: the modules it may include besides itself and what its folder may (FOLDER_ARROWS);
# `folder/*` is every module of a folder. A module of gpud/, kvstored/ or client/ without a line includes none above it.
ARROWS = """
gpud/main           gpud/*
gpud/config         gpud/kernels/*
gpud/request        gpud/cold_store gpud/sampler gpud/reply
gpud/intake         gpud/request gpud/sampler gpud/reply gpud/cold_store
gpud/store_watch
gpud/ipc            gpud/intake gpud/store_watch gpud/session gpud/scheduler gpud/reply gpud/stats gpud/request gpud/worker gpud/engine gpud/cold_store gpud/kv_cache gpud/sampler
gpud/worker         gpud/session gpud/scheduler gpud/block_table gpud/reply gpud/request gpud/cold_store gpud/stats gpud/sampler
gpud/session        gpud/block_table gpud/reply gpud/request gpud/cold_store gpud/sampler gpud/stats
gpud/scheduler      gpud/session gpud/request
gpud/logits
gpud/text_stream
gpud/engine         gpud/worker gpud/logits gpud/text_stream gpud/scheduler gpud/session gpud/forward gpud/kv_cache gpud/sampler gpud/drafter gpud/reply gpud/stats gpud/request gpud/cold_store
gpud/forward        gpud/attention gpud/weights gpud/kv_cache gpud/kernels/*
gpud/weights        gpud/kernels/*
gpud/attention      gpud/kv_cache gpud/kernels/*
gpud/kv_cache       gpud/block_table gpud/block_digest gpud/hot_pool gpud/cold_store
gpud/block_digest   gpud/kernels/*
gpud/hot_pool       gpud/kernels/*
gpud/cold_store     gpud/cold_arena gpud/mover client/kv_client
gpud/mover          gpud/cold_arena
gpud/cold_arena     client/kv_client kvstored/store
gpud/block_table
gpud/sampler
gpud/drafter
gpud/reply
gpud/stats
kvstored/main       kvstored/*
kvstored/dispatcher kvstored/store kvstored/stats kvstored/config
kvstored/store      kvstored/block_index kvstored/arena kvstored/eviction kvstored/lease kvstored/checkpoint kvstored/writeback kvstored/loader kvstored/inspector kvstored/catalog kvstored/disk kvstored/bell kvstored/value_stats
kvstored/inspector  kvstored/verify kvstored/value_stats kvstored/catalog kvstored/checkpoint kvstored/disk kvstored/bell
kvstored/writeback  kvstored/arena kvstored/block_index kvstored/sweep kvstored/checkpoint kvstored/disk kvstored/bell
kvstored/loader     kvstored/arena kvstored/disk kvstored/bell
kvstored/verify     kvstored/sweep kvstored/checkpoint kvstored/disk
kvstored/sweep      kvstored/block_index kvstored/checkpoint kvstored/disk
kvstored/catalog    kvstored/disk
kvstored/eviction   kvstored/block_index
kvstored/disk       kvstored/checkpoint
kvstored/block_index
kvstored/arena
kvstored/lease
kvstored/checkpoint
kvstored/bell
kvstored/value_stats
kvstored/config
kvstored/stats
client/gpuctl       client/* gpud/model/*
client/kvctl        client/*
client/kvtier       client/gpu_client client/config
client/gpu_client
client/kv_client
client/config
client/console      client/json
client/options
client/json
"""
# What every module of a folder may include.
FOLDER_ARROWS = {
    "proto": ["proto/*", "proto/os/*"],
    "proto/os": ["proto/os/*", "proto/status", "proto/limits"],
    "client": ["proto/*", "proto/os/*"],
    "kvstored": ["proto/*", "proto/os/*"],
    "gpud": ["proto/*", "proto/os/*", "gpud/model/*"],
    "gpud/model": ["proto/*", "proto/os/*", "gpud/model/*"],
    "gpud/kernels": ["proto/*", "proto/os/*", "gpud/kernels/*", "gpud/kernels/cpu/*"],
    "gpud/kernels/cpu": ["proto/*", "proto/os/*", "gpud/kernels/*", "gpud/kernels/cpu/*"],
}
# Third-party headers and the files (patterns of whole paths) that may include them.
THIRD_PARTY = {
    "nng/": r"proto/endpoint\w*\.c",
    "msgpack": r"proto/codec\w*\.c",
    "lmdb.h": r"kvstored/disk\w*\.[ch]",
    "sodium": r"proto/hash\.c",
    "xxhash.h": r"proto/(block_id|hash)\.c|gpud/logits\.c",
    "pcre2.h": r"gpud/model/pretokenizer\.c",
    "ini.h": r"proto/config_file\.c",
    "cuda": r"gpud/kernels/cuda/.*",
    "systemd/": r"proto/os/service_posix\.c",
}
GETENV = r"(\w+/)*(config|runtime_dir)\.c|proto/os/service_posix\.c"  # the last: NOTIFY_SOCKET of sd_notify(3)
# Modules and folders whose test has another name.
TESTED_ELSEWHERE = {
    "client/gpuctl": "tests/end_to_end/test_commands.py",
    "client/kvctl": "tests/end_to_end/test_commands.py",
    "client/config": "tests/end_to_end/test_commands.py",
    "client/supervisor": "tests/end_to_end/test_daemons.py",
    "gpud/config": "tests/end_to_end/test_daemons.py",
    "kvstored/config": "tests/end_to_end/test_daemons.py",
    "gpud/main": "tests/end_to_end/test_daemons.py",
    "kvstored/main": "tests/end_to_end/test_daemons.py",
}
PRODUCT = ("proto", "client", "kvstored", "gpud")
FILE_LINES_MAX, FILE_LINES_LONG = 1000, 700
FUNCTION_LINES_MAX, FUNCTION_LINES_LONG, FUNCTION_LINES_NOTED = 120, 70, 40
PARAMETERS_LONG = 5
PLATFORM_SUFFIX = re.compile(r"_(posix|windows|linux|avx2|avx512|neon)$")
COMMENT = re.compile(r"^\s*(//|/\*|\*)|//|/\*")


class Tree:
    """The text of the project's files, by path relative to the root."""

    def __init__(self, root):
        self.files = {}
        for path in sorted(pathlib.Path(root).rglob("*")):
            name = path.relative_to(root)
            if name.parts[0] in ("build", ".git") or "__pycache__" in name.parts or not path.is_file():
                continue
            try:
                self.files[str(name)] = path.read_text().split("\n")
            except UnicodeDecodeError:
                continue  # test data
        self.folders = {str(pathlib.PurePath(name).parent) for name in self.files}

    def sources(self, *suffixes):
        return [name for name in self.files if name.startswith(tuple(f"{p}/" for p in PRODUCT)) and name.endswith(suffixes)]

    def module(self, name):
        """`folder/module` that a source belongs to: the shortest listed or headed prefix of its name."""
        folder, stem = str(pathlib.PurePath(name).parent), pathlib.PurePath(name).stem
        stem = PLATFORM_SUFFIX.sub("", stem)
        words = stem.split("_")
        for count in range(len(words), 0, -1):
            candidate = f"{folder}/{'_'.join(words[:count])}"
            if candidate in arrows() or (count < len(words) and f"{candidate}.h" in self.files):
                return candidate
        return f"{folder}/{stem}"


def arrows():
    lines = [line.split() for line in ARROWS.strip().splitlines()]
    return {line[0]: line[1:] for line in lines}


def includes(lines):
    """(line number, header, whether in quotes) of each #include."""
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
        if match:
            yield number, match[2], match[1] == '"'


def matches(module, patterns):
    return any(module == p or (p.endswith("/*") and module.rsplit("/", 1)[0] == p[:-2]) for p in patterns)


def check_arrows(tree):
    for name in tree.sources(".c", ".h"):
        own, folder = tree.module(name), str(pathlib.PurePath(name).parent)
        allowed = arrows().get(own, []) + FOLDER_ARROWS.get(folder, [])
        for number, header, quoted in includes(tree.files[name]):
            if not quoted:
                continue
            if header not in tree.files:
                yield f"{name}:{number}: \"{header}\" is not a path from the root"
            elif tree.module(header) != own and not matches(tree.module(header), allowed):
                yield f"{name}:{number}: {own} may not include {header} (the table in tests/tidy/tidy.py)"


def check_cycles(tree):
    graph = {name: [h for _, h, quoted in includes(tree.files[name]) if quoted and h in tree.files]
             for name in tree.sources(".c", ".h")}
    state = {}

    def visit(name, path):
        state[name] = "open"
        for header in graph.get(name, []):
            if state.get(header) == "open":
                yield "include cycle: " + " -> ".join(path[path.index(header):] + [header])
            elif header not in state:
                yield from visit(header, path + [header])
        state[name] = "done"

    for name in graph:
        if name not in state:
            yield from visit(name, [name])


def check_third_party(tree):
    for name in tree.sources(".c", ".h"):
        for number, header, quoted in includes(tree.files[name]):
            for prefix, place in THIRD_PARTY.items():
                if not quoted and header.startswith(prefix) and not re.fullmatch(place, name):
                    yield f"{name}:{number}: <{header}> belongs in {place}"


def check_getenv(tree):
    for name in tree.sources(".c", ".h"):
        for number, line in enumerate(tree.files[name], 1):
            if re.search(r"\b(secure_)?getenv\s*\(", line.split("//")[0]) and not re.fullmatch(GETENV, name):
                yield f"{name}:{number}: getenv outside config"


def is_prototype(line):
    return re.match(r"[A-Za-z_][\w \t\*]*\b\w+\(", line) and not re.match(r"(typedef|return|static_assert|else|if|for|while)\b", line)


def is_getter(line):
    """`T module_thing(const struct module *module);` says all there is to say."""
    return re.fullmatch(r"[\w \*]+\b\w+\(const struct \w+ \*\w+\);", line)


def check_prototypes(tree):
    """In a header, each paragraph (lines without a blank one between) that declares functions says what they do."""
    for name in tree.sources(".h"):
        documented, depth = False, 0
        for number, line in enumerate(tree.files[name], 1):
            if not line.strip():
                documented = documented and depth > 0
            elif COMMENT.search(line):
                documented = True
            elif depth == 0 and is_prototype(line) and not is_getter(line) and not documented:
                function = re.search(r"(\w+)\(", line)[1]
                yield f"{name}:{number}: {function} has no comment"
            depth += 0 if line.startswith("extern \"C\"") else line.count("{") - line.count("}")
            depth = max(depth, 0)


def check_tests(tree):
    """A module has tests/*/<module>_test.c, or one of a shorter name that covers several (arena_test.c: arena_slot.c)."""
    tests = {pathlib.PurePath(name).name for name in tree.files if name.startswith("tests/")}
    for name in tree.sources(".c"):
        elsewhere = TESTED_ELSEWHERE.get(tree.module(name)) or TESTED_ELSEWHERE.get(str(pathlib.PurePath(name).parent))
        words = PLATFORM_SUFFIX.sub("", pathlib.PurePath(name).stem).split("_")
        names = {"_".join(words[:count]) + "_test.c" for count in range(1, len(words) + 1)}
        if elsewhere is None and not names & tests:
            yield f"{name}: no tests/*/{'_'.join(words)}_test.c"
        elif elsewhere is not None and elsewhere not in tree.files:
            yield f"{name}: its test {elsewhere} is missing"


def check_readmes(tree):
    """A folder's README that lists files (table rows or bullets that start with `name`) lists all of them and no other."""
    for name, lines in tree.files.items():
        path = pathlib.PurePath(name)
        if path.name != "README.md" or str(path.parent) == ".":
            continue
        folder = str(path.parent)
        listed = set()
        for line in lines:
            row = re.match(r"\s*[|*-]\s*((`[^`]+`[, ]*)+)", line)
            for entry in re.findall(r"`([^`]+)`", row[1]) if row else []:
                listed |= {entry.replace("[ch]", c) for c in "ch"} if "[ch]" in entry else {entry}
        listed = {entry for entry in listed if re.fullmatch(r"[\w-]+\.[ch]", entry)}
        present = {pathlib.PurePath(other).name for other in tree.files
                   if str(pathlib.PurePath(other).parent) == folder and other.endswith((".c", ".h"))}
        if listed:
            yield from (f"{name}: lists {entry}, which is not there" for entry in sorted(listed - present))
            yield from (f"{name}: does not list {entry}" for entry in sorted(present - listed))


def check_root_readme(tree):
    """The root README's rows that start with `folder/` are the folders there are."""
    lines = tree.files.get("README.md", [])
    listed = {match[1] for match in (re.match(r"\|\s*`([\w.-]+)/`", line) for line in lines) if match}
    present = {pathlib.PurePath(name).parts[0] for name in tree.files if "/" in name and not name.startswith(".")}
    yield from (f"README.md: lists {entry}/, which is not there" for entry in sorted(listed - present))
    yield from (f"README.md: does not list {entry}/" for entry in sorted(present - listed))


def check_spdx(tree):
    for name, lines in tree.files.items():
        path = pathlib.PurePath(name)
        script = lines[0].startswith("#!")
        if not script and path.suffix not in (".c", ".h", ".py", ".sh") and path.name != "CMakeLists.txt":
            continue
        line = lines[1] if script and len(lines) > 1 else lines[0]
        if not re.fullmatch(r"(//|#) SPDX-License-Identifier: Apache-2.0", line):
            yield f"{name}: no SPDX line on top"


def functions(lines):
    """(name, first line, line count, parameter count) of each function of a formatted .c file."""
    for end, line in enumerate(lines):
        if line != "}":
            continue
        start = end
        while start > 0 and lines[start] != "{":
            start -= 1
        head = start
        while head > 0 and lines[head - 1] and not re.match(r"//|#|}|.*[;/]$", lines[head - 1]):
            head -= 1
        signature = " ".join(lines[head:start])
        match = re.search(r"(\w+)\((.*)\)", re.sub(r"__attribute__\(\(.*?\)\)", "", signature))
        if match and start > head:
            yield match[1], head + 1, end - head + 1, 0 if match[2] in ("", "void") else match[2].count(",") + 1


def check_sizes(tree):
    for name in tree.sources(".c", ".h"):
        if len(tree.files[name]) - 1 > FILE_LINES_MAX:
            yield f"{name}: {len(tree.files[name]) - 1} lines, the ceiling is {FILE_LINES_MAX}"
    for name in tree.sources(".c"):
        for function, line, count, _ in functions(tree.files[name]):
            if count > FUNCTION_LINES_MAX:
                yield f"{name}:{line}: {function} has {count} lines, the ceiling is {FUNCTION_LINES_MAX}"


def report(tree):
    """What is long without being forbidden, and how many functions are."""
    lengths = []
    for name in tree.sources(".c", ".h"):
        if len(tree.files[name]) - 1 > FILE_LINES_LONG:
            yield f"{name}: {len(tree.files[name]) - 1} lines: is there a second concern?"
    for name in tree.sources(".c"):
        for function, line, count, parameters in functions(tree.files[name]):
            lengths.append(count)
            if count > FUNCTION_LINES_LONG:
                yield f"{name}:{line}: {function} has {count} lines"
            if parameters > PARAMETERS_LONG:
                yield f"{name}:{line}: {function} takes {parameters} parameters"
    if lengths:
        lengths.sort()
        long = sum(count > FUNCTION_LINES_NOTED for count in lengths)
        yield (f"{len(lengths)} functions, median {lengths[len(lengths) // 2]} lines, "
               f"{long} ({100 * long / len(lengths):.0f} %) over {FUNCTION_LINES_NOTED}")


CHECKS = [check_arrows, check_cycles, check_third_party, check_getenv, check_prototypes, check_tests, check_readmes,
          check_root_readme, check_spdx, check_sizes]


def problems(root):
    tree = Tree(root)
    return collections.OrderedDict((check.__name__, list(check(tree))) for check in CHECKS)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]
    for line in report(Tree(root)):
        print(f"note: {line}")
    found = [problem for rule in problems(root).values() for problem in rule]
    for problem in found:
        print(f"tidy: {problem}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
