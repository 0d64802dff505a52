"""The sweep for CPUs, made of loops that Numba compiles."""
