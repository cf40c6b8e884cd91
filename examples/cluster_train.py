"""DistributedDataParallel with feeders and checkpoints, under any launcher: docs/how-to/cluster.md has the commands.

python examples/cluster_train.py DATA                                        # one process
python examples/cluster_train.py DATA --save-pipeline pipeline.json          # for the feeders
torchrun --nproc-per-node 8 examples/cluster_train.py DATA --feeders cpu1:7443,cpu2:7443 --checkpoint run.pt
With --checkpoint, a run continues where the last one ended, also on another number of ranks.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import stoker
import torch
import torch.distributed as dist
from _model import model
from stoker import transforms as T


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--checkpoint", type=Path, help="a file on a disk that all ranks share")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--stop-after", type=int, default=0, help="end after this number of steps")
    parser.add_argument("--audit", help="a file with the records of each rank, such as run.{rank}.log")
    parser.add_argument("--save-pipeline", type=Path, help="write the file for the feeders, and end")
    parser.add_argument("--feeders", help="the servers, such as dns:feeders:7443")
    for name in ("ca", "cert", "key", "token"):
        parser.add_argument(f"--{name}", help="of stoker.Feeders")
    parser.add_argument("--insecure", action="store_true", help="of stoker.Feeders")
    return parser.parse_args(words)


def loader(args: argparse.Namespace) -> stoker.Loader:
    feeders = None
    if args.feeders:
        tls = {name: getattr(args, name) for name in ("ca", "cert", "key", "token", "insecure")}
        feeders = stoker.Feeders(args.feeders, **tls)
    moves = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)]
    return stoker.Loader(
        args.data,
        batch_size=args.batch_size,
        shuffle=True,
        seed=0,
        output="torch",
        transforms={"image": moves},
        ranks=stoker.Ranks(uneven="drop", audit=args.audit),
        feeders=feeders,
    )


def train(args: argparse.Namespace) -> str:
    data = loader(args)  # it knows the rank under torchrun, Slurm, MPI and Ray
    if data.world_size > 1 and not dist.is_initialized():  # Ray has done it
        # MASTER_ADDR and MASTER_PORT are set by torchrun, or by the script of the job.
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, rank=data.rank, world_size=data.world_size)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", data.rank)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    plain = model(len(data.classes)).to(device)
    net = torch.nn.parallel.DistributedDataParallel(plain) if data.world_size > 1 else plain
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    steps, loss = 0, torch.zeros(())
    if args.checkpoint and args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location=device)
        plain.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        data.load_state_dict(state["data"])  # the next batch is the first one after the checkpoint

    def save() -> None:
        if args.checkpoint and data.rank == 0:  # the position is the same on all ranks
            state = {"net": plain.state_dict(), "optimizer": optimizer.state_dict(), "data": data.state_dict()}
            new = args.checkpoint.with_suffix(".new")
            torch.save(state, new)
            new.replace(args.checkpoint)

    while data.epoch < args.epochs:
        for images, labels in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            steps += 1
            if steps % args.every == 0:
                save()
            if steps == args.stop_after:
                break
        else:
            save()
            continue
        save()
        break
    fed = data.stats()["engine"].get("feeders", {})
    sums = sum(p.double().sum() for p in plain.parameters())
    data.close()
    return (
        f"rank {data.rank} of {data.world_size} ({data.info['rank_from']}): {steps} steps, weights {sums:.9f}, "
        f"{fed.get('batches', 0)} batches of feeders, {fed.get('different', 0)} different"
    )


if __name__ == "__main__":
    args = arguments()
    if args.save_pipeline:
        with loader(args) as one:
            one.save_pipeline(args.save_pipeline)
    else:
        print(train(args), flush=True)
        if dist.is_initialized():
            dist.destroy_process_group()
