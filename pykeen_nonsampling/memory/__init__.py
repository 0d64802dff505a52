"""How much memory is free, and how much a run needs, estimated before any of it is used."""
