"""Everything that measures or reproduces, run from a checkout: ``python -m benchmarks NAME``."""
