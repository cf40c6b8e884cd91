"""Lightning's Trainer with a loader that computes."""

import logging
import time
import warnings

import job
import lightning
import torch
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Costly(Dataset):
    def __len__(self):
        return 1 << 16

    def __getitem__(self, i):
        if not job.without("cpu"):
            job.spin(0.005)
        return torch.rand(64)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 64)

    def training_step(self, x, n):
        time.sleep(0.02)
        job.tick()
        return self.net(x).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)


trainer = lightning.Trainer(
    accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
)
trainer.fit(Model(), DataLoader(Costly(), batch_size=16, num_workers=1))
