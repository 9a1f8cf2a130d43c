"""Stands in for SGLang's kernel package, which has no build for the CPU.

SGLang imports names from it at start and asks it which operations exist. Only
the ones for the CPU may seem to exist: SGLang probes the others to choose its
types and must be told that they don't. With SGLANG_USE_CPU_ENGINE set it then
computes with plain torch and calls none of them.
"""

__version__ = "99.0.0"  # newer than any minimum that SGLang checks


def __getattr__(name):
    if not name.endswith("_cpu"):
        raise AttributeError(name)

    def absent(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} has no implementation here")

    return absent
