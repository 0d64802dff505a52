"""Tests leave nothing behind in the user's home."""

import os
import tempfile

# read by PyKEEN when it is imported, here and in subprocesses
os.environ["PYKEEN_HOME"] = os.environ["PYSTOW_HOME"] = tempfile.mkdtemp(prefix="pykeen-nonsampling-")
