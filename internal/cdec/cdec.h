// The C interface of package cdec for Go. See sk.h for the declarations that the C files share.
#ifndef STOKER_CDEC_H
#define STOKER_CDEC_H

#include <stddef.h>
#include <stdint.h>

// Result codes of a job. The Go side maps them to its error values.
enum {
	SK_OK = 0,
	SK_CORRUPT = 1,      // the bytes are damaged or truncated
	SK_UNSUPPORTED = 2,  // valid, but of a kind that is not decoded here
	SK_BAD_ARGUMENT = 3, // the job contradicts itself or the image
	SK_NO_MEMORY = 4,
	SK_LIMIT = 5,       // larger than the limits of this package
	SK_UNREADABLE = 6,  // a page of a mapped file could not be read
	SK_OVER_MEMORY = 7, // it takes more memory than sk_set_max_memory allows
};

enum {
	SK_FORMAT_JPEG = 1,
	SK_FORMAT_DCT = 2,
	SK_FORMAT_RGB = 3,
	SK_FORMAT_GRAY = 4,
	SK_FORMAT_RGBX = 5,
	SK_FORMAT_PIXELS = 6
};
enum { SK_U8 = 1, SK_F16 = 2, SK_BF16 = 3, SK_F32 = 4, SK_U16 = 7 };
enum { SK_NHWC = 1, SK_NCHW = 2 };
enum { SK_BILINEAR = 1, SK_BICUBIC = 2, SK_NEAREST = 3 };

// Largest side of an image: libjpeg's own limit.
#define SK_MAX_SIDE 65500
// Largest image in pixels: Pillow's limit for "decompression bombs".
#define SK_MAX_PIXELS 178956970
#define SK_MESSAGE 200

// item.Geometry: cut box, resize to resize_w x resize_h, keep window, flip.
typedef struct {
	int32_t box_x, box_y, box_w, box_h;
	int32_t resize_w, resize_h;
	int32_t win_x, win_y, win_w, win_h;
	int32_t flip_h, flip_v;
	int32_t filter;
} sk_geom;

// item.Store: value = pixel * scale[c] + bias[c] as dtype.
typedef struct {
	int32_t dtype, layout, channels;
	float scale[4], bias[4];
} sk_store;

typedef struct {
	// Addresses, not pointers: Go keeps jobs in C memory, and overwriting a
	// pointer of an earlier run there would show the collector an address that
	// has long been freed.
	uintptr_t src, dst;
	size_t src_len, dst_len;
	int32_t format;
	int32_t elem, channels; // SK_FORMAT_PIXELS: type of the pixels
	int32_t width, height;  // raw formats: size of the image
	int64_t stride;         // raw formats: bytes from row to row
	sk_geom geom;
	sk_store store;
	int32_t code;             // out: SK_OK or why not
	char message[SK_MESSAGE]; // out, when code is not SK_OK
} sk_job;

typedef struct sk_dec sk_dec;

sk_dec *sk_dec_new(void);
void sk_dec_free(sk_dec *d);
// Refuses larger images than n pixels from now on; SK_MAX_PIXELS at first.
void sk_set_max_pixels(sk_dec *d, int64_t n);

// Limits the bytes that libjpeg may take for an image. 0 means no limit.
void sk_set_max_memory(sk_dec *d, int64_t n);

// Makes free() return blocks of more than a few MiB to the system immediately, for the whole process. Returns whether
// the C library supports this.
int sk_return_memory(void);

// For tests and benchmarks: whether libjpeg's own entropy decoder is used, and the number of images that still needed
// it.
void sk_set_plain(sk_dec *d, int plain);
int64_t sk_retries(const sk_dec *d);

// Runs the jobs in order. Each job reports its own result, and a failed one does not affect
// the others. A failed read of a mapped file ends the call and not the process.
int sk_guard_install(void); // 0

void sk_run(sk_dec *d, sk_job *jobs, int n);

// Decodes a whole JPEG to u8 RGB rows without gaps. The box decoder is tested against this function. *w and *h are
// set after the header is read, also if dst (of dst_len bytes) is too small.
int sk_jpeg_decode_full(sk_dec *d, const uint8_t *src, size_t n, uint8_t *dst, size_t dst_len, int *w, int *h);
// Decodes a whole JPEG to rows of its stored samples. YCbCr is converted to RGB. *w, *h and *channels are set after
// the header is read.
int sk_jpeg_decode_samples(sk_dec *d, const uint8_t *src, size_t n, uint8_t *dst, size_t dst_len, int *w, int *h,
                           int *channels);
// Why the last call with a result code failed.
const char *sk_message(const sk_dec *d);

// Copies n rows of row_bytes each to dst, one after the other. past_caches is 1 if dst is part of more memory than
// the caches hold. Returns SK_UNREADABLE if a page of a row cannot be read.
int sk_gather(int past_caches, uint8_t *dst, const uintptr_t *src, int n, size_t row_bytes);
// Copies n bytes past the caches and continues *crc, the state of a CRC-32C, with them. Returns SK_UNREADABLE like
// sk_gather, or SK_BAD_ARGUMENT if the form in use cannot do that.
int sk_copy_crc32c(uint8_t *dst, const uint8_t *src, size_t n, uint32_t *crc);

#endif
