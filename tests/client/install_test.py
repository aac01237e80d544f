#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""At stake: `cmake --install` must leave a library that a stranger's C program compiles against with nothing but
pkg-config, whatever the prefix, and that shows exactly what its header declares.

    install_test.py CMAKE BUILD_FOLDER C_COMPILER"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

EXIT_UNREACHABLE = 3

PROGRAM = r"""
#include <kvtier.h>
#include <stdio.h>

int main(void)
{
    struct kvtier_client *client = NULL;
    struct kvtier_error error;
    int status = kvtier_open("ipc:///nonexistent/gpud.sock", &client, &error);
    printf("%s: %s; %s\n", kvtier_status_name(status), error.message, error.hint);
    return status == KVTIER_UNREACHABLE ? 3 : 1;
}
"""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def declared(header):
    """Functions of the header that are marked as the library's."""
    return set(re.findall(r"KVTIER_API[^;(]*?(\w+)\(", header.read_text().split("struct kvtier_error {")[1]))


def main(cmake, build, compiler):
    with tempfile.TemporaryDirectory(prefix="kvtier-install-") as scratch:
        prefix = pathlib.Path(scratch) / "moved here"
        run(cmake, "--install", build, "--prefix", prefix)
        for name in ("gpud", "kvstored", "gpuctl", "kvctl"):
            assert run(prefix / "bin" / name, "--version").split()[0] == name
        library = next(prefix.rglob("libkvtier.so"))
        shown = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()}
        shown = {name for name in shown if not name.startswith("KVTIER_")}
        wanted = declared(prefix / "include" / "kvtier.h")
        assert shown == wanted, f"only in the library: {shown - wanted}; only in the header: {wanted - shown}"

        # pkg-config does not quote spaces the way a shell reads them: hand it a path without.
        link = pathlib.Path(scratch) / "prefix"
        link.symlink_to(prefix)
        pc = next(link.glob("lib*/pkgconfig")) if any(link.glob("lib*/pkgconfig")) else next(link.glob("lib*/*/pkgconfig"))
        flags = run("pkg-config", "--cflags", "--libs", "kvtier", env=dict(os.environ, PKG_CONFIG_PATH=str(pc))).split()
        source = pathlib.Path(scratch) / "program.c"
        program = pathlib.Path(scratch) / "program"
        source.write_text(PROGRAM)
        run(compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, *flags, "-o", program)
        done = subprocess.run([program], env=dict(os.environ, LD_LIBRARY_PATH=str(library.parent)), text=True,
                              capture_output=True)
        assert done.returncode == EXIT_UNREACHABLE, (done.returncode, done.stdout, done.stderr)
        assert done.stdout.startswith("unreachable: gpud: is not running"), done.stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
