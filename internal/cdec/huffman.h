#ifndef STOKER_HUFFMAN_H
#define STOKER_HUFFMAN_H

#include "sk.h"

// Not a result of a job: decode the image again with sk_dec.plain set.
#define SK_RETRY 100

// Takes the place of libjpeg's entropy decoder if the image is one that this
// one handles; after jpeg_start_decompress. While it decodes it may longjmp with
// SK_RETRY.
int sk_huffman_start(sk_dec *d);

#endif
