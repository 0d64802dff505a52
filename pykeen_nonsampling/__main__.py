"""Run the command line as a module: ``python -m pykeen_nonsampling …``."""

from .cli import main

if __name__ == "__main__":
    main()
