"""Hugging Face Trainer with Stoker: get_train_dataloader is the method that chooses the loader.

python examples/hf_trainer.py FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
import transformers
from _model import dataset, model
from stoker.torch import DataLoader


class Classifier(torch.nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = model(classes)

    def forward(self, pixel_values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Trainer(transformers.Trainer):
    def get_train_dataloader(self) -> Any:
        loader: Any = DataLoader(self.train_dataset, batch_size=16, shuffle=True, drop_last=True)
        return self.accelerator.prepare(loader)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        images, labels = inputs  # torchvision's datasets give pairs
        out = model(images, labels)
        return (out["loss"], out) if return_outputs else out["loss"]

    def floating_point_ops(self, inputs: Any) -> int:
        return 0


data = dataset(sys.argv[1])
with tempfile.TemporaryDirectory() as out:
    arguments = transformers.TrainingArguments(
        out,
        num_train_epochs=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(Classifier(len(data.classes)), arguments, train_dataset=data)
    result = trainer.train()
print(f"{result.global_step} steps, loss {result.training_loss:.3f}")
