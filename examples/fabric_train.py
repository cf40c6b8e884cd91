"""Lightning Fabric with Stoker: the import of DataLoader is the only line that differs.

python examples/fabric_train.py FOLDER
"""

from __future__ import annotations

import sys

import torch
from _model import dataset, model
from lightning.fabric import Fabric
from stoker.torch import DataLoader  # instead of: from torch.utils.data import DataLoader

fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
data = dataset(sys.argv[1])
net = model(len(data.classes))
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
loader = fabric.setup_dataloaders(DataLoader(data, batch_size=16, shuffle=True))
seen = 0
for images, labels in loader:
    optimizer.zero_grad()
    fabric.backward(torch.nn.functional.cross_entropy(net(images), labels))
    optimizer.step()
    seen += len(labels)
print(f"{seen} records, {type(loader._dataloader).__module__}")
