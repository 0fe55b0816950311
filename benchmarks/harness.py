"""Builds the programs in benchmarks/kernels: the engine without Python, as a release compiles it.

The flags are those of CMakeLists.txt, plus `-g`, which changes no instruction. One instruction set
is compiled in, so nothing is chosen at run time.
"""

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
KERNELS = ROOT / "src" / "kernels"
PROGRAMS = Path(__file__).parent / "kernels"
BUILT = ROOT / "build" / "benchmarks"
ENGINE_FLAGS = ["-fstack-protector-strong"]
LEVELS = {"baseline": [], "avx2": ["-march=x86-64-v3"], "avx512": ["-march=x86-64-v4"]}


class UnavailableError(Exception):
    """What is asked for cannot be had on this machine; the words say what to do."""


@cache
def compiler() -> list[str]:
    """Return the command that compiles C++: CXX, or the first compiler on the path."""
    wish = os.environ.get("CXX")
    for command in [wish] if wish else ["c++", "g++", "clang++"]:
        words = shlex.split(command)
        if shutil.which(words[0]):
            return words
    raise UnavailableError(
        "no C++ compiler: install g++ (Debian/Ubuntu: apt install g++), or name one in CXX"
    )


def compiler_version() -> str:
    """Return the compiler's name and major version, such as 'GCC 12'."""
    text = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=True)
    is_clang = "clang" in text.stdout.lower()
    full = subprocess.run([*compiler(), "-dumpversion"], capture_output=True, text=True, check=True)
    return f"{'Clang' if is_clang else 'GCC'} {full.stdout.split('.')[0].strip()}"


def made_by() -> dict[str, str]:
    """Return all that instruction counts depend on beside the sources."""
    library = " ".join(platform.libc_ver())
    return {"compiler": compiler_version(), "library": library, "machine": platform.machine()}


def flags() -> list[str]:
    """Return the flags that CMakeLists.txt gives every source of a release."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.findall(r"target_compile_options\(driftree_flags INTERFACE\s+(-[fU][^)]*)\)", text)
    if len(found) != 2:  # what all builds have, FORTIFY
        raise SystemExit(
            "CMakeLists.txt no longer lists the flags of driftree_flags: adapt flags()"
        )
    return ["-std=c++20", "-O3", *" ".join(found).split()]


def build(name: str, instruction_set: str) -> Path:
    """Return the program benchmarks/kernels/<name>.cpp, compiled anew if anything has changed."""
    level = LEVELS[instruction_set] if platform.machine() in {"x86_64", "AMD64"} else []
    common = [*compiler(), *flags(), "-g", f"-I{KERNELS}", f"-I{PROGRAMS}"]
    models = [
        "-DDRIFTREE_ISA=baseline",
        "-fstack-protector",
        *level,
    ]  # the name by which the engine finds them
    sources = {
        KERNELS / "instruction_sets.cpp": ENGINE_FLAGS,
        KERNELS / "simple_models.cpp": models,
        PROGRAMS / f"{name}.cpp": [*ENGINE_FLAGS, *(level if name == "roofline" else [])],
    }
    key = digest([*common, *models, compiler_version()])
    program = BUILT / f"{name}-{instruction_set}-{key}"
    if program.exists():
        return program
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as folder:
        objects = []
        for source, more in sources.items():
            objects.append(f"{folder}/{source.stem}.o")
            run([*common, *more, "-c", str(source), "-o", objects[-1]])
        run([*compiler(), *objects, "-no-pie", "-Wl,-z,now", "-o", f"{folder}/program"])
        os.replace(f"{folder}/program", program)  # whole, or not there: tests may run side by side
    return program


def build_requests() -> Path:
    """Return the library by which Python tells callgrind when to count."""
    library = BUILT / f"requests-{digest(compiler())}.so"
    if not library.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        source = PROGRAMS / "requests.cpp"
        run([*compiler(), "-O2", "-shared", "-fPIC", str(source), "-o", str(library)])
    return library


def digest(words: list[str]) -> str:
    """Return a name for a command and all sources."""
    state = hashlib.sha256("\0".join(words).encode())
    for file in sorted([*KERNELS.glob("*.[ch]pp"), *PROGRAMS.glob("*.[ch]pp")]):
        state.update(file.read_bytes())
    return state.hexdigest()[:16]


def run(words: list[str]) -> str:
    """Run a command; if it fails, stop with what it said."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)} failed ({done.returncode}):\n{done.stderr[-3000:]}")
    return done.stdout
