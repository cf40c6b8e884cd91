// The same floats with every kernel set on every machine: if the processor has a fused multiply-add, compilers use it
// by default. Not for files with intrinsics, which GCC does not inline into functions with other options.
#ifndef STOKER_FP_EXACT_H
#define STOKER_FP_EXACT_H
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif
#endif
