# ruff: noqa: E501 (a table)
"""Programs that try to make stoker.torch differ from torch: a table written by hand, and generated ones by their seeds."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import adversary
from adversary import Program

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:This DataLoader will create",
    r"ignore:os\.fork\(\) was called",
)
SEEDS = 150

# Each row lists datasets, changes (each with a number), moments, numbers of workers and more words. Its programs are
# all combinations of these. A program is called by its text.
TABLE = """
folder flowers; reverse delete insert#3; 0.2; 0 2;
gtsrb; swap#3 shuffle#5 append assign-fewer clear other-file#2; 0.1 0.end; 0;
timm; sort other-file#4; 0.2 1.0; 0;
folder; assign-tuple assign-own-list path-objects byte-paths no-such-file#5 other-loader root; made; 0;
relative; cwd; made 0.0 0.2 0.end; 0; epochs=3
relative; cwd; 0.end; 2;
folder; relabel#7 relabel-all#9 edit-a-label; 0.2 0.end; 0 2;
folder; as-lists tensor-labels text-labels no-labels triples targets imgs label-object; made; 0;
flowers; labels-reversed labels-assigned#3 labels-fewer; 0.2 0.end; 0;
subset; indices-append indices-edit#2 indices-assign#1 indices-fewer indices-beyond inner-list; 0.2 0.end; 0;
subset; indices-range indices-array indices-tensor inner-dataset Subset.__getitem__ Subset.__getitems__; made; 0;
concat; append delete assign-fewer parts-reversed part-swapped part-added part-dropped sizes sizes-fewer sizes-again; 0.end; 0; epochs=3
concat_cifar; sizes part-dropped ConcatDataset.__getitem__; 0.1; 0; transform=tensor
cifar mnist svhn; black one-image#5 one-pixel#4 turned-over roll#7 swap-words; 0.end; 0; transform=tensor
cifar stl10; together label assign-data#5; 0.1; 0 2; transform=tensor
mnist; roll#13 roll-across#4 mirrored pixels-mixed roll-records; 0.1; 0; transform=tensor
stl10; pixels-mixed roll#3 negative assign-floats assign-more-images; 0.end; 0; transform=tensor
cifar; labels-as-array labels-as-floats labels-missing labels-assigned-again no-labels-at-all; made; 0; transform=tensor
folder; size#8 size-in-place#5 replace-first#4 append-double pop-first; 0.1 0.end; 0;
hf; size#8 append-double pop-first; 0.1; 0;
folder; transform-crop transform-none transform-bytes transform-split transform-copied target-plus#4 target-fails; 0.1 0.end; 0;
folder; transform-v2 size#8 target-lambda; 0.1 0.end; 2; persistent=1
folder; size-int size-text size-float nearest bicubic interpolation-int; made; 0;
cifar; mean#7 mean-number mean-array std-zero std-tensor inplace; made 0.1; 0; transform=norm
cifar; crop-size#7 crop-int#5 tuple-of-transforms generator-of-transforms own-list insert-None pop-last; made; 0; transform=crop
folder; own-ToTensor own-Resize own-class-of-Compose forward-of-one hook pre-hook eval; 0.end; 0;
folder; subclass subclass-len getitem-of-one getitem-of-class getitems-of-one len-of-class; made; 0;
hf; set_transform set_transform-labels set_transform-gray hf-cell reset_format format-numpy; 0.2 0.end; 0;
table; format-numpy format-python format-dtype format-all hf-data hf-indices hf-transform-on-table; 0.1; 0; transform=none
folder; F.resize F.resize#1 F.resize#2 F.resize#3 F.to_tensor-other FP.resize global-hook global-hook#1 register_open; made; 0;
folder; Jpeg.convert ImageFile.load Image.open Image.convert pil_loader default_loader pixel-limit image-backend; made; 0;
folder; kernel kernel#1 F2.resize return-type map-tensor; made; 0; transform=v2
cifar; FT.normalize F.normalize-other FP.hflip FP-swapped map-tuple map-int torch.stack default-dtype; made; 0; transform=flip
folder; ToTensor.__call__ Resize.forward Compose.__call__ Module.__call__ F.resize fetch own-Resize own-class-of-Compose image-backend pixel-limit; 0.2; 0;
own; own-Resize own-class-of-Compose Compose.__call__ Resize.forward F.resize Image.open Image.convert size#8 other-file#2 relabel#7; 1.1 1.end; 0 2; epochs=3
own; rewrite-all file-gone pixel-limit return-type default-dtype global-hook kernel; 1.1; 0; epochs=3
folder; own-Resize size#8 target-plus#4; 0.1; 0; transform=preset
hf; size-int#5 Compose.__call__; 0.1; 0; transform=preset kind=first batch=2
folder; pre-hook hook; 0.1; 0; transform=v2-pictures
own; break; 1.2; 2; transform=sharp epochs=3
cifar folder hf; map-int map-tuple; 0.1; 2; transform=crop
cifar mnist stl10; not-contiguous assign-data#3; 0.end; 0; transform=tensor
own relative; loader-collate-none; 0.0 0.1 0.end; 0; epochs=3
own folder; generator-of-transforms; made; 2;
timm; no-labels; 0.1 0.end; 0;
cifar; loader-workers#2; 0.end; 2; transform=solarize
cifar; generator-seed#5 generator-draw generator-state#3 torch-draw manual_seed#4; 0.1 0.end; 0; order=gen transform=tensor
cifar; break; 0.2; 0 2; order=gen transform=tensor epochs=3
cifar; break; 0.2; 0 2; order=repl-both transform=tensor epochs=3
cifar; break; 0.1; 0 2; order=own transform=tensor epochs=3
cifar; break; 0.1; 0; order=default-gen transform=tensor epochs=3
cifar; break; 0.1; 0; order=more transform=tensor epochs=3
cifar; batch-size#4 batch-drop batch-order loader-generator#3 another-iterator two-iterators; 0.1 0.end; 0; order=gen transform=tensor
cifar; sampler-weights sampler-num_samples#4 sampler-generator#3; 0.1 0.end; 0; order=weight transform=tensor
cifar; sampler-epoch#3 sampler-seed#2 sampler-rank; 0.1 0.end; 0; order=dist transform=tensor
cifar; sampler-list sampler-grows; 0.1 0.end; 0; order=list transform=tensor
cifar; loader-collate loader-collate#1 loader-collate#2 loader-workers#1 worker-init-changes loader-timeout; 0.end; 0; transform=tensor
folder; write-into-batch write-into-labels keep-batch clear-batch; 0.1; 0 2;
folder; rewrite-all rename-onto-all rename-with-the-old-time link png-as-jpg file-gone cut no-image folders-swapped; 0.end; 0; cache=1
folder; rewrite-all rename-onto-all file-gone; 0.2; 0;
timm; rewrite-all file-gone cut; 0.end; 0; cache=1
folder; reverse size#8 F.resize#2 rewrite-all break; 0.2; 0; kind=run
folder; register_decoder register_decoder#1 core-decoder core-decoder#1 register_encoder module-class module-class#1 Module._compiled_call_impl compiled-call; made; 0;
folder own; register_decoder core-decoder module-class compiled-call default-device; 1.1; 0; epochs=3
cifar; register_decoder#2 core-decoder#2 register_encoder; made 0.1; 0; transform=tensor
folder; types types#1 types#2 types-of-one; made 0.1; 0; transform=v2-invert
folder hf; types types-of-one; 0.end; 2; transform=v2-invert
mnist stl10; tensor-set tensor-data shape-in-place; 0.1 0.end; 0 2; transform=tensor
folder flowers; target-counts#1 target-draws target-stops#3 target-fails-once#3 target-changes-transform#2 target-changes-samples#2; made; 0; errors=3
folder cifar; target-counts#1 target-stops#3 target-fails-once#3 target-changes-transform#2 target-changes-samples#2; made; 2; errors=3 transform=crop
folder; target-counts#1 target-draws; 0.2; 0; transform=noisy epochs=3
folder cifar own table; fork; 0.1 1.1; 0; epochs=3
folder timm; odd-format#2 odd-format#7 long-text#6 long-text#7; start; 0 2; errors=3
folder; rewrite-with-the-old-size-and-time folder-linked; 0.end; 0 2; cache=1
folder own; folder-linked rewrite-with-the-old-size-and-time; 0.1 1.1; 0; epochs=3
folder; default-device; 0.0 0.1; 0 2;
folder; autocast; made 0.1; 0; transform=v2-sharp
table; default-device; 0.1 0.end; 0; transform=none
own; target-fails-once#3 target-stops#3; made; 0 2; errors=3 epochs=3
folder own; file-gone#2 file-gone#5; start; 0 2; errors=3 epochs=3
""".strip().splitlines()


# Programs without changes.
PLAIN = """
data=folder transform=changed-later
data=folder transform=changed-later workers=2
data=own transform=changed-later workers=2 epochs=3
data=folder transform=noisy order=gen
data=cifar transform=tensor order=bools errors=3
data=subset_cifar transform=tensor order=bools errors=3
data=mnist transform=tensor order=masks errors=3
data=mnist transform=tensor order=rows errors=3
data=cifar transform=tensor order=rows errors=3
data=stl10 transform=tensor order=bools errors=3
data=folder order=tensors
data=concat order=tensors workers=2
data=hf order=tensors errors=3
data=table transform=none order=tensors errors=3
data=table transform=none order=bools errors=3
data=table transform=none order=slices errors=5
data=table transform=none order=slices errors=5 workers=2
data=folder order=slices errors=5
data=mnist transform=tensor order=shorts
data=concat_cifar transform=tensor order=shorts
data=folder order=bools
data=hf order=slices errors=5
data=hf order=slices errors=5 workers=2
data=own order=slices errors=5 workers=2 epochs=3
data=folder transform=lambda order=slices errors=5 workers=2
data=cifar transform=tensor order=slices workers=2 persistent=1
data=mnist transform=tensor workers=2 persistent=1 share@start label@0.end#4
data=mnist transform=tensor workers=2 persistent=1 share@start roll@0.end#4
""".strip().splitlines()


def by_hand() -> list[str]:
    """Return the programs of the table."""
    texts = []
    for row in TABLE:
        data, changes, moments, workers, more = (part.split() for part in row.split(";"))
        for d, c, m, w in itertools.product(data, changes, moments, workers):
            name, _, number = c.partition("#")
            made = Program(data=d, workers=int(w), changes=((name, m, int(number or 0)),))
            texts.append(" ".join([*more, str(made)]))
    return [*texts, *PLAIN]


def same(program: Program, folder: Path) -> None:
    """Fail with the smallest program that differs like this one."""
    difference = adversary.check(program, folder)
    if difference is not None:
        small = adversary.smaller(program, difference, folder)
        pytest.fail(f"{program}\n{difference}\nsmaller: {small}\n{adversary.check(small, folder)}", pytrace=False)


@pytest.mark.parametrize("program", [pytest.param(adversary.parse(t), id=t) for t in by_hand()])
def test_by_hand(program: Program, tmp_path: Path) -> None:
    same(program, tmp_path / "files")


@pytest.mark.parametrize("program", [pytest.param(adversary.generate(n), id=f"seed{n}") for n in range(SEEDS)])
def test_generated(program: Program, tmp_path: Path) -> None:
    same(program, tmp_path / "files")


def test_programs_have_texts() -> None:
    assert len(set(by_hand())) == len(by_hand())
    for seed in range(300):
        program = adversary.generate(seed)
        assert adversary.generate(seed) == program == adversary.parse(str(program)), str(program)
