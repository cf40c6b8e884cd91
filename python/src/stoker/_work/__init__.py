"""Worker processes in which a user's Python runs, and the memory that they share with the loader's process.

For ``stoker.torch.DataLoader`` and for ``map=`` of ``stoker.Loader``; NumPy is all that it needs. ``_process`` is one
as its loader sees it, ``_inside`` what is done within one, ``_wire`` their messages, ``_memory`` what batches lie in,
``_pool`` what large ones do.
"""
