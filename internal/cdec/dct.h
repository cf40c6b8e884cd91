// The dct codec: a JPEG without its entropy code. The quantised coefficients are packed into bits in a way that
// vector instructions can unpack, in tiles from which a crop can choose. docs/reference/pack-format.md ("The dct
// codec") specifies the bytes. The names here are the same.
//
//   dct_parse.c    header and tile table, all checks of them
//   dct_unpack.c   bits of a tile -> coefficients
//   dct_pixels.c   coefficients -> samples -> RGB, bit for bit as libjpeg-turbo
//   dct_pack.h     coefficients -> bits of a tile
//   dct_box.c      the box decoder: which tiles, in which order
//   dct_tiles.c    all tiles of an image
//   dct_encode.c   JPEG -> dct
//   dct_jpeg.c     dct -> JPEG
//
// dct_unpack.c and dct_pixels.c are the portable forms. dct_avx2.c and dct_avx512.c have the forms of both for
// newer processors, and dct_pack_x86.c has those of packing. dct_kernels.c chooses.
#ifndef STOKER_DCT_H
#define STOKER_DCT_H

#include <stddef.h>
#include <stdint.h>

#include "cdec.h"

#define DCT_VERSION 1
#define DCT_HEADER 12   // bytes before the component table
#define DCT_MAX_COMPS 3 // gray or YCbCr
#define DCT_MAX_TABLES 4
#define DCT_MAX_BLOCKS 64 // blocks of all components in one tile
#define DCT_MAX_PLANES 16 // magnitudes are below 2^16
// A group is the set of blocks that share bit planes in a tile: the luma blocks, then the blocks of both chroma
// components.
#define DCT_MAX_GROUPS 2

typedef struct {
	int h, v;       // sampling factors
	int table;      // which quantisation table
	int wblk, hblk; // size in blocks, without the padding of the last MCU
	int dw, dh;     // size in samples (libjpeg's downsampled_width, _height)
	int hr, vr;     // samples are hr x vr pixels in size
} dct_comp;

typedef struct {
	int w, h, ncomp;
	int tile;         // width of a tile in MCUs
	int hmax, vmax;   // the MCU is 8*hmax x 8*vmax pixels
	int mcols, mrows; // size of the image in MCUs
	int tcols;        // tiles in a row
	int ntables;
	dct_comp comp[DCT_MAX_COMPS];
	uint16_t quant[DCT_MAX_TABLES][64]; // natural order
	const uint8_t *row_offset;          // mrows x u32
	const uint8_t *tile_size;           // mrows x tcols x u16
	const uint8_t *data;
	size_t data_len;
} dct_image;

// Reads and checks header and table. Returns NULL, or a description of the problem. After success every field is
// within its limits. The table's entries (offsets and sizes) are not checked here but one by one in dct_row.
const char *dct_parse(dct_image *im, const uint8_t *src, size_t n);
// The same for Go, without pointers.
typedef struct {
	int64_t header; // bytes of header and tile table
	int w, h, ncomp, tile_width, tcols, trows;
	int sampling[DCT_MAX_COMPS][2];
} dct_facts;
const char *dct_read_facts(dct_facts *f, const uint8_t *src, size_t n);
// The bytes of tiles first, first+1, ... of a row: sets *at to the start of the first one. Returns -1 if that is not
// inside the data.
int dct_row(const dct_image *im, int row, int first, size_t *at);
static inline size_t dct_tile_size(const dct_image *im, int row, int col)
{
	const uint8_t *p = im->tile_size + 2 * ((size_t)row * (size_t)im->tcols + (size_t)col);
	return (size_t)p[0] | (size_t)p[1] << 8;
}

// Position k of the zigzag order in a block of rows of 8.
extern const uint8_t dct_natural[64];

// The number of positions after the DC for which a block of end class c has bits.
static inline int dct_end(int c) { return c == 15 ? 63 : 4 * c; }

// ---- a tile

// The blocks of a tile: which component covers bw[c] x bh[c] blocks here.
typedef struct {
	int ncomp;
	int bw[DCT_MAX_COMPS], bh[DCT_MAX_COMPS];
	int first[DCT_MAX_COMPS + 1]; // of a component in the tile's list of blocks
} dct_shape;
void dct_tile_shape(const dct_image *im, int row, int col, dct_shape *s);

#define DCT_MAX_VALUES (DCT_MAX_BLOCKS * 63)
// The number of values whose bits always fit into one load of 8 bytes.
#define DCT_WORD 56
#define DCT_MAX_WORDS (DCT_MAX_VALUES / DCT_WORD)

// Readers of bits may load this many bytes after the end of a tile.
#define DCT_READ_PAD 16

// Coefficients of the blocks of a tile, and space for vector code to write after them.
typedef struct {
	int16_t coef[DCT_MAX_BLOCKS + 8][64]; // natural order
	uint8_t end[DCT_MAX_BLOCKS + 8];      // end class of each block
	int16_t dc[DCT_MAX_BLOCKS];
	// Per block: the map of its nonzero positions, and the number of values of the group before its own.
	uint64_t nonzero[DCT_MAX_BLOCKS];
	uint16_t before[DCT_MAX_BLOCKS];
	// Values of a group in the order of the stream. Portable: magnitudes and
	// the two lists of those that a plane concerns.
	uint16_t mag[DCT_MAX_VALUES];
	uint16_t list[2][DCT_MAX_VALUES + 32];
	// Vector code: the planes as maps of DCT_WORD values per word. reach has a bit for each value with a bit in this
	// plane, bit has these bits. The values follow: 16 bits each in AVX2, low and high bytes separately in AVX-512. A
	// vector may be written and read beyond the last value.
	uint64_t reach[DCT_MAX_PLANES + 1][DCT_MAX_WORDS];
	uint64_t bit[DCT_MAX_PLANES + 1][DCT_MAX_WORDS];
	uint64_t sign[DCT_MAX_WORDS];
	int16_t value[DCT_MAX_VALUES + 64];
	uint8_t lo[DCT_MAX_VALUES + 128];
	uint8_t hi[DCT_MAX_VALUES + 128];
} dct_work;

// Unpacks a tile of n bytes at p, of which DCT_READ_PAD more are readable.
// Returns 0, or -1 when the bits do not fit into the n bytes.
typedef int dct_unpack_fn(dct_work *w, const dct_shape *s, const uint8_t *p, size_t n);
dct_unpack_fn dct_unpack_scalar, dct_unpack_avx2, dct_unpack_avx512;

// ---- pixels

// Inverse transforms of 4 adjacent blocks. Writes 8 rows of 32 samples. end: the largest end class of the four.
// Coefficients after it are zero.
typedef void dct_idct4_fn(const int16_t (*coef)[64], const uint16_t *quant, int end, uint8_t *dst, ptrdiff_t stride);
// n samples in, 2n out; in[-1] and in[n] are read. Writes up to 128 bytes more.
typedef void dct_h2v1_fn(const uint8_t *in, uint8_t *out, int n);
// sums: space for n + 64 numbers, from sums[-32] on.
typedef void dct_h2v2_fn(const uint8_t *near, const uint8_t *far, uint8_t *out, int n, int16_t *sums);
typedef void dct_h1v2_fn(const uint8_t *near, const uint8_t *far, uint8_t *out, int n, int bias);
// n pixels R, G, B, 255. Reads up to 64 bytes more of each row, writes up to 256 more.
typedef void dct_color_fn(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, int n);

typedef struct {
	dct_unpack_fn *unpack;
	dct_idct4_fn *idct4;
	dct_h2v1_fn *h2v1;
	dct_h2v2_fn *h2v2;
	dct_h1v2_fn *h1v2;
	dct_color_fn *color;
} dct_kernels;
extern const dct_kernels dct_kernels_scalar, dct_kernels_avx2, dct_kernels_avx512;
// The kernels in use.
const dct_kernels *dct_kernels_for(void);
// The inverse transform of one block, the definition that the others meet.
void dct_idct_one(const int16_t *coef, const uint16_t *quant, uint8_t *dst, ptrdiff_t stride);

// ---- whole files

// Calls take for every tile, unpacked, in order. Returns NULL or a description of the problem.
typedef void dct_take_fn(void *to, const dct_image *im, int row, int col, const dct_shape *s, const dct_work *w);
const char *dct_each_tile(const dct_image *im, dct_take_fn *take, void *to);

// Why a JPEG cannot become dct (it is not damaged, or not certain to be whole).
enum {
	DCT_OK = 0,
	DCT_NOT_JPEG = 1, // not a JPEG or damaged; message has the reason
	DCT_COLOR = 2,    // CMYK, YCCK, RGB or an unknown colour space
	DCT_ARITHMETIC = 3,
	DCT_PRECISION = 4,  // not 8 bits
	DCT_SAMPLING = 5,   // sampling that libjpeg-turbo does not decode
	DCT_INCOMPLETE = 6, // ends early, misses scans, or has damaged codes
	DCT_TOO_LARGE = 7,
	DCT_LOSSLESS = 8, // lossless or hierarchical process
	DCT_MEMORY = 9,
};

typedef struct {
	uint8_t *p;
	size_t len, cap;
} dct_bytes; // malloc'ed

// The state that the encoder keeps from image to image.
typedef struct dct_encoder dct_encoder;
dct_encoder *dct_encoder_new(void); // NULL when there is no memory
void dct_encoder_free(dct_encoder *e);

// Both return DCT_OK, or the reason for the failure and a message. The caller must free out->p, also after a failure;
// it may come from an earlier call. tile: width of the tiles in MCUs, 0 for the usual one. plain: use only libjpeg's
// entropy decoder, which keeps all coefficients in memory. DCT_ROWS_ONLY: never use it, and refuse images that need
// it.
#define DCT_ROWS_ONLY 2
int dct_from_jpeg(dct_encoder *e, dct_bytes *out, const uint8_t *jpeg, size_t n, int tile, int plain,
                  char message[SK_MESSAGE]);
// The JPEG with the coefficients and tables of src. Each of exif and icc may be
// empty: an APP1 segment's payload ("Exif\0\0" first), an ICC profile.
int dct_to_jpeg(dct_bytes *out, const uint8_t *src, size_t n, const uint8_t *exif, size_t exif_len, const uint8_t *icc,
                size_t icc_len, char message[SK_MESSAGE]);

// Unpacks all tiles and discards the coefficients, to check that every tile can be decoded. Returns NULL or a
// description of the problem. *blocks is the number of blocks.
const char *dct_check(const uint8_t *src, size_t n, int64_t *blocks);

#endif
