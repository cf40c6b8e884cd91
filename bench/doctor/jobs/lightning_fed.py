"""Lightning's Trainer with a model that takes its time: nothing is lacking."""

import logging
import warnings

import job
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 64))

    def training_step(self, batch, n):
        job.tick()
        return self.net(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-3)


trainer = lightning.Trainer(
    accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, max_epochs=-1,
)  # fmt: skip
data = TensorDataset(torch.rand(200000, 64))
trainer.fit(Model(), DataLoader(data, batch_size=1024, num_workers=1, persistent_workers=True))
