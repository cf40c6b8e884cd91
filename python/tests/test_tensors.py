"""Table columns as arrays, compared with pandas and NumPy: read directly, packed, and through stoker.pack."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from support import packed

pd = pytest.importorskip("pandas")

Make = Callable[..., stoker.Loader]
COUNT = 300


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE_DIR", str(tmp_path / "cache"))


def frame() -> Any:
    """Return a table with missing values of all sorts."""
    draw = np.random.default_rng(0)
    age = draw.normal(40, 12, COUNT).round(1)
    age[draw.random(COUNT) < 0.1] = np.nan
    city = draw.choice(np.array(["Oslo", "Bern", "Łódź", "a:b"], object), COUNT)
    city[draw.random(COUNT) < 0.1] = None
    return pd.DataFrame(
        {
            "age": age,
            "rooms": draw.integers(-3, 9, COUNT),
            "city": city,
            "income": draw.normal(3e4, 8e3, COUNT),
            "id": range(COUNT),
        }
    )


@pytest.fixture(scope="module", params=["csv", "parquet"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / f"t.{request.param}"
    if request.param == "csv":
        frame().to_csv(path, index=False)
    else:
        pytest.importorskip("pyarrow")
        frame().to_parquet(path, index=False)
    return path


def read(loader: stoker.Loader, field: str) -> np.ndarray:
    return np.concatenate([np.array(batch[field]) for batch in loader])


def normalised(column: Any) -> np.ndarray:
    values = column.fillna(column.mean()).to_numpy(np.float64)
    return np.asarray((values - np.nanmean(column)) / np.nanstd(column), np.float32)


TENSORS: dict[str, Any] = {
    "x": ["age:normalize:flag", "rooms:normalize", "city:onehot", "income"],
    "code:int64": ["city", "rooms:code"],
    "plain": ["rooms", "id"],
}
FLAGS = [
    "--tensor",
    "x=age:normalize:flag,rooms:normalize,city:onehot,income",
    "--tensor",
    "code:int64=city,rooms:code",
]


def test_as_pandas_makes_them(make: Make, binary: str, source: Path, tmp_path: Path) -> None:
    table = frame()
    x = np.column_stack(
        [
            normalised(table.age),
            table.age.isna(),
            normalised(table.rooms),
            pd.get_dummies(table.city),  # sorted, and nothing for what is missing
            table.income.astype(np.float32),
        ]
    ).astype(np.float32)
    code = np.column_stack([pd.Categorical(table.city).codes + 1, pd.Categorical(table.rooms).codes + 1])
    loader = make(stoker.open(source).tensors(TENSORS), 64)
    assert [f["name"] for f in loader.info["arrays"]][:3] == ["code", "plain", "x"]
    made = read(loader, "x")
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, x, rtol=1e-6, atol=1e-6)
    assert read(loader, "code").tolist() == code.tolist()
    assert read(make(stoker.open(source).tensors(TENSORS), 64, shuffle=True), "plain").dtype == np.int64
    assert sorted(map(tuple, read(loader, "plain").tolist())) == sorted(zip(table.rooms, table.id, strict=True))
    # Packed arrays are the same to the bit, and the pack records their source columns.
    pack = packed(binary, source, tmp_path / "p", *FLAGS)
    assert np.array_equal(read(make(pack, 64), "x"), made)
    fields = {f["name"]: f for f in json.loads((pack / "manifest.json").read_text())["fields"]}
    about = {c["field"]: c for c in fields["x"]["columns"]}
    assert about["city"]["classes"] == sorted(table.city.dropna().unique()) and about["age"]["flag"]
    assert about["age"]["mean"][0] == pytest.approx(table.age.mean()) and about["age"]["fill"] == about["age"]["mean"]
    # The columns themselves are left out, unless they are asked for.
    assert set(fields) == {"x", "code", "id"}
    both = make(f'{source}#tensors={{"x": ["age"]}}&select=x,age', 64)
    assert np.array_equal(read(both, "age").astype(np.float32), read(both, "age").astype(np.float32), equal_nan=True)
    assert np.isnan(read(both, "age")).sum() == table.age.isna().sum() and not np.isnan(read(both, "x")).any()


def test_missing_numbers(make: Make, source: Path) -> None:
    age = frame().age
    for how, value in {"age": age.mean(), "age:fill=-1.5": -1.5, "age:fill=none": np.nan}.items():
        made = read(make(stoker.open(source).tensors({"x": [how]}), 64), "x")[:, 0]
        np.testing.assert_allclose(made, age.fillna(value).to_numpy(np.float32), rtol=1e-6)
    given = make(stoker.open(source).tensors({"x": [stoker.Column("age", mean=40, std=12, fill=40.0, flag=True)]}), 64)
    np.testing.assert_allclose(
        read(given, "x"),
        np.column_stack([(age.fillna(40) - 40) / 12, age.isna()]).astype(np.float32),
        rtol=1e-5,
        atol=1e-6,
    )


def test_other_rows_get_the_same_codes(make: Make, binary: str, tmp_path: Path) -> None:
    table = frame()
    table.to_csv(tmp_path / "train.csv", index=False)
    other = table.head(50).copy()
    other.loc[0, "city"] = "Rome"
    other.to_csv(tmp_path / "test.csv", index=False)
    pack = packed(binary, tmp_path / "train.csv", tmp_path / "p", *FLAGS)
    made = make(stoker.open(tmp_path / "test.csv").tensors(of=pack), 64)
    expected = read(make(pack, 64), "x")[:50].copy()
    expected[0, 3:7] = 0  # a city that was not there
    assert np.array_equal(read(made, "x"), expected)
    assert read(made, "code")[0, 0] == 0
    again = packed(binary, tmp_path / "test.csv", tmp_path / "q", "--tensors-of", str(pack))
    assert np.array_equal(read(make(again, 64), "x"), expected)
    # Only tables with the same columns can be appended.
    packed(binary, tmp_path / "test.csv", pack, "--append", "--tensors-of", str(pack))
    assert len(read(make(pack, 64), "x")) == COUNT + 50
    done = subprocess.run(
        [binary, "pack", str(tmp_path / "test.csv"), str(pack), "--append", *FLAGS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode and "--tensors-of" in done.stderr
    with pytest.raises(stoker.StokerError, match="has no tensors made of columns"):
        make(stoker.open(tmp_path / "test.csv").tensors(of=tmp_path / "train.csv"), 8)


def test_most_frequent_and_all_others(make: Make, source: Path) -> None:
    table = frame()
    most = sorted(table.city.value_counts().index[:2])
    loader = make(stoker.open(source).tensors({"x": ["city:code:top=2"], "rest": ["*:normalize"]}), 64)
    want = table.city.map({name: i + 1 for i, name in enumerate(most)}).fillna(0)
    assert read(loader, "x")[:, 0].tolist() == want.tolist()
    np.testing.assert_allclose(
        read(loader, "rest"),
        np.column_stack([normalised(table[c]) for c in ("age", "rooms", "income", "id")]),
        rtol=1e-5,
        atol=1e-6,
    )
    # Statistics are of the records that `where` selects, and the same in all parts of a split.
    some = table[table.id < 100]
    of_some = stoker.open(source).where("id < 100").tensors({"x": ["income:normalize", "id"]})
    parts = [read(make(p, 64), "x") for p in of_some.split(0.5, 0.5)]
    made = np.concatenate(parts)
    np.testing.assert_allclose(made[np.argsort(made[:, 1]), 0], normalised(some.income), rtol=1e-5, atol=1e-6)


def test_of_what_python_has(make: Make, tmp_path: Path) -> None:
    table = frame()
    table["city"] = table.city.fillna("")
    rows = table.to_dict("records")
    tensors = {"x": ["age:normalize", stoker.Column("city", onehot=True)], "y": ["rooms"]}
    result = stoker.pack(rows, tmp_path / "p", tensors=tensors, workers=0)
    assert result.records == COUNT and not list(tmp_path.glob(".p*"))
    loader = make(tmp_path / "p", 64)
    np.testing.assert_allclose(read(loader, "x")[:, 0], normalised(table.age), rtol=1e-5, atol=1e-6)
    assert read(loader, "y")[:, 0].tolist() == table.rooms.tolist()
    assert stoker.pack(rows, tmp_path / "p", tensors=tensors, workers=0).unchanged
    # Arrays of one axis are as many columns; those of a pack are normalised when they are loaded.
    again = read(make(stoker.open(tmp_path / "p").tensors({"z": ["x:normalize"]}), 64), "z")
    np.testing.assert_allclose(again.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(again.std(0), 1, atol=1e-4)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"x": ["agee"]}, 'has no field "agee"; did you mean "age"'),
        ({"x": ["age:onhot"]}, "did you mean"),
        ({"x": ["age:onehot"]}, "onehot and code are for texts"),
        ({"x": ["city:normalize"]}, "fill and normalize are for numbers"),
        ({"x:int32": ["age"]}, "type int32 holds whole numbers, but column"),
        ({"x:uint8": ["age"]}, "float32, float64, int32 or int64"),
        ({"id": ["age"]}, 'there is a field "id" already'),
        ({"x": [stoker.Column("age", mean=1)]}, "both mean and std"),
        ({"x": [1]}, "a name or a stoker.Column"),
        ({"x": "age"}, "must be a list of columns"),
    ],
)
def test_refusals(make: Make, tmp_path: Path, tensors: Any, says: str) -> None:
    frame().to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(stoker.StokerError) as error:
        make(stoker.open(tmp_path / "t.csv").tensors(tensors), 8)
    assert says in str(error.value) and "\n" not in str(error.value)
