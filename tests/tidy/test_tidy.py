#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""At stake: a check that never fails keeps nothing alive. A small tree that follows every rule passes; then each rule is
broken alone, and exactly its check must complain."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tidy  # noqa: E402

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
GOOD = {
    "README.md": "# x\n\n| folder | |\n|---|---|\n| `proto/` | a |\n| `kvstored/` | b |\n| `gpud/` | b |\n| `tests/` | c |\n",
    "proto/status.h": SPDX + "enum status { STATUS_OK };\n// The name of a status.\nconst char *status_name(enum status status);\n",
    "proto/status.c": SPDX + '#include "proto/status.h"\n\nconst char *status_name(enum status status)\n{\n    return "";\n}\n',
    "kvstored/README.md": "# rules\n\n| file | |\n|---|---|\n| `eviction.[ch]` | victims |\n| `arena.[ch]` | slots |\n",
    "kvstored/arena.h": SPDX + "struct arena;\n// Slots in all.\nunsigned arena_count(struct arena *arena, int kind);\n",
    "kvstored/arena.c": SPDX + '#include "kvstored/arena.h"\n#include "proto/status.h"\n',
    "kvstored/eviction.h": SPDX + '#include "proto/status.h"\n',
    "kvstored/eviction.c": SPDX + '#include "kvstored/eviction.h"\n',
    "gpud/reply.c": SPDX,
    "tests/proto/status_test.c": SPDX,
    "tests/kvstored/arena_test.c": SPDX,
    "tests/kvstored/eviction_test.c": SPDX,
    "tests/gpud/reply_test.c": SPDX,
}


class TidyTest(unittest.TestCase):
    def found(self, changes):
        """Names of the checks that complain about GOOD with `changes` (a value of None removes a file)."""
        with tempfile.TemporaryDirectory() as root:
            for name, text in {**GOOD, **changes}.items():
                if text is not None:
                    path = pathlib.Path(root, name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text)
            return [rule for rule, complaints in tidy.problems(root).items() if complaints]

    def test_good_tree(self):
        self.assertEqual(self.found({}), [])

    def test_arrow_up(self):
        self.assertEqual(self.found({"kvstored/arena.c": SPDX + '#include "kvstored/eviction.h"\n'}), ["check_arrows"])

    def test_arrow_out_of_the_folder(self):
        self.assertEqual(self.found({"proto/status.c": SPDX + '#include "kvstored/arena.h"\n'}), ["check_arrows"])

    def test_include_of_a_missing_file(self):
        self.assertEqual(self.found({"kvstored/arena.c": SPDX + '#include "arena.h"\n'}), ["check_arrows"])

    def test_cycle(self):
        self.assertEqual(self.found({
            "proto/limits.h": SPDX + '#include "proto/block.h"\n',
            "proto/block.h": SPDX + '#include "proto/limits.h"\n'}), ["check_cycles"])

    def test_third_party(self):
        for header in ("nng/nng.h", "msgpack.h", "lmdb.h", "sodium.h", "pcre2.h", "ini.h", "xxhash.h", "cuda.h"):
            self.assertEqual(self.found({"gpud/reply.c": SPDX + f"#include <{header}>\n"}), ["check_third_party"], header)

    def test_third_party_in_its_place(self):
        self.assertEqual(self.found({
            "kvstored/disk.c": SPDX + "#include <lmdb.h>\n", "tests/kvstored/disk_test.c": SPDX,
            "kvstored/README.md": GOOD["kvstored/README.md"] + "| `disk.c` | LMDB |\n"}), [])

    def test_getenv(self):
        self.assertEqual(self.found({"gpud/reply.c": SPDX + 'static char *x(void)\n{\n    return getenv("X");\n}\n'}),
                         ["check_getenv"])

    def test_undocumented_prototype(self):
        header = SPDX + "struct arena;\n\nunsigned arena_count(struct arena *arena, int kind);\n"
        self.assertEqual(self.found({"kvstored/arena.h": header}), ["check_prototypes"])

    def test_undocumented_inline(self):
        header = SPDX + "\nstatic inline int twice(int x)\n{\n    return 2 * x;\n}\n"
        self.assertEqual(self.found({"kvstored/arena.h": header}), ["check_prototypes"])

    def test_getter_needs_no_comment(self):
        header = SPDX + "struct arena;\n\nunsigned arena_count(const struct arena *arena);\n"
        self.assertEqual(self.found({"kvstored/arena.h": header}), [])

    def test_module_without_test(self):
        self.assertEqual(self.found({"tests/kvstored/arena_test.c": None}), ["check_tests"])

    def test_part_of_a_module_is_tested_by_its_test(self):
        self.assertEqual(self.found({"proto/status_names.c": SPDX, "proto/status_posix.c": SPDX}), [])

    def test_readme_lists_a_missing_file(self):
        text = GOOD["kvstored/README.md"] + "| `lease.[ch]` | leases |\n"
        self.assertEqual(self.found({"kvstored/README.md": text}), ["check_readmes"])

    def test_readme_leaves_a_file_out(self):
        text = "# rules\n\n| `arena.[ch]` | slots |\n"
        self.assertEqual(self.found({"kvstored/README.md": text}), ["check_readmes"])

    def test_root_readme(self):
        text = GOOD["README.md"].replace("| `gpud/` | b |\n", "")
        self.assertEqual(self.found({"README.md": text}), ["check_root_readme"])
        self.assertEqual(self.found({"README.md": GOOD["README.md"] + "| `client/` | x |\n"}), ["check_root_readme"])

    def test_spdx(self):
        self.assertEqual(self.found({"gpud/reply.c": "// A reply.\n"}), ["check_spdx"])
        self.assertEqual(self.found({"tests/x.py": "#!/usr/bin/env python3\nprint()\n"}), ["check_spdx"])

    def test_long_file(self):
        self.assertEqual(self.found({"gpud/reply.c": SPDX + "int x;\n" * 1000}), ["check_sizes"])

    def test_long_function(self):
        body = "static void f(int a,\n              int b)\n{\n" + "    x();\n" * 118 + "}\n"
        self.assertEqual(self.found({"gpud/reply.c": SPDX + "\n" + body}), ["check_sizes"])
        self.assertEqual(self.found({"gpud/reply.c": SPDX + "\n" + body.replace("    x();\n", "", 4)}), [])

    def test_parameters_are_counted(self):
        lines = "static void f(int a, int b, int c,\n    int d, int e, int g)\n{\n}\n".split("\n")
        self.assertEqual([f[0] + str(f[3]) for f in tidy.functions(lines)], ["f6"])


if __name__ == "__main__":
    unittest.main()
