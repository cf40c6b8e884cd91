"""JAX with Stoker: batches sharded over a mesh of devices, no worker process and no fork.

python examples/jax_mesh.py FOLDER [STEPS]
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")  # two devices on any machine

import jax
import jax.numpy as jnp
import numpy as np
import stoker
import stoker.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from stoker import transforms as T

# Both devices share the cores of one machine. Concurrent steps could wait for each other's threads for ever.
jax.config.update("jax_cpu_enable_async_dispatch", False)

folder, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
mesh = Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
loader = stoker.Loader(
    folder, batch_size=16, shuffle=True, drop_last=True, ranks=stoker.jax.ranks(sharding),
    transforms={"image": [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]},
)  # fmt: skip


def loss(w: jax.Array, images: jax.Array, labels: jax.Array) -> jax.Array:
    logits = images.reshape(len(images), -1).astype(jnp.float32) / 255 @ w
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])


step = jax.jit(jax.value_and_grad(loss))
w = jax.device_put(jnp.zeros((32 * 32 * 3, 16)), NamedSharding(mesh, PartitionSpec()))
done, seen = 0, 0
while done < steps:
    for batch in stoker.jax.batches(loader, sharding):
        value, grad = step(w, batch["image"], batch["label"])
        w = w - 0.01 * grad
        seen += len(batch["label"])
        done += 1
        if done == steps:
            break
shards = [np.asarray(s.data) for s in w.addressable_shards]
assert all((s == shards[0]).all() for s in shards), "replicas differ"
print(f"{done} steps, {seen} records, {len(shards)} equal replicas, loss {float(value):.3f}")
