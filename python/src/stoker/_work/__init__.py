"""Worker processes in which a user's Python runs, and the memory that they share with the loader's process.

For ``stoker.torch.DataLoader`` and for ``map=`` of ``stoker.Loader``. It needs only NumPy. ``_process`` is a worker
from the loader's side, and ``_inside`` the code within a worker. ``_wire`` has their messages, ``_memory`` the memory
of batches, and ``_pool`` the memory of large ones.
"""
