"""Ray Train with feeders: a server on each node of the Ray cluster builds batches for the workers.

python examples/ray_train.py DATA [--workers 2] [--checkpoint run.pt] [the other arguments of cluster_train.py]
DATA and the checkpoint are on a disk that all nodes share, or DATA is a URL. If this process is killed, the servers end
with it. The same command then continues after the last checkpoint.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import cluster_train
import ray
import stoker.ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def worker(config: dict[str, Any]) -> None:
    args = cluster_train.arguments(config["words"])
    args.feeders = config["feeders"]  # "ray:feeders"
    args.insecure = True  # batches and labels cross the network unencrypted: for a network that you trust
    print(cluster_train.train(args), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", action="store_true", help="a GPU for each worker")
    parser.add_argument("--failures", type=int, default=3, help="how often the workers start again")
    mine, words = parser.parse_known_args()
    # Workers import this folder's modules.
    ray.init(runtime_env={"env_vars": {"PYTHONPATH": ":".join(p for p in sys.path if p)}})
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Path(folder, "pipeline.json")
        with cluster_train.loader(cluster_train.arguments(words)) as one:
            one.save_pipeline(pipeline)
        with stoker.ray.feeders(pipeline, insecure=True) as servers:
            TorchTrainer(
                worker,
                train_loop_config={"words": words, "feeders": servers},
                scaling_config=ScalingConfig(num_workers=mine.workers, use_gpu=mine.gpus),
                run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=mine.failures)),
            ).fit()


if __name__ == "__main__":
    main()
