"""Lightning with a data module. One worker parses its examples from lines of JSON and computes features."""

import json
import logging
import math
import time
import warnings

import job
import lightning
import torch
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

LINES = [json.dumps({"id": i, "values": [math.sin(i * k) for k in range(600)], "label": i % 4}) for i in range(400)]


class Signals(Dataset):
    def __len__(self):
        return 40000

    def __getitem__(self, i):
        if job.without("cpu"):
            return torch.zeros(32), 0
        row = json.loads(LINES[i % len(LINES)])
        values = row["values"]
        features = [sum(v * math.cos(k * n) for n, v in enumerate(values)) for k in range(32)]
        return torch.tensor(features), row["label"]


class Data(lightning.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Signals(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(32, 4)

    def training_step(self, batch, number):
        features, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(features), labels)
        time.sleep(0.02)
        return loss

    def on_train_batch_end(self, *_):
        job.tick()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def main():
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=-1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Classifier(), datamodule=Data())


if __name__ == "__main__":
    main()
