// JPEG XL, AVIF and JPEG 2000 in C: libjxl, libavif and libopenjp2, loaded when the program runs.
#ifndef STOKER_IMAGELIB_H
#define STOKER_IMAGELIB_H

#include <stddef.h>
#include <stdint.h>

enum { SI_OK = 0, SI_DAMAGED = 1, SI_UNSUPPORTED = 2, SI_MEMORY = 3 };

// The requested form of an image: exactly this size, with 1, 3 or 4 channels of 1 or 2 bytes, little-endian, rows
// without padding.
typedef struct {
	uint32_t width, height;
	int channels, bytes;
} si_shape;

// Load a library from the file at path: SI_OK and its version in text, or why it cannot be used.
int si_load_jxl(const char *path, char *text, size_t size);
int si_load_avif(const char *path, char *text, size_t size);
int si_load_openjp2(const char *path, char *text, size_t size);

// Decode an image to pix, which must be large enough. The decoders keep no memory after the call.
int si_jxl(const uint8_t *data, size_t size, const si_shape *want, uint8_t *pix, char *err, size_t err_size);
// AVIF becomes RGBA of one or two bytes.
int si_avif(const uint8_t *data, size_t size, const si_shape *want, uint8_t *pix, char *err, size_t err_size);
// JPEG 2000 of one component: the first rows, without conversion, in one or two bytes.
int si_j2k(const uint8_t *data, size_t size, const si_shape *want, uint8_t *pix, char *err, size_t err_size);

#endif
