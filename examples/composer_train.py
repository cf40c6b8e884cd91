"""Composer with Stoker: the import of DataLoader is the only line that differs.

python examples/composer_train.py FOLDER
"""

from __future__ import annotations

import sys

import torch
from _model import dataset, model
from composer import Trainer
from composer.core import DataSpec
from composer.models import ComposerClassifier
from stoker.torch import DataLoader  # instead of: from torch.utils.data import DataLoader

data = dataset(sys.argv[1])
net = ComposerClassifier(model(len(data.classes)), num_classes=len(data.classes))
loader = DataLoader(data, batch_size=16, shuffle=True)
spec = DataSpec(loader, get_num_samples_in_batch=lambda batch: len(batch[1]))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
trainer = Trainer(model=net, train_dataloader=spec, max_duration="1ep", optimizers=optimizer, device="cpu")
trainer.fit()
print(f"{int(trainer.state.timestamp.sample)} samples, {type(loader).__module__}")
