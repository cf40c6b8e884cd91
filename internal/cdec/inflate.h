// Decoding of deflate data and related filters, in memory (inflate.c).
#ifndef STOKER_INFLATE_H
#define STOKER_INFLATE_H

#include <stddef.h>
#include <stdint.h>

// Reasons why data is not decompressed, in addition to SK_OK and SK_UNREADABLE.
enum {
	SK_INFLATE_DATA = 100, // it is damaged
	SK_INFLATE_SHORT,      // it is cut off
	SK_INFLATE_SIZE,       // it does not fit
};

// Writes deflate data to dst. *made is the number of bytes written, *used the number of bytes of src used.
int sk_inflate(uint8_t *dst, size_t room, const uint8_t *src, size_t n, size_t *made, size_t *used);

// The checksum of zlib (RFC 1950).
uint32_t sk_adler32(const uint8_t *p, size_t n);

// Numbers of `size` bytes from their first bytes, their second bytes, and so on. Bytes left over are copied.
int sk_unshuffle(uint8_t *dst, const uint8_t *src, size_t bytes, int size);

#endif
