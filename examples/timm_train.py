"""timm's create_loader with Stoker, by one changed line; `stoker run` needs none.

python examples/timm_train.py FOLDER
"""

from __future__ import annotations

import sys

import stoker.torch
import timm.data
import timm.data.loader
import torch
from _model import model

timm.data.loader.torch.utils.data.DataLoader = stoker.torch.DataLoader  # the changed line

data = timm.data.create_dataset("", root=sys.argv[1])
loader = timm.data.create_loader(
    data, input_size=(3, 32, 32), batch_size=16, is_training=True, use_prefetcher=False, num_workers=1,
    auto_augment=None, color_jitter=None,
)  # fmt: skip
net = model(4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
seen = 0
for images, labels in loader:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(images), labels).backward()
    optimizer.step()
    seen += len(labels)
print(f"{seen} records, {type(loader).__module__}.{type(loader).__name__}")
