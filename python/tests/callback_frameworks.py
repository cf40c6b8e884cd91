"""Trains with the callbacks of stoker.callbacks: test_examples.py runs it.

python callback_frameworks.py lightning|transformers FOLDER
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import torch

import stoker


class Batches:
    def __iter__(self) -> Iterator[Any]:
        return stoker.watch([torch.ones(3, 2)] * 6)


def with_lightning(folder: str) -> list[tuple[int, float]]:
    import lightning
    from lightning.pytorch.loggers.logger import DummyLogger

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    seen = []

    class Logger(DummyLogger):
        def log_metrics(self, metrics: dict[str, float], step: int) -> None:  # type: ignore[override]
            if "stoker/waiting" in metrics:
                seen.append((step, metrics["stoker/waiting"]))

    callback = stoker.callbacks.Lightning()
    assert isinstance(callback, lightning.Callback)
    assert type(pickle.loads(pickle.dumps(callback))) is type(callback)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=Logger(), callbacks=[callback], log_every_n_steps=2,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(Module(), Batches())
    return seen


def with_transformers(folder: str) -> list[tuple[int, float]]:
    import transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x: Any) -> Any:
            return {"loss": self.layer(x).mean()}

    class Later(transformers.TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            assert ("loss" in logs) == ("stoker/waiting" in logs)

    arguments = transformers.TrainingArguments(
        output_dir=folder, max_steps=6, logging_steps=2, per_device_train_batch_size=2, report_to="none",
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    callbacks = [stoker.callbacks.HuggingFace(), Later()]
    trainer = transformers.Trainer(Model(), arguments, train_dataset=[{"x": torch.ones(2)}] * 12, callbacks=callbacks)
    trainer.train()
    return [(e["step"], e["stoker/waiting"]) for e in trainer.state.log_history if "stoker/waiting" in e]


reports = {"lightning": with_lightning, "transformers": with_transformers}[sys.argv[1]](sys.argv[2])
assert all(0 <= share <= 1 for _, share in reports), reports
print("reports at", [step for step, _ in reports])
