"""Processes that train one model together, on :mod:`torch.distributed`."""
