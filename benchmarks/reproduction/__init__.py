"""The experiments of [li2021]_ on PyKEEN: what is run, what came out, and the report about it.

``plan`` lists the runs of each part as data, ``training`` does one of them, ``storage`` remembers those that are done,
``statistics`` makes tables and ``figures`` makes pictures of them, ``report`` puts all of it in order, and ``markdown`` and
``html`` write it. ``paper`` has the numbers of the paper.
"""
