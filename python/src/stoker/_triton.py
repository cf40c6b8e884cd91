"""The kernel of ``_fused`` in Triton. Without Triton the import fails."""

# ruff: noqa: N803 - sizes and what a kernel is compiled for are written large

# Triton compiles the source of a kernel, and takes annotations other than its own, such as Any, for globals, which it
# refuses.

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]


@triton.jit  # type: ignore[untyped-decorator,misc,unused-ignore]
def _value(  # type: ignore[no-untyped-def]
    x, b, c, h, w, flips, factor, term, W, s0, s1, s2, s3, mask, FLIP: tl.constexpr, UNSIGNED16: tl.constexpr
):
    """Return the pixel of a place, normalised."""
    if FLIP:
        mirrored = tl.load(flips + b, mask=mask, other=0).to(tl.int32)
        w = tl.where(mirrored != 0, W - 1 - w, w)
    v = tl.load(x + b * s0 + c * s1 + h * s2 + w * s3, mask=mask, other=0)
    if UNSIGNED16:
        v = v.to(tl.int32) & 0xFFFF
    return v.to(tl.float32) * factor + term


@triton.jit  # type: ignore[untyped-decorator,misc,unused-ignore]
def images(  # type: ignore[no-untyped-def]
    x, out, factors, terms, flips, share, N, B, C, H, W, s0, s1, s2, s3,
    CHANNELS_LAST: tl.constexpr, FLIP: tl.constexpr, MIX: tl.constexpr, UNSIGNED16: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a block of the result, in the order of its memory."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < N
    b = at // (C * H * W)
    if CHANNELS_LAST:
        c = at % C
        w = at // C % W
        h = at // (C * W) % H
    else:
        w = at % W
        h = at // W % H
        c = at // (W * H) % C
    factor = tl.load(factors + c, mask=mask, other=0)
    term = tl.load(terms + c, mask=mask, other=0)
    v = _value(x, b, c, h, w, flips, factor, term, W, s0, s1, s2, s3, mask, FLIP, UNSIGNED16)
    if MIX:
        before = (b + B - 1) % B
        other = _value(x, before, c, h, w, flips, factor, term, W, s0, s1, s2, s3, mask, FLIP, UNSIGNED16)
        v = share * v + (1 - share) * other
    tl.store(out + at, v.to(out.dtype.element_ty), mask=mask)
