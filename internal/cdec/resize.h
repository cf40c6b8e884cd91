// Resize and store: declarations that resize.c, taps.c and the kernels share.
//
// Rows of the box arrive from the top. Each is immediately resized horizontally, while it is in the first-level
// cache, into a row of 16-bit values. A ring keeps as many of those as an output row needs. When the last input row
// of an output row has arrived, the vertical pass makes the finished u8 RGB row, and the store writes it into the
// batch. A decoded image is therefore never in memory as a whole, and memory does not depend on its height.
//
// All kernel sets do the same integer arithmetic and give the same bytes.
#ifndef STOKER_RESIZE_H
#define STOKER_RESIZE_H

#include "sk.h"

// Taps of one axis for the outputs of the window.
typedef struct {
	int n;          // outputs
	int lo, hi;     // inputs [lo, hi) are read; start counts from lo
	int q;          // the taps of an output sum to 1 << q
	int max_count;  // largest count
	int kstride;    // elements of k per output: even, zero after count
	int32_t *start; // first input of output i
	int32_t *count; // inputs of output i
	int16_t *k;
	float *f; // the same as floats that sum to 1: of sk_taps_float, which sets no k
} sk_axis;

// Computes the taps of the outputs [win, win+n) of a resize from in to out pixels, the last output first if reverse.
// Taps have at most max_q fraction bits: more if the filter is wide and each tap small.
int sk_taps(sk_dec *d, sk_buf *b, sk_axis *a, int filter, int in, int out, int win, int n, int reverse, int max_q);

// The same in floats, for pixels of other types than u8.
int sk_taps_float(sk_dec *d, sk_buf *b, sk_axis *a, int filter, int in, int out, int win, int n, int reverse);

// Values between the passes have this many fraction bits, fewer if the vertical filter is so wide that its taps need
// the bits.
#define SK_MID_BITS 6
// Fraction bits of both together: 255 * 1.25 (bicubic overshoots) * 2^22 fits in 31 bits.
#define SK_SUM_BITS 22

typedef struct sk_kernels sk_kernels;

typedef struct {
	sk_sink sink;
	sk_dec *d;
	const sk_kernels *k;
	const sk_geom *g;
	const sk_store *st;
	uint8_t *dst;
	int w, h;         // of the output
	int x, y, bw, bh; // the pixels to decode
	int mode;         // the task of rows(), see resize.c
	int direct;       // finished rows are the batch's own bytes
	int in_row;       // rows that came in
	int out_row;      // rows that are finished, before vertical flip
	sk_axis ax, ay;
	int mid_bits;
	int table_px; // px for which table is made, 0: not made yet
	void *table;  // horizontal taps in the order of the kernel
	int16_t *ring;
	int ring_mask;        // rows in the ring - 1
	ptrdiff_t mid_stride; // elements from row to row in the ring
	int32_t *sums;        // tall filters: SK_OPEN rows of sums
	uint8_t *row;         // one row of u8 RGB with extra space after it
} sk_resizer;

// Rows of 16-bit values are this many elements longer than they are wide.
#define SK_MID_PAD 64
// Rows that are resized horizontally in one call.
#define SK_ROWS 4
// More vertical taps than this are summed as rows come in, not kept in a ring.
#define SK_RING_TAPS 64
// The maximum number of output rows to which one input row contributes, in tall filters.
#define SK_OPEN 8

// Size of an element of the types of pixels and stores.
int sk_elem_size(int dtype);
// Whether geometry, store and output of a job go together.
int sk_check_job(sk_dec *d, const sk_job *job);
// Prepares the resizer for a checked job. Afterwards x, y, bw, bh are the pixels to decode.
int sk_resizer_init(sk_resizer *r, sk_dec *d, const sk_job *job);
// After the last row: whether all output rows were made.
int sk_resizer_done(sk_resizer *r);

struct sk_kernels {
	// Brings the taps of r->ax into the kernel's order for rows of r->sink.px
	// bytes per pixel. Returns bytes needed when table is NULL.
	size_t (*h_table)(const sk_resizer *r, void *table);
	// n rows, at most SK_ROWS: src (pixel lo of the box) to w RGB values of
	// mid_bits each, cut off at black and white.
	void (*h_rows)(const sk_resizer *r, const uint8_t *src, ptrdiff_t stride, int n, int16_t *const *mid);
	// One finished row of w*3 bytes out of n rows and their taps. dst may be
	// written only up to w*3.
	void (*v_row)(const sk_resizer *r, const int16_t *const *rows, const int16_t *k, int n, uint8_t *dst);
	// One row of px bytes per pixel to RGB, mirrored if flip. src has SK_PAD readable bytes after its end. dst may be
	// written only up to w*3.
	void (*pack_row)(const uint8_t *src, int px, int w, int flip, uint8_t *dst);
	// One row of RGB to the batch: row y of h.
	void (*store_row)(const sk_store *st, const uint8_t *rgb, int w, int h, int y, uint8_t *dst);
};

extern const sk_kernels sk_kernels_scalar;
#if defined(__x86_64__)
extern const sk_kernels sk_kernels_avx2, sk_kernels_avx512;
#endif

// The scalar kernels, for the parts that other sets leave to them.
void sk_pack_row_scalar(const uint8_t *src, int px, int w, int flip, uint8_t *dst);
void sk_store_range_scalar(const sk_store *st, const uint8_t *rgb, int w, int h, int y, int from, int to, uint8_t *dst);
// Returns whether u8 pixels are stored unchanged.
int sk_store_is_plain(const sk_store *st);
void sk_store_row_scalar(const sk_store *st, const uint8_t *rgb, int w, int h, int y, uint8_t *dst);

#endif
