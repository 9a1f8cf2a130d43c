"""Stands in for triton, whose kernels are defined at import but never launched on CPU.

Importing SGLang decorates hundreds of kernels and names triton's types in their
signatures. Everything asked of this package, at any depth, is an object that can
be called, subscripted, iterated and used as a decorator, so those definitions
succeed; nothing here computes. The real package would do too, at 690 MB.
"""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "3.7.1"


class Anything:
    """Takes part in every expression that a kernel's definition makes of it."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]  # used as a decorator: the function stays itself
        return Anything()

    def __getattr__(self, name):
        return lookup(name)

    def __getitem__(self, key):
        return Anything()

    def __iter__(self):
        return iter(())  # else subscripting would make it an endless sequence

    def __or__(self, other):
        return Anything()

    __ror__ = __or__


def lookup(name):
    """What any attribute of triton is: a class when capitalised, else an object."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "active":  # triton.runtime.driver.active: says that there is no driver
        raise AttributeError(name)
    return type(name, (Anything,), {}) if name[0].isupper() else Anything()


class Submodule(types.ModuleType):
    def __getattr__(self, name):
        return lookup(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every triton.x.y importable."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("triton."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Submodule(spec.name)

    def exec_module(self, module):
        module.__path__ = []


sys.meta_path.insert(0, Finder())

__getattr__ = lookup


# Used as arithmetic while shapes are planned, so these two must be right.
def cdiv(a, b):
    return -(-a // b)


def next_power_of_2(n):
    return 1 << (n - 1).bit_length() if n > 1 else 1


class Config:
    """One tuning choice of a kernel; SGLang reads back what it put in."""

    def __init__(self, *args, **kwargs):
        self.kwargs = kwargs
