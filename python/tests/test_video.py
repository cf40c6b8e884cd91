"""Video, compared with PyAV's decoding."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import stoker
from stoker import _binary
from stoker import transforms as T
from support import cli

av = pytest.importorskip("av", reason="PyAV writes the videos and decodes them")

Make = Callable[..., stoker.Loader]


def pictures(n: int, width: int, height: int, seed: int = 0) -> list[np.ndarray]:
    """Return frames in which smooth colours and a sharp box move."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    phase = rng.uniform(0, 6, 3)
    out = []
    for i in range(n):
        rgb = np.stack([127 + 120 * np.sin(x / 17 + phase[c] + i / 5) * np.cos(y / 13 - i / 7) for c in range(3)], -1)
        left = (7 * i) % (width - 20)
        rgb[8:24, left : left + 20] = rng.integers(0, 255, 3)
        out.append(rgb.astype(np.uint8))
    return out


def write(
    path: Path, n: int = 40, size: tuple[int, int] = (96, 64), codec: str = "libx264", seed: int = 0, fps: int = 25,
    pixels: str = "yuv420p", container: dict[str, str] | None = None, **options: str,
) -> None:  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(path, "w", options=container or {}) as file:
        stream = file.add_stream(codec, rate=fps, options={k: str(v) for k, v in options.items()})
        stream.width, stream.height = size
        stream.pix_fmt = pixels
        for rgb in pictures(n, *size, seed):
            file.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        file.mux(stream.encode())
    if codec == "libsvtav1" and os.geteuid() == 0:  # which has made this process a real-time one
        for task in Path("/proc/self/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_OTHER, os.sched_param(0))


def frames(path: Path) -> np.ndarray:
    with av.open(path) as file:
        return np.stack([f.to_ndarray(format="rgb24") for f in file.decode(video=0)])


def has(codec: str) -> bool:
    return codec in av.codecs_available


CASES = [
    ("x.mp4", "libx264", {"g": "12", "bf": "3"}, {}),
    ("x.mp4", "libx264", {"g": "250", "bf": "2"}, {"movflags": "faststart"}),
    ("open.mp4", "libx264", {"g": "10", "bf": "3", "x264-params": "open-gop=1"}, {}),
    ("x.mov", "libx264", {"g": "9"}, {}),
    ("fragments.mp4", "libx264", {"g": "8"}, {"movflags": "frag_keyframe+empty_moov"}),
    ("x.mkv", "libx264", {"g": "12"}, {}),
    ("x.mp4", "libx265", {"g": "12", "x265-params": "log-level=none"}, {}),
    ("x.webm", "libvpx-vp9", {"g": "12", "cpu-used": "8", "deadline": "realtime"}, {}),
    ("x.webm", "libvpx", {"g": "12", "cpu-used": "8", "deadline": "realtime"}, {}),
    ("x.mp4", "libsvtav1", {"g": "12", "preset": "12"}, {}),
    ("x.mp4", "mpeg4", {"g": "12", "bf": "2"}, {}),
    # Through FFmpeg's demuxers.
    ("x.avi", "mpeg4", {"g": "12"}, {}),
    ("x.avi", "mpeg4", {"g": "12", "bf": "2"}, {}),
    ("x.avi", "msmpeg4v2", {"g": "12"}, {}),
    ("x.avi", "libx264", {"g": "12", "bf": "3"}, {}),
    ("x.ts", "libx264", {"g": "12", "bf": "3"}, {}),
    ("x.ts", "mpeg2video", {"g": "12", "bf": "2"}, {}),
    ("x.m2ts", "libx264", {"g": "12"}, {}),
    ("x.mpg", "mpeg2video", {"g": "12", "bf": "2"}, {}),
    ("x.mpg", "mpeg1video", {"g": "12"}, {}),
    ("x.vob", "mpeg2video", {"g": "12"}, {}),
    ("x.flv", "libx264", {"g": "12", "bf": "2"}, {}),
    ("x.flv", "flv", {"g": "12"}, {}),
    ("x.wmv", "wmv2", {"g": "12"}, {}),
    ("x.asf", "wmv1", {"g": "12"}, {}),
    ("x.3gp", "mpeg4", {"g": "12"}, {}),
    ("x.mp4", "mpeg2video", {"g": "12", "bf": "2"}, {}),
    ("x.mkv", "ffv1", {}, {}),
    ("x.m2v", "mpeg2video", {"g": "12"}, {}),
]


@pytest.mark.parametrize(("name", "codec", "options", "container"), CASES)
def test_decodes_as_pyav(
    make: Make, tmp_path: Path, name: str, codec: str, options: dict[str, str], container: dict[str, str]
) -> None:
    if not has(codec):
        pytest.skip(f"PyAV has no {codec}")
    path = tmp_path / name
    write(path, codec=codec, container=container, **options)
    want = frames(path)
    loader = make(f"{path}?frames=3&stride=4&step=1", batch_size=9, shuffle=True, drop_last=False)
    seen = set()
    for batch in loader:
        assert batch.frames.dtype == np.uint8
        for row, i in enumerate(batch.index.tolist()):
            seen.add(i)
            assert np.array_equal(batch.frames[row], want[[i, i + 4, i + 8]]), i
    assert seen == set(range(40 - 8))


@pytest.mark.parametrize(
    ("name", "codec"), [("x.ts", "libx264"), ("x.mpg", "mpeg2video"), ("x.avi", "mpeg4"), ("x.wmv", "wmv2")]
)
def test_other_containers_are_packed(make: Make, tmp_path: Path, binary: str, name: str, codec: str) -> None:
    """Clips, frames as images and times of a file that FFmpeg's demuxers read, also out of a pack."""
    path = tmp_path / "in" / "a" / name
    write(path, codec=codec, g="12", bf="2" if codec != "wmv2" else "0")
    want = frames(path)
    with av.open(path) as file:
        times = np.array([f.time for f in file.decode(video=0)])
    cli(binary, "pack", f"{tmp_path / 'in'}?frames=8", tmp_path / "packed", env=_binary.environment())
    with make(tmp_path / "packed", batch_size=5) as loader:
        for batch in loader:
            for k, i in enumerate(batch.index.tolist()):
                np.testing.assert_array_equal(batch.frames[k], want[8 * i : 8 * i + 8])
    with make(f"{tmp_path / 'in'}?as=images", batch_size=40, shuffle=True) as loader:
        batch = next(iter(loader))
        for k, i in enumerate(batch.index.tolist()):
            np.testing.assert_array_equal(batch.image[k], want[i])
    with make(f"{tmp_path / 'in'}?frames=1&fps=10", batch_size=16) as loader:
        assert loader.num_records == round(len(want) / 2.5)
        for batch in loader:
            for k, i in enumerate(batch.index.tolist()):
                on_show = int(np.searchsorted(times - times.min(), i / 10 + 0.002, side="right")) - 1
                np.testing.assert_array_equal(batch.frames[k, 0], want[on_show], str(i))


def test_a_bad_file_of_another_container(make: Make, tmp_path: Path) -> None:
    """A file that FFmpeg refuses is a bad record, with the reason, and the others are read."""
    write(tmp_path / "a.ts", codec="libx264")
    for name in ("b.flv", "c.wmv"):
        (tmp_path / name).write_bytes(bytes(5000))
    loader = make(f"{tmp_path}?frames=40", batch_size=1, on_error="skip")
    assert loader.num_records == 3
    assert "b.flv" in str(loader.info["bad"])
    np.testing.assert_array_equal(next(iter(loader)).frames[0], frames(tmp_path / "a.ts"))


def test_mjpeg_is_as_pillow(make: Make, tmp_path: Path) -> None:
    write(tmp_path / "x.avi", codec="mjpeg", pixels="yuvj420p")
    with av.open(tmp_path / "x.avi") as file:
        packets = [bytes(p) for p in file.demux(video=0) if p.size]
    want = [np.asarray(Image.open(io.BytesIO(p)).convert("RGB")) for p in packets]
    for batch in make(f"{tmp_path / 'x.avi'}?frames=2&step=2", batch_size=5, shuffle=True):
        for row, i in enumerate(batch.index.tolist()):
            assert np.array_equal(batch.frames[row], want[2 * i : 2 * i + 2])


@pytest.mark.parametrize(("pixels", "levels"), [("yuv422p", 3), ("yuv444p", 3), ("yuvj420p", 0), ("gray", 1)])
def test_formats_of_pixels(make: Make, tmp_path: Path, pixels: str, levels: int) -> None:
    write(tmp_path / "x.mp4", n=6, pixels=pixels)
    got = next(iter(make(f"{tmp_path / 'x.mp4'}?frames=6", batch_size=1))).frames[0]
    assert np.abs(got.astype(int) - frames(tmp_path / "x.mp4")).max() <= levels


def test_folders_are_classes_and_all_frames_move_alike(make: Make, tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path / "ab"[i % 2] / f"{i}.mp4", n=20, size=(96 + 16 * i, 64), seed=i, g="6")
    ops = [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ColorJitter(brightness=0.4)]
    loader = make(
        f"{tmp_path}?frames=4", batch_size=6, shuffle=True, seed=5, transforms={"frames": ops}, drop_last=False
    )
    assert loader.classes == ["a", "b"]
    for clips, labels in loader:
        assert clips.shape[1:] == (4, 32, 32, 3)
        assert set(labels.tolist()) <= {0, 1}
    # One frame four times: all four have the same crop, flip and colours.
    write(tmp_path / "still" / "s" / "x.mp4", n=1)
    clip = next(iter(make(f"{tmp_path / 'still'}?frames=4", batch_size=1, transforms={"frames": ops}))).frames[0]
    assert all(np.array_equal(clip[0], clip[j]) for j in range(4))


def test_operations_are_those_of_images(make: Make, tmp_path: Path) -> None:
    write(tmp_path / "x.mp4", n=8)
    want = frames(tmp_path / "x.mp4")
    for i in range(8):
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.fromarray(want[i]).save(tmp_path / "images" / f"{i}.png")
    for ops in (
        [T.Resize(48), T.CenterCrop(40)],
        [
            T.Pad(4),
            T.CenterCrop(64),
            T.ToDtype("float32", scale=True),
            T.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]),
        ],
        [T.Grayscale(), T.Resize((32, 40))],
    ):
        for layout in ("NHWC", "NCHW"):
            url = f"{tmp_path / 'x.mp4'}?frames=8"
            got = next(iter(make(url, batch_size=1, transforms={"frames": stoker.Field("frames", ops, layout=layout)})))
            images = next(
                iter(
                    make(
                        tmp_path / "images",
                        batch_size=8,
                        transforms={"image": stoker.Field("image", ops, layout=layout)},
                    )
                )
            ).image
            assert np.array_equal(got.frames[0], images)


def test_times(make: Make, tmp_path: Path) -> None:
    """With fps frames are those on show at that time."""
    write(tmp_path / "x.mp4", n=60, fps=30)
    write(tmp_path / "x.mkv", n=60, fps=30)  # whose times are whole milliseconds
    for name in ("x.mp4", "x.mkv"):
        want = frames(tmp_path / name)
        loader = make(f"{tmp_path / name}?frames=4&fps=10&step=2", batch_size=1)
        assert len(loader) == (20 - 4) // 2 + 1
        for batch in loader:
            start = 6 * int(batch.index[0])
            assert np.array_equal(batch.frames[0], want[start : start + 12 : 3])


@pytest.mark.parametrize(("name", "codec", "pixels"), [("x.mp4", "libx264", "yuv420p"), ("x.avi", "mjpeg", "yuvj420p")])
def test_frames_are_packed_as_images(
    make: Make, tmp_path: Path, binary: str, name: str, codec: str, pixels: str
) -> None:
    write(tmp_path / "v" / "a" / name, codec=codec, pixels=pixels)
    write(tmp_path / "v" / "b" / name, codec=codec, pixels=pixels, seed=1, n=25)
    url = f"{tmp_path / 'v'}?as=images&fps=5"
    clips = make(f"{tmp_path / 'v'}?frames=1&fps=5", batch_size=13)
    want = next(iter(clips))
    assert len(want) == 8 + 5
    as_it_is = next(iter(make(url, batch_size=13, shuffle=True)))
    for row, i in enumerate(as_it_is.index.tolist()):
        assert np.array_equal(as_it_is.image[row], want.frames[i, 0])
    env = _binary.environment()
    cli(binary, "pack", url, tmp_path / "out", env=env)
    packed = next(iter(make(tmp_path / "out", batch_size=13)))
    assert np.array_equal(packed.image, want.frames[:, 0])
    assert packed.label.tolist() == [0] * 8 + [1] * 5
    if codec == "libx264":
        cli(binary, "pack", f"{url}&quality=90", tmp_path / "jpeg", env=env)
        near = next(iter(make(tmp_path / "jpeg", batch_size=13))).image
        assert np.abs(near.astype(int) - packed.image).mean() < 6
        shown = cli(binary, "inspect", tmp_path / "jpeg")
        assert "dct" in shown


@pytest.mark.parametrize(("name", "codec", "pixels"), [("x.mp4", "libx264", "yuv420p"), ("x.avi", "mjpeg", "yuvj420p")])
def test_clips_are_packed(make: Make, tmp_path: Path, binary: str, name: str, codec: str, pixels: str) -> None:
    """Clips of a pack are those of the videos, also as pixels and made smaller; longer ones are cut at run time."""
    write(tmp_path / "v" / "a" / name, codec=codec, pixels=pixels)
    write(tmp_path / "v" / "b" / name, codec=codec, pixels=pixels, seed=1, n=25)
    url = f"{tmp_path / 'v'}?frames=4&stride=2"
    want = next(iter(make(url, batch_size=8)))
    assert len(want) == 8

    env = _binary.environment()

    def pack(out: str, *flags: str, src: str = url) -> str:
        command = [binary, "pack", src, str(tmp_path / out), *flags]
        subprocess.run(command, check=True, capture_output=True, env=env)
        cli(binary, "verify", tmp_path / out, "--decode", env=env)
        return str(tmp_path / out)

    for out, flags in {"auto": [], "kept": ["--images", "keep"], "raw": ["--images", "raw"]}.items():
        got = next(iter(make(pack(out, *flags), batch_size=8, shuffle=False)))
        assert np.array_equal(got.frames, want.frames), out
        assert got.label.tolist() == want.label.tolist()
    assert stoker.pack(url, tmp_path / "auto").unchanged
    moves = {"frames": [T.RandomCrop(32), T.RandomHorizontalFlip()]}
    for epoch, (a, b) in enumerate(
        zip(make(url, 8, seed=4, transforms=moves), make(tmp_path / "raw", 8, seed=4, transforms=moves), strict=True)
    ):
        assert np.array_equal(a.frames, b.frames), epoch
    near = next(iter(make(pack("jpeg", "--reencode-quality", "92"), batch_size=8))).frames
    assert np.abs(near.astype(int) - want.frames).mean() < 8
    small = next(iter(make(pack("small", "--transforms", "Resize((24, 32))"), batch_size=8))).frames
    resized = next(iter(make(url, 8, transforms={"frames": [T.Resize((24, 32))]}))).frames
    assert small.shape == (8, 4, 24, 32, 3) and np.array_equal(small, resized)
    # Variants are crops of whole clips.
    stoker.pack(url, tmp_path / "varied", transforms=moves, augment=2, seed=4)
    varied = make(tmp_path / "varied", 8)
    epochs = [next(iter(varied)).frames.copy() for _ in range(2)]
    assert epochs[0].shape == (8, 4, 32, 32, 3) and (epochs[0] != epochs[1]).any()
    # Long clips. Each epoch takes some frames from another offset.
    whole = f"{tmp_path / 'v' / 'a'}?frames=40"
    pack("whole", src=whole)
    frames = next(iter(make(whole, 1))).frames[0].copy()
    seen = set()
    ours, theirs = (
        make(src, 1, seed=3, transforms={"frames": [stoker.video.RandomClip(3, stride=4)]})
        for src in (whole, tmp_path / "whole")
    )
    for _ in range(12):
        a, b = next(iter(ours)).frames[0].copy(), next(iter(theirs)).frames[0].copy()
        assert a.shape == (3, *frames.shape[1:]) and np.array_equal(a, b)
        (start,) = (i for i in range(32) if np.array_equal(frames[i], a[0]) and np.array_equal(frames[i + 4], a[1]))
        assert np.array_equal(a, frames[start : start + 12 : 4])
        seen.add(start)
    assert len(seen) > 5
    short = next(iter(make(tmp_path / "whole", 1, transforms={"frames": [stoker.video.CenterClip(50)]}))).frames[0]
    assert np.array_equal(short[:40], frames) and (short[40:] == frames[-1]).all()
    with pytest.raises(stoker.StokerError, match="comes first"):
        make(whole, 1, transforms={"frames": [T.RandomHorizontalFlip(), stoker.video.RandomClip(3)]})


def test_clips_that_begin_at_random(make: Make, tmp_path: Path) -> None:
    """The first frame of a clip depends on seed, epoch and number alone, and every frame is used at some time."""
    write(tmp_path / "x.mp4", n=40, g="10", bf="2")
    want = frames(tmp_path / "x.mp4")

    def starts(epochs: int, **options: Any) -> list[dict[int, int]]:
        loader = make(
            f"{tmp_path / 'x.mp4'}?frames=3&stride=2&step=10&start=random", 2, shuffle=True, drop_last=False, **options
        )
        out = []
        for _ in range(epochs):
            epoch = {}
            for batch in loader:
                for i, clip in zip(batch.index.tolist(), batch.frames, strict=True):
                    (start,) = (s for s in range(36) if np.array_equal(want[s : s + 5 : 2], clip))
                    epoch[i] = start
            out.append(epoch)
        return out

    all_epochs = starts(6, seed=5)
    assert all(10 * i <= start < 10 * (i + 1) for epoch in all_epochs for i, start in epoch.items())
    assert len({start for epoch in all_epochs for start in epoch.values()}) > 12
    assert starts(2, seed=5) == all_epochs[:2]
    assert starts(1, seed=6) != all_epochs[:1]
    ranks = [starts(1, seed=5, ranks=stoker.Ranks(r, 2))[0] for r in range(2)]
    assert ranks[0] | ranks[1] == all_epochs[0]


def test_without_the_library(tmp_path: Path, binary: str) -> None:
    """The error names the missing library in one line. MJPEG needs no library."""
    write(tmp_path / "x.mp4", n=2)
    write(tmp_path / "x.avi", n=2, codec="mjpeg", pixels="yuvj420p")
    (tmp_path / "empty").mkdir()
    code = "import sys, stoker; print(next(iter(stoker.Loader(sys.argv[1], batch_size=1))).frames.shape)"
    write(tmp_path / "x.flv", n=2)
    for name in ("x.mp4", "x.avi", "x.flv"):
        ran = subprocess.run(
            [os.sys.executable, "-c", code, f"{tmp_path / name}?frames=2"],  # type: ignore[attr-defined]
            env={**os.environ, "STOKER_FFMPEG": str(tmp_path / "empty"), "STOKER_BINARY": binary},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if name == "x.avi":
            assert "(1, 2, 64, 96, 3)" in ran.stdout, ran.stderr
        else:
            assert "there is no libavcodec in" in ran.stderr and "apt-get install" in ran.stderr
        if name == "x.flv":
            assert "ffmpeg -i IN OUT.mp4" in ran.stderr


def test_damage(make: Make, tmp_path: Path) -> None:
    """Damaged frames and files that are cut off are errors that name the file."""
    write(tmp_path / "v" / "x.mp4", n=30, container={"movflags": "faststart"})
    whole = (tmp_path / "v" / "x.mp4").read_bytes()
    (tmp_path / "v" / "x.mp4").write_bytes(whole[:-500])
    with pytest.raises(stoker.StokerError, match=r"x\.mp4: .* cut off"):
        make(f"{tmp_path / 'v'}?frames=2", batch_size=1)
    broken = bytearray(whole)
    broken[whole.index(b"mdat") + 900 : whole.index(b"mdat") + 1500] = bytes(600)
    (tmp_path / "v" / "x.mp4").write_bytes(bytes(broken))
    for on_error in ("raise", "skip"):
        loader = make(f"{tmp_path / 'v'}?frames=30", batch_size=1, on_error=on_error)
        try:
            for batch in loader:
                assert batch.frames.shape == (1, 30, 64, 96, 3)
        except stoker.StokerError as error:
            assert "x.mp4" in str(error)


def test_inspect(tmp_path: Path, binary: str) -> None:
    write(tmp_path / "a" / "x.mp4", n=30)
    out: Any = cli(binary, "inspect", f"{tmp_path}?frames=8")
    assert "video, 3 records in 1 file" in out and "h264" in out and "96 x 64" in out


def listed(folder: Path, form: str, rows: list[dict[str, Any]]) -> str:
    """Write a table of videos in some form, and return its URL without columns."""
    path = folder / f"list.{form}"
    if form == "csv":
        names = list(rows[0])
        text = [",".join("" if r[n] is None else str(r[n]) for n in names) for r in rows]
        path.write_text("\n".join([",".join(names), *text]) + "\n")
    elif form == "jsonl":
        path.write_text("".join(json.dumps({k: v for k, v in r.items() if v is not None}) + "\n" for r in rows))
    else:
        table = pa.Table.from_pylist(rows)
        if form == "parquet":
            pq.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as out:
                out.write_table(table)
    return str(path)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_clips_of_a_list(make: Make, tmp_path: Path, binary: str, form: str) -> None:
    """A column of paths is clips of the parts in other columns, compared with PyAV's frames, also packed."""
    for i in range(3):
        write(tmp_path / f"v/{i}.mp4", n=40 + 5 * i, seed=i, g="10", bf="2")  # 25 a second
    every = [frames(tmp_path / f"v/{i}.mp4") for i in range(3)]
    rows = [
        {
            "video": f"v/{i % 3}.mp4", "t0": [0.4, None, 0.8][i % 3], "t1": [1.2, 1.0, None][i % 3],
            "cls": "ab"[i % 2], "text": f"row {i}",
        }
        for i in range(9)
    ]  # fmt: skip
    url = listed(tmp_path, form, rows)
    said = "label:label=cls&text" if form in ("csv", "jsonl") else "text"
    url += f"?clip:frames=video&clip.frames=4&clip.stride=3&clip.from=t0&clip.to=t1&{said}"

    def want(i: int) -> np.ndarray:
        first, end = [(10, 30), (0, 25), (20, 50)][i % 3]
        return every[i % 3][[min(first + 3 * k, end - 1) for k in range(4)]]

    def check(loader: stoker.Loader) -> None:
        seen = 0
        for batch in loader:
            for row, i in enumerate(batch.index.tolist()):
                assert np.array_equal(batch.clip[row], want(i)), i
                assert batch.text[row] == f"row {i}"
                seen += 1
        assert seen == 9

    check(make(url, batch_size=4, shuffle=True, drop_last=False))
    shown = cli(binary, "inspect", url)
    assert "4 frames, each 3th, of the videos in" in shown and "h264 in mp4" in shown
    env = _binary.environment()
    cli(binary, "pack", url, tmp_path / "out", env=env)
    cli(binary, "verify", tmp_path / "out", "--decode", env=env)
    check(make(tmp_path / "out", batch_size=4, shuffle=True, drop_last=False))
    # Anywhere in the part, somewhere else in each epoch, the same for all ranks.
    ranks = [make(f"{url}&clip.start=random", 1, seed=3, ranks=stoker.Ranks(r, 2)) for r in range(2)]
    seen = set()
    for _ in range(8):
        for loader in ranks:
            for batch in loader:
                for i, clip in zip(batch.index.tolist(), batch.clip, strict=True):
                    first, end = [(10, 30), (0, 25), (20, 50)][i % 3]
                    of = every[i % 3]
                    (at,) = (s for s in range(first, end - 9) if np.array_equal(of[s : s + 10 : 3], clip))
                    seen.add((i, at - first))
    assert len(seen) > 30


def test_clips_of_a_list_by_themselves(make: Make, tmp_path: Path, binary: str) -> None:
    """A column with paths of videos is detected. The error for a bad row names that row."""
    write(tmp_path / "a.mp4", n=20)
    (tmp_path / "list.csv").write_text("file,label\na.mp4,0\nmissing.mp4,1\na.mp4,2\n")
    loader = make(tmp_path / "list.csv", batch_size=1, on_error="skip")
    with pytest.warns(stoker.SkippedRecords):
        assert {b.file.shape for b in loader} == {(1, 16, 64, 96, 3)}
    with pytest.raises(stoker.StokerError, match=r'list\.csv, row 1 .*column "file": .*missing\.mp4'):
        list(make(tmp_path / "list.csv", batch_size=3))
    options = ["--field", "clip:frames=file", "--field", "clip.frames=2", "--field", "label"]
    done = subprocess.run(
        [binary, "pack", str(tmp_path / "list.csv"), str(tmp_path / "out"), *options],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 3 and "missing.mp4" in done.stdout + done.stderr
    assert next(iter(make(tmp_path / "out", 2))).clip.shape == (2, 2, 64, 96, 3)


def test_verify_names_damaged_clips(tmp_path: Path, binary: str) -> None:
    """Verify names clips with damaged packets by record, and bounded memory is enough."""
    for i in range(3):
        write(tmp_path / f"v/{i}.mp4", n=24, seed=i, g="24", bf="0", container={"movflags": "faststart"})
        write(tmp_path / f"m/{i}.avi", n=24, seed=i, codec="mjpeg", pixels="yuvj420p")
    env = _binary.environment()
    for folder, name in (("v", "1.mp4"), ("m", "1.avi")):
        path = tmp_path / folder / name
        broken = bytearray(path.read_bytes())
        with av.open(path) as file:
            packets = [p for p in file.demux(video=0) if p.size]
        # In the second clip: some bytes of a frame, or the tables of a JPEG.
        at = broken.index(bytes(packets[12])) + (packets[12].size // 2 if folder == "v" else 2)
        broken[at : at + 40] = b"\xff\xd9" * 20
        path.write_bytes(bytes(broken))
        out = tmp_path / f"{folder}-pack"
        subprocess.run(
            [binary, "pack", f"{tmp_path / folder}?frames=8", str(out), "--images", "keep"],
            check=True, capture_output=True, env=env,
        )  # fmt: skip
        said = subprocess.run(
            [binary, "verify", str(out), "--decode", "--memory", "64MiB", "--json"],
            check=False, capture_output=True, text=True, env=env,
        )  # fmt: skip
        assert said.returncode == 4, said.stderr
        problems = json.loads(said.stdout)["problems"]
        assert problems and all(p["first_record"] in ((4, 5) if folder == "v" else (4,)) for p in problems), problems
        assert any(p["first_record"] == 4 and "the frames cannot be decoded" in p["reason"] for p in problems)
        assert subprocess.run([binary, "verify", str(out)], check=False, capture_output=True).returncode == 0
    # Without the library it cannot be said, and no clip is called damaged.
    (tmp_path / "empty").mkdir()
    said = subprocess.run(
        [binary, "verify", str(tmp_path / "v-pack"), "--decode"],
        check=False, capture_output=True, text=True, env={**env, "STOKER_FFMPEG": str(tmp_path / "empty")},
    )  # fmt: skip
    assert said.returncode == 1 and "clips cannot be decoded here" in said.stderr


@pytest.mark.parametrize(("name", "codec", "more"), [(n, c, o) for n, c, o, _ in CASES])
def test_verify_takes_what_is_whole(tmp_path: Path, binary: str, name: str, codec: str, more: dict[str, str]) -> None:
    """Verify accepts clips that begin anywhere, of all codecs and kinds of groups."""
    if not has(codec):
        pytest.skip(f"PyAV has no {codec}")
    path = tmp_path / "v" / name
    write(path, n=26, codec=codec, **more)
    env = _binary.environment()
    subprocess.run(
        [binary, "pack", f"{path}?frames=3&stride=2&step=5", str(tmp_path / "p")],
        check=True,
        capture_output=True,
        env=env,
    )
    done = subprocess.run(
        [binary, "verify", str(tmp_path / "p"), "--decode"], check=False, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every clip decodes" in done.stdout
