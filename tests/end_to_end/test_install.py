# SPDX-License-Identifier: Apache-2.0
"""At stake: what others build on. `cmake --install` into a fresh folder; pkg-config finds the library there, a program that uses only
kvtier.h compiles, links and runs; the installed programs work and the units name them."""
import os
import re
import subprocess

PROGRAM = r"""
#include <kvtier.h>
#include <stdio.h>

int main(void)
{
    struct kvtier_client *client = NULL;
    struct kvtier_error error;
    int status = kvtier_open("ipc:///nowhere/gpud.sock", &client, &error);
    printf("%s %s\n", kvtier_version(), kvtier_status_name(status));
    kvtier_close(client);
    return 0;
}
"""


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True,
                          env=dict(os.environ, **environment)).stdout


def test_install(bin_dir, tmp_path):
    prefix = tmp_path / "prefix"
    run("cmake", "--install", bin_dir, "--prefix", prefix)
    pkgconfig = next(prefix.rglob("kvtier.pc")).parent
    flags = run("pkg-config", "--cflags", "--libs", "kvtier", PKG_CONFIG_PATH=str(pkgconfig)).split()
    (tmp_path / "program.c").write_text(PROGRAM)
    run("cc", "-Wall", "-Werror", tmp_path / "program.c", "-o", tmp_path / "program", *flags)
    library = next(prefix.rglob("libkvtier.so")).parent
    symbols = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library / "libkvtier.so").splitlines()}
    header = next(prefix.rglob("kvtier.h")).read_text().partition("struct kvtier_error {")[2]
    assert symbols - {"KVTIER_0"} == set(re.findall(r"KVTIER_API[^;(]*?(\w+)\(", header))  # what the header declares, no more
    version, status = run(tmp_path / "program", LD_LIBRARY_PATH=str(library)).split()
    assert status == "unreachable"
    for name in ("gpuctl", "kvctl", "gpud", "kvstored"):
        assert run(prefix / "bin" / name, "--version") == f"{name} {version}\n"
    assert {unit.name for unit in prefix.rglob("*.service")} == {"gpud.service", "kvstored.service"}
