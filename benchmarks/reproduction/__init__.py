"""The experiments of [li2021]_ on PyKEEN: what is run, what came out, and the report about it.

``plan`` lists the runs of each part as data, ``training`` does one of them, ``storage`` remembers those that are done,
``statistics`` makes tables and ``figures`` makes pictures of them, ``sections`` and ``content`` say what the report shows,
``pages`` lays that out with the templates, and ``report`` writes all files. ``paper`` has the numbers of the paper.
"""
