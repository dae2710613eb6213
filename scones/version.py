"""The version of the package, importable without anything heavy."""

__version__ = "0.1.0"
