"""Accelerate with Stoker: the import of DataLoader is the only line that differs.

python examples/accelerate_train.py FOLDER [--state DIR] [--stop-after STEPS]
With --state the second run continues where the first one stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from _model import dataset, model
from accelerate import Accelerator, DataLoaderConfiguration
from stoker.torch import DataLoader  # instead of: from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--state", type=Path)
parser.add_argument("--stop-after", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(0)
accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=4,
    dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=args.state is not None),
)
data = dataset(args.folder)
net = model(len(data.classes))
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=1)
net, optimizer, loader = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.05), loader)
if args.state and args.state.exists():
    accelerator.load_state(str(args.state))

updates, seen = 0, []
for images, labels in loader:
    with accelerator.accumulate(net):
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        updates += accelerator.sync_gradients
        optimizer.zero_grad()
    # Trimmed to the records that there are, at the end of the epoch on several ranks.
    seen += accelerator.gather_for_metrics(labels).tolist()
    if args.stop_after and len(seen) >= args.stop_after * 16 * accelerator.num_processes:
        accelerator.save_state(str(args.state))
        break
if accelerator.is_main_process:
    kind = type(loader.base_dataloader)
    print(f"{len(seen)} labels, {updates} updates, sum {sum(seen)}, {kind.__module__}.{kind.__name__}")
