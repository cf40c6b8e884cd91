// The same floats with every kernel set on every machine: where the processor has
// a fused multiply-add, compilers use it unasked. Not for files with intrinsics,
// which GCC does not inline into functions of other options.
#ifndef STOKER_FP_EXACT_H
#define STOKER_FP_EXACT_H
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif
#endif
