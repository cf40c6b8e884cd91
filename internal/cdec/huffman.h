#ifndef STOKER_HUFFMAN_H
#define STOKER_HUFFMAN_H

#include "sk.h"

// Not a result of a job: decode the image again with sk_dec.plain set.
#define SK_RETRY 100

// Takes the place of libjpeg's entropy decoder if the image is one that this
// one handles; after jpeg_start_decompress. While it decodes it may longjmp with
// SK_RETRY.
int sk_huffman_start(sk_dec *d);

// The coefficients of a JPEG row by row, without libjpeg's controllers, which keep
// all of them. The object keeps tables and memory from image to image.
typedef struct sk_scan sk_scan;
sk_scan *sk_scan_new(void); // NULL when there is no memory
void sk_scan_free(sk_scan *s);
// Begins, behind jpeg_read_header. Returns SK_OK, SK_NO_MEMORY, or SK_RETRY where
// libjpeg has to do it; as the other two do for what is out of the ordinary.
int sk_scan_start(sk_scan *s, struct jpeg_decompress_struct *ci, int isa);
// Decodes the next row of MCUs.
int sk_scan_row(sk_scan *s);
// Row y of the blocks of component c in it.
JBLOCKROW sk_scan_blocks(const sk_scan *s, int c, int y);
// Behind the last row: whether the image ends there.
int sk_scan_end(const sk_scan *s);

#endif
