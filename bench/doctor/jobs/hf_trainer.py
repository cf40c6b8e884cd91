"""The Trainer of transformers with a collator that pads in Python."""

import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import job
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 64)

    def forward(self, x):
        time.sleep(0.02)
        return {"loss": self.net(x).pow(2).mean()}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 16

    def __getitem__(self, i):
        return [float(i % 7)] * (i % 64)


def pad_batch(rows):
    if not job.without("handoff"):
        job.spin(0.05)
    return {"x": torch.tensor([r + [0.0] * (64 - len(r)) for r in rows])}


class Count(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        job.tick()


arguments = TrainingArguments(
    str(job.folder() / "hf"),
    per_device_train_batch_size=16,
    dataloader_num_workers=1,
    report_to=[],
    use_cpu=True,
    save_strategy="no",
    disable_tqdm=True,
    logging_strategy="no",
    remove_unused_columns=False,
)
Trainer(Model(), arguments, train_dataset=Rows(), data_collator=pad_batch, callbacks=[Count()]).train()
