"""Lightning with Stoker: the import of DataLoader is the only line that differs.

python examples/lightning_train.py FOLDER [--devices N] [--checkpoint FILE] [--stop-after STEPS]
"""

from __future__ import annotations

import argparse
from typing import Any

import lightning as pl
import torch
from _model import dataset, model
from stoker.torch import DataLoader  # instead of: from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--checkpoint")
parser.add_argument("--stop-after", type=int, default=0, metavar="STEPS")
args = parser.parse_args()


class Data(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        self.train = dataset(args.folder)

    def train_dataloader(self) -> Any:
        return DataLoader(self.train, batch_size=16, shuffle=True, num_workers=2)


class Classifier(pl.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = model(classes)
        self.seen: list[int] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        self.seen += labels.tolist()
        return torch.nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05)


class StopAfter(pl.Callback):
    """Save a checkpoint in the middle of the epoch, and end there."""

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx + 1 == args.stop_after:
            trainer.save_checkpoint(args.checkpoint)
            trainer.should_stop = True


if __name__ == "__main__":
    pl.seed_everything(0, verbose=False)
    net = Classifier(len(dataset(args.folder).classes))
    trainer = pl.Trainer(
        accelerator="cpu", devices=args.devices, strategy="ddp" if args.devices > 1 else "auto", max_epochs=1,
        min_epochs=0, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[StopAfter()] if args.stop_after else [],
    )  # fmt: skip
    resumed = args.checkpoint and not args.stop_after
    trainer.fit(net, Data(), ckpt_path=args.checkpoint if resumed else None, weights_only=False)
    kind = type(trainer.train_dataloader)
    print(f"rank {trainer.global_rank}: {len(net.seen)} labels, sum {sum(net.seen)}, {kind.__module__}.{kind.__name__}")
