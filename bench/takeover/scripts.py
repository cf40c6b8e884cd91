"""The scripts, and how each is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from . import HOOK, Place, Script


def _timm(place: Place, *more: str) -> list[str]:
    return [
        "--data-dir", str(place.data), "--model", "tiny", "--num-classes", "10", "--device", "cpu",
        "--epochs", str(place.epochs), "--warmup-epochs", "0", "--cooldown-epochs", "0", "--sched", "step",
        "--batch-size", str(place.batch), "--workers", str(place.workers), "--lr", "0.01", "--log-interval", "10",
        "--output", str(place.out), *more,
    ]  # fmt: skip


def _timm_plain(place: Place) -> list[str]:
    """As its documentation trains: random interpolation, colours, no AutoAugment."""
    return _timm(place)


def _timm_bilinear(place: Place) -> list[str]:
    return _timm(place, "--train-interpolation", "bilinear")


def _imagenet(place: Place) -> list[str]:
    return [
        str(place.data), "--arch", "tiny", "--epochs", str(place.epochs), "--batch-size", str(place.batch),
        "--workers", str(place.workers), "--lr", "0.01", "--seed", "1", "--print-freq", "5",
    ]  # fmt: skip


def _classification(place: Place) -> list[str]:
    return [
        "--data-path", str(place.data), "--model", "tiny", "--device", "cpu", "--epochs", str(place.epochs),
        "--batch-size", str(place.batch), "--workers", str(place.workers), "--lr", "0.01", "--print-freq", "10",
        "--output-dir", str(place.out),
    ]  # fmt: skip


def _segmentation(place: Place) -> list[str]:
    return [
        "--data-path", str(place.data), "--dataset", "voc", "--model", "tiny_dense", "--device", "cpu",
        "--epochs", str(place.epochs), "--batch-size", "8", "--workers", str(place.workers), "--print-freq", "50",
        "--output-dir", str(place.out),
    ]  # fmt: skip


_METRIC = '''"""The share of predictions that are right, for `evaluate.load("accuracy")` without a network."""
import datasets
import evaluate


class Accuracy(evaluate.Metric):
    def _info(self):
        numbers = {"predictions": datasets.Value("int32"), "references": datasets.Value("int32")}
        return evaluate.MetricInfo(description="", citation="", features=datasets.Features(numbers))

    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
'''

_WEIGHTS = """
import json, sys, torch
from transformers import ViTConfig, ViTForImageClassification
torch.manual_seed(1)
ViTForImageClassification(ViTConfig(**json.loads(sys.argv[1]))).save_pretrained(sys.argv[2])
"""


def _hf_prepare(place: Place) -> None:
    """A ViT of a few thousand numbers, its image processor and the metric, in the form of the hub."""
    (place.out / "accuracy").mkdir()
    (place.out / "accuracy/accuracy.py").write_text(_METRIC)
    model = place.out / "model"
    model.mkdir()
    vit = {
        "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 1, "intermediate_size": 16, "image_size": 224, "patch_size": 56, "num_channels": 3,
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(vit))
    processor = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 224, "width": 224},
        "do_normalize": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "do_rescale": True,
    }  # fmt: skip
    (model / "preprocessor_config.json").write_text(json.dumps(processor))
    # Weights that are drawn at random, so that there are some to load.
    command = [sys.executable, "-c", _WEIGHTS, json.dumps(vit), str(model)]
    variables = {**os.environ, "PYTHONPATH": str(HOOK), "STOKER_BENCH_LOG": os.devnull}
    subprocess.run(command, check=True, env=variables, capture_output=True)
    (model / "preprocessor_config.json").write_text(json.dumps(processor))


def _hf(place: Place) -> list[str]:
    return [
        "--train_dir", str(place.data / "train"), "--validation_dir", str(place.data / "val"),
        "--model_name_or_path", str(place.out / "model"), "--ignore_mismatched_sizes", "True",
        "--output_dir", str(place.out / "trained"), "--do_train", "--remove_unused_columns", "False",
        "--label_column_name", "label", "--num_train_epochs", str(place.epochs), "--logging_steps", "10",
        "--per_device_train_batch_size", str(place.batch), "--dataloader_num_workers", str(place.workers),
        "--use_cpu", "True", "--save_strategy", "no", "--report_to", "none", "--seed", "1",
    ]  # fmt: skip


def _mnist_prepare(place: Place) -> None:
    """The scripts expect MNIST next to the examples. Lightning's own module for it expects it in the working
    directory."""
    here = (place.out / "Datasets", place.out / "data")
    for folder in (place.checkout / "Datasets", place.checkout / "examples/Datasets", *here):
        folder.unlink(missing_ok=True)
        folder.symlink_to(place.data, target_is_directory=True)


def _lightning(place: Place) -> list[str]:
    return [
        "--trainer.max_epochs", str(place.epochs), "--trainer.accelerator", "cpu", "--trainer.logger", "false",
        "--data.batch_size", str(place.batch), "--trainer.default_root_dir", str(place.out),
    ]  # fmt: skip


def _fabric(place: Place) -> list[str]:
    return ["--epochs", str(place.epochs), "--batch-size", str(place.batch)]


_TIMM = ("huggingface/pytorch-image-models", "aa4b5850c1543fa488abf260f18390eda46cf85d")
_VISION = ("pytorch/vision", "tag of torchvision")
_LIGHTNING = ("Lightning-AI/pytorch-lightning", "7f0c3436cd3f6ad3753125672024fc415cbcb414")

SCRIPTS = {
    "imagenet": Script(
        "PyTorch's ImageNet example", "pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8",
        "imagenet/main.py", ("imagenet",), _imagenet,
        loss=r"Loss [0-9.e+-]+ \(([0-9.e+-]+)\)",
    ),
    "classification": Script(
        "torchvision's reference for classification", *_VISION, "references/classification/train.py",
        ("references/classification",), _classification, loss=r"loss: [0-9.]+ \(([0-9.]+)\)",
    ),
    "timm": Script(
        "timm's train.py, bilinear", *_TIMM, "train.py", ("train.py",), _timm_bilinear, needs=("timm", "yaml"),
        loss=r"Loss: [0-9.e+-]+ \(([0-9.e+-]+)\)",
    ),
    "timm-random": Script(
        "timm's train.py, its defaults", *_TIMM, "train.py", ("train.py",), _timm_plain, needs=("timm", "yaml"),
        recognised=False, loss=r"Loss: [0-9.e+-]+ \(([0-9.e+-]+)\)",
    ),
    "segmentation": Script(
        "torchvision's reference for segmentation", *_VISION, "references/segmentation/train.py",
        ("references/segmentation",), _segmentation, data="voc", recognised=False, loss=r"loss: [0-9.]+ \(([0-9.]+)\)",
    ),
    "hf": Script(
        "transformers' example for image classification", "huggingface/transformers", "tag of transformers",
        "examples/pytorch/image-classification/run_image_classification.py", ("examples/pytorch/image-classification",),
        _hf, needs=("transformers", "datasets", "evaluate"), prepare=_hf_prepare,
        loss=r"'train_loss': '?([0-9.]+)",
    ),
    "lightning": Script(
        "Lightning's MNIST classifier", *_LIGHTNING, "examples/pytorch/basics/backbone_image_classifier.py",
        ("examples/pytorch/basics",), _lightning, data="mnist", needs=("lightning", "jsonargparse"),
        prepare=_mnist_prepare, limited=False, loss=r"train_loss[a-z_]*=([0-9.]+)",
    ),
    "fabric": Script(
        "Fabric's MNIST classifier", *_LIGHTNING, "examples/fabric/image_classifier/train_fabric.py",
        ("examples/fabric/image_classifier",), _fabric, data="mnist-small", needs=("lightning", "torchmetrics"),
        prepare=_mnist_prepare, limited=False, loss=r"Average loss: ([0-9.]+)",
    ),
}  # fmt: skip
