#!/usr/bin/env python3
"""Write stand-ins for the NVIDIA libraries that a CUDA build of torch links.

usage: cuda_stubs.py TORCH_LIB_DIRECTORY

The dynamic loader refuses to load torch when a library that it names is absent
or lacks a symbol that must be bound at load time, even on a machine where no
CUDA function will ever be called. So for every missing library this makes one
with the right soname, the symbol versions that torch asks of it, and functions
that answer 100, CUDA's own code for "no device"; torch then reports that CUDA is
not available and runs on the CPU.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

NVIDIA = (
    "libcudart.so.13",  # first: gets the symbols that name no library
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcupti.so.13",
    "libcurand.so.10",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvJitLink.so.13",
    "libnvrtc-builtins.so.13",
    "libnvrtc.so.13",
    "libnvshmem_host.so.3",
)
CUDA_NAME = re.compile(r"_*(cu(da|[bdfs])|cuFile|curand|nccl|nvJit|nvrtc|nvshmem)")
MESSAGE = re.compile(r"(Error|Status)(String|Name)$")
NO_DEVICE = 100


def tool(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def version_owners(library):
    """The symbol versions that a library needs, each with the soname it needs it from."""
    owners, soname = {}, None
    for line in tool("objdump", "-p", library):
        if found := re.match(r"\s+required from (\S+):", line):
            soname = found[1]
        elif soname and (found := re.match(r"\s+0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)", line)):
            owners[found[1]] = soname
    return owners


def wanted(libraries):
    """For each NVIDIA soname: version -> names; the version "" means none."""
    defined, undefined, owners = set(), set(), {}
    for library in libraries:
        for line in tool("nm", "-D", "--defined-only", library):
            defined.add(line.split()[-1].split("@")[0])
        for line in tool("nm", "-D", "--undefined-only", library):
            kind, symbol = line.split()[-2:]
            if kind == "U":  # a weak one may stay unbound
                undefined.add(symbol)
        for version, soname in version_owners(library).items():
            if soname in NVIDIA:
                owners[version] = soname
    stubs = {soname: {} for soname in NVIDIA}
    for version, soname in owners.items():
        stubs[soname][version] = set()
    for symbol in undefined:
        name, _, version = symbol.replace("@@", "@").partition("@")
        if version in owners:
            stubs[owners[version]][version].add(name)
        elif not version and name not in defined and CUDA_NAME.match(name):
            stubs[NVIDIA[0]].setdefault("", set()).add(name)
    return stubs


def build(path, versions):
    source = ['static const char text[] = "no CUDA on this machine";', "extern int stub_present; int stub_present;"]
    for name in sorted(set().union(*versions.values())):
        if MESSAGE.search(name):
            source.append(f"const char *{name}(void) {{ return text; }}")
        else:
            source.append(f"long {name}(void) {{ return {NO_DEVICE}; }}")
    script = [
        version + " { global: " + "".join(name + "; " for name in sorted(names)) + "};"
        for version, names in sorted(versions.items())
        if version
    ]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "stub.c").write_text("\n".join(source) + "\n")
        command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", str(scratch / "stub.c"), "-o", str(path)]
        command.append("-Wl,-soname," + path.name)
        if script:
            (scratch / "versions").write_text("\n".join(script) + "\n")
            command.append(f"-Wl,--version-script={scratch / 'versions'}")
        subprocess.run(command, check=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    directory = pathlib.Path(sys.argv[1])
    libraries = sorted(p for p in directory.glob("lib*.so*") if p.name not in NVIDIA)
    if not libraries:
        sys.exit(f"cuda_stubs: no libraries in {directory}")
    for soname, versions in wanted([str(p) for p in libraries]).items():
        build(directory / soname, versions)


if __name__ == "__main__":
    main()
