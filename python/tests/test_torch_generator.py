"""States of torch's generators in a few bytes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stoker.torch import _generator  # noqa: E402


def advanced(seed: int, draws: int) -> torch.Generator:
    generator = torch.Generator().manual_seed(seed)
    torch.empty(draws, dtype=torch.int32).random_(generator=generator)
    return generator


@pytest.mark.parametrize("draws", [0, 1, 623, 624, 625, 1248, 100_000])
@pytest.mark.parametrize("seed", [0, 5, 2**63 - 5])
def test_seed_and_draws(seed: int, draws: int) -> None:
    state = advanced(seed, draws).get_state()
    text = _generator.Known().brief(state)
    assert text == f"{seed}+{draws}"
    assert torch.equal(_generator.whole_of(text), state)


def test_epochs_and_new_seeds() -> None:
    """Each search begins after the state before, and at the seed if that does not help."""
    known, generator = _generator.Known(), torch.Generator().manual_seed(7)
    states = [generator.get_state()]
    for _ in range(12):
        torch.randperm(5_000, generator=generator)
        states.append(generator.get_state())
    texts = [known.brief(state) for state in [*states, states[3], states[0], states[12]]]
    assert texts[:2] == ["7+0", "7+4999"] and texts[-3:] == [texts[3], texts[0], texts[12]]


def test_normal_numbers_come_in_pairs() -> None:
    generator = torch.Generator().manual_seed(3)
    torch.randn(3, generator=generator)
    torch.randn(3, generator=generator, dtype=torch.float64)
    state = generator.get_state()
    text = _generator.Known().brief(state)
    assert len(text) < 80 and torch.equal(_generator.whole_of(text), state)


def test_a_state_that_no_search_finds_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_generator, "_NEAR", 10_000)
    known, state = _generator.Known(), advanced(1, 100_000).get_state()
    for _ in range(2):
        text = known.brief(state)
        assert len(text) > 5_000 and torch.equal(_generator.whole_of(text), state)
    assert known.brief(advanced(1, 700).get_state()) == "1+700"
    monkeypatch.setattr(_generator, "_FAR", 5_000)
    assert len(known.brief(advanced(1, 7_000).get_state())) > 5_000


def test_numbers_to_draw() -> None:
    generator = advanced(9, 77)
    before = generator.get_state()
    numbers = [int(_generator.draw_number(generator)) for _ in range(3)]
    assert _generator.drawn(before, 3) == numbers
    generator.set_state(_generator.about_to_draw([0, 2**63 - 1, 12345678901234567]))
    assert [int(_generator.draw_number(generator)) for _ in range(3)] == [0, 2**63 - 1, 12345678901234567]
