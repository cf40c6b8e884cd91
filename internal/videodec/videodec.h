// Video in C: libavcodec, loaded at run time, and the pixels of its frames.
#ifndef STOKER_VIDEODEC_H
#define STOKER_VIDEODEC_H

#include <stddef.h>
#include <stdint.h>

// av.c: libavcodec.

enum { SV_OK = 0, SV_AGAIN = 1, SV_END = 2, SV_ERROR = 3 };

// A decoder of one stream.
typedef struct sv_decoder sv_decoder;

// The output of a decoder. planes are valid until the next call for the same decoder.
typedef struct {
	const uint8_t *planes[4];
	int stride[4];
	int width, height;
	int64_t pts;
	int matrix, range;
	char format[24]; // libavutil's name of the pixel format
} sv_frame;

// Loads libavcodec from the file at path: SV_OK and its version in text, or why it cannot be used.
int sv_load(const char *path, char *text, size_t size);
// Whether there is a decoder of that name.
int sv_has(const char *name);

// tag, bits, width and height are the container's values, 0 if a decoder needs none of them. With strict, damaged
// data is an error and is not concealed.
sv_decoder *sv_open(const char *name, int tag, int bits, int width, int height, const uint8_t *config,
                    size_t config_size, int64_t max_pixels, int strict, char *err, size_t size);
// Sends a packet to a decoder, or its end (data NULL). With skip, a frame need not be decoded if no other depends on
// it.
int sv_send(sv_decoder *d, const uint8_t *data, size_t size, int64_t pts, int skip, char *err, size_t err_size);
int sv_receive(sv_decoder *d, sv_frame *out, char *err, size_t err_size);
// Makes a decoder ready for another key frame.
void sv_flush(sv_decoder *d);
void sv_close(sv_decoder *d);

// avformat.c: libavformat.

// A file whose packets are read one after the other, from memory or through svRead.
typedef struct sv_demuxer sv_demuxer;

// The properties of a stream in a file. config is valid until the demuxer is closed.
typedef struct {
	char codec[32];
	int tag, bits, width, height;
	const uint8_t *config;
	size_t config_size;
	int num, den; // times count in num/den seconds
	int turned;   // there is a matrix for the rotation of frames
	int32_t matrix[9];
} sv_stream;

// A packet, valid until the next one. pts and dts are INT64_MIN if unknown.
typedef struct {
	const uint8_t *data;
	int size, key;
	int64_t pts, dts, pos;
} sv_packet;

// Decoded sound, valid until the next one.
typedef struct {
	int rate, channels, samples, planar;
	char format[16];
} sv_samples;

// Loads libavformat. Its version must match that of libavcodec.
int sv_load_format(const char *path, char *err, size_t size);
// Opens a file and finds its best stream of a kind: 0 is video, 1 sound.
sv_demuxer *sv_demux(const uint8_t *data, uintptr_t handle, int64_t size, int media, sv_stream *out, char *err,
                     size_t err_size);
int sv_demux_next(sv_demuxer *d, sv_packet *out, char *err, size_t err_size);
void sv_demux_close(sv_demuxer *d);
// Makes a decoder of the sound. Then sv_sound_next decodes the next samples, and sv_sound_copy copies some of them.
int sv_sound_begin(sv_demuxer *d, char *err, size_t size);
int sv_sound_next(sv_demuxer *d, sv_samples *out, char *err, size_t size);
int sv_sound_copy(sv_demuxer *d, const sv_samples *s, int64_t skip, int64_t n, float *dst, size_t stride);

// Reads n bytes of a file, in Go. 0 if that worked.
int svRead(uintptr_t handle, int64_t at, uint8_t *to, int n);

// rgb.c: pixels.

// The layout of the pixels of a frame.
typedef struct {
	const uint8_t *planes[4];
	int stride[4];
	int cw, ch;       // colours: one for 1 << cw by 1 << ch pixels
	int bytes, shift; // of a value; how far it is shifted down to 8 bits
	int step;         // values from one colour to the next: 2 if both kinds share a plane
	int gray;         // there are no colours
	int rgb;          // planes are green, blue and red
} sv_planes;

// Factors and offsets of the conversion, as libswscale has them.
typedef struct {
	int16_t y, y_offset, vr, ug, vg, ub;
} sv_colours;

// Converts a box of a frame to RGB of 8 bits. The first pixel is written to dst, the next of its row px bytes later,
// the next of its column stride bytes later.
void sv_rgb(const sv_planes *p, const sv_colours *c, int x, int y, int w, int h, uint8_t *dst, ptrdiff_t px,
            ptrdiff_t stride);

#endif
