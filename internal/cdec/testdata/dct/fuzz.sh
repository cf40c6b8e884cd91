#!/bin/sh
# Fuzzes the dct codec under AddressSanitizer and UndefinedBehaviorSanitizer.
# usage: fuzz.sh [seconds] [folder for new inputs]; needs clang
set -eu
cd "$(dirname "$0")"
work=${2:-$(mktemp -d)}
mkdir -p "$work/new"
clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	-o "$work/fuzz" fuzz.c ../../dct_*.c ../../sk.c ../../kernels.c ../../jpeg.c ../../huffman*.c -l:libjpeg.a -lm
exec nice -n 19 "$work/fuzz" -max_len=20000 -timeout=20 -rss_limit_mb=4096 \
	-max_total_time="${1:-600}" -print_final_stats=1 "$work/new" corpus
