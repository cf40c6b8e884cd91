// Common code of the C files of this package: the decoder object with its scratch memory, errors, and the row sink to
// which decoders pass pixels.
//
// Decoders push rows. A decoder of a format (JPEG, dct, raw) is one function
//
//     int sk_xxx_decode_box(sk_dec *d, const uint8_t *src, size_t n,
//                           int x, int y, int w, int h, sk_sink *sink);
//
// that decodes the pixels [x,x+w) x [y,y+h) of the image in src. It passes them to the sink from the top row to the
// bottom one, a few rows at a time, while they are still in the first-level cache. It sets sink->px (bytes per pixel)
// before the first rows, calls sink->rows, and returns SK_OK, or the result of sk_fail. src is untrusted input, and
// no byte after src[n-1] may be read. Before it allocates memory, it must check the box against the image
// (sk_check_box) and the image against the limits (sk_check_size).
#ifndef STOKER_SK_H
#define STOKER_SK_H

#include <setjmp.h>
#include <signal.h>
#include <stdio.h> // jpeglib.h needs it before itself

#define JPEG_INTERNALS // also gives jpegint.h: the entropy decoder is replaced
#include <jpeglib.h>

#include "cdec.h"
#include "kernels.h"

// Rows passed to a sink must have this many readable bytes after their last pixel (with any content), because vector
// loads are not cut off.
#define SK_PAD 64

// ---- sinks

typedef struct sk_sink sk_sink;
struct sk_sink {
	// Takes n rows of the box. Row i starts at px0 + i*stride with the first pixel of the box. Returns SK_OK or a
	// code of sk_fail. The decoder then stops and returns it.
	int (*rows)(sk_sink *s, const uint8_t *px0, ptrdiff_t stride, int n);
	// Bytes per pixel: 4 (R, G, B, anything), 3 (RGB) or 1 (gray).
	int px;
};

// A sink that copies the rows to memory as they come (px bytes per pixel).
typedef struct {
	sk_sink sink;
	uint8_t *dst;
	ptrdiff_t stride;
	int w;
} sk_memory_sink;
void sk_memory_sink_init(sk_memory_sink *s, uint8_t *dst, ptrdiff_t stride, int w);

// ---- scratch memory

// A buffer that grows and is used again for later images.
typedef struct {
	uint8_t *p; // 64-byte aligned
	size_t cap;
} sk_buf;

// Returns at least size bytes (64-byte aligned, content undefined), or NULL
// when there is no memory. The bytes are valid until the next call for b.
void *sk_need(sk_buf *b, size_t size);
void sk_buf_free(sk_buf *b);
// Releases buffers that grew beyond the needs of ordinary images.
void sk_trim(sk_dec *d);

// ---- the decoder object

struct sk_dec {
	// libjpeg. client_data of ci points to the sk_dec. See jpeg.c.
	struct jpeg_decompress_struct ci;
	struct jpeg_error_mgr em;
	struct jpeg_source_mgr source;
	struct jpeg_progress_mgr progress;
	jmp_buf jump;
	int images;       // since ci was created
	int ran_out;      // the source manager had to invent an end of image
	int jcode;        // result code after a longjmp to jump
	int plain;        // use libjpeg's entropy decoder, not huffman.c, for this image
	int always_plain; // and for all of them
	int64_t retries;  // images that huffman.c gave up on

	int64_t max_pixels;
	int64_t max_memory; // of libjpeg, 0 for no bound
	char message[SK_MESSAGE];

	sk_buf band;           // decoded rows on their way to the sink
	sk_buf taps_x, taps_y; // taps of a resize
	sk_buf table;          // horizontal taps in the order of the kernel
	sk_buf ring;           // horizontally resized rows
	sk_buf row;            // one finished row of pixels
	sk_buf tail;           // padded copies of the last rows of a raw image
	sk_buf lookup;         // tables of the entropy decoder

	// Belongs to dct_box.c: made on first use, freed by dct_free at the end.
	void *dct;
	void (*dct_free)(void *);
};

// Writes the message and returns code, so that callers can return sk_fail(...).
int sk_fail(sk_dec *d, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
int sk_check_size(sk_dec *d, int64_t w, int64_t h);
int sk_check_box(sk_dec *d, int w, int h, int x, int y, int bw, int bh);

// ---- jpeg.c

int sk_jpeg_init(sk_dec *d);
int sk_jpeg_decode_box(sk_dec *d, const uint8_t *src, size_t n, int x, int y, int w, int h, sk_sink *sink);
// Aborts the image after a longjmp to d->jump, and returns its result code.
int sk_jpeg_failed(sk_dec *d);

// ---- dct_box.c

// The dct codec; same contract as sk_jpeg_decode_box.
int sk_dct_decode_box(sk_dec *d, const uint8_t *src, size_t n, int x, int y, int w, int h, sk_sink *sink);

// The jump target of a call if a page that it reads is missing (guard.c):
//
//	if (sigsetjmp(g.back, 0) == 0) { sk_guard_on(&g); ... } else { failed }
//	sk_guard_off();
typedef struct {
	sigjmp_buf back;
} sk_guard;
void sk_guard_on(sk_guard *g);
void sk_guard_off(void);

#endif
