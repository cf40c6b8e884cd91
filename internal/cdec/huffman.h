#ifndef STOKER_HUFFMAN_H
#define STOKER_HUFFMAN_H

#include "sk.h"

// Not a result of a job: decode the image again with sk_dec.plain set.
#define SK_RETRY 100

// Replaces libjpeg's entropy decoder if it can decode the image; called after jpeg_start_decompress. It may longjmp
// with SK_RETRY while decoding.
int sk_huffman_start(sk_dec *d);

// The coefficients of a JPEG, some MCUs at a time, without libjpeg's controllers, which
// keep all of them. The object keeps tables from image to image.
typedef struct sk_scan sk_scan;
sk_scan *sk_scan_new(void); // NULL when there is no memory
void sk_scan_free(sk_scan *s);
// Starts the scan after jpeg_read_header. Returns SK_OK, or SK_RETRY if libjpeg must decode the image.
int sk_scan_start(sk_scan *s, struct jpeg_decompress_struct *ci);
#define SK_SCAN_BLOCKS 64
// Decodes the next n MCUs, of at most so many blocks: MCU after MCU in the order of the scan, each block in zigzag
// order. They are valid until the next call. NULL means SK_RETRY: the data is irregular.
const JCOEF (*sk_scan_next(sk_scan *s, int n))[DCTSIZE2];
// Behind the last MCU: whether the image ends there; SK_OK or SK_RETRY.
int sk_scan_end(const sk_scan *s);

#endif
