// Common code of av.c and avformat.c for FFmpeg's libraries.
#ifndef STOKER_AV_H
#define STOKER_AV_H

#include <stddef.h>
#include <stdint.h>

enum { MIN_VERSION = 59, MAX_VERSION = 62 };
#define NO_PTS INT64_MIN
#define AVERROR_EOF (-('E' | 'O' << 8 | 'F' << 16 | ' ' << 24))
#define AVERROR_EAGAIN (-11)
#define AVERROR_IO (-5)

// The heads of the structures.
typedef struct {
	void *buf;
	int64_t pts, dts;
	uint8_t *data;
	int size, stream, flags;
} packet_head;

typedef struct {
	uint8_t *data[8];
	int linesize[8];
	uint8_t **extended;
	int width, height, samples, format;
	// The following fields differ between versions, but pts has the same offset.
	int32_t between[4];
	int64_t pts;
} frame_head;

typedef struct {
	int media, codec;
	uint32_t tag;
	uint8_t *extradata;
	int extradata_size;
} parameters_head;

typedef struct {
	const char *name, *long_name;
	int media, id;
} codec_head;

// A layout of channels.
typedef struct {
	int order, channels;
	uint64_t mask;
	void *opaque;
} sv_layout;

// The functions that av.c has found.
typedef struct {
	void *lib;
	unsigned (*version)(void);
	codec_head *(*find)(const char *name);
	void *(*context)(const codec_head *);
	void (*free_context)(void **);
	parameters_head *(*parameters)(void);
	void (*free_parameters)(parameters_head **);
	int (*to_context)(void *, const parameters_head *);
	int (*open)(void *, const codec_head *, void **);
	int (*send)(void *, const packet_head *);
	int (*receive)(void *, frame_head *);
	void (*flush)(void *);
	packet_head *(*packet)(void);
	void (*free_packet)(packet_head **);
	void (*unref_packet)(packet_head *);
	frame_head *(*frame)(void);
	void (*free_frame)(frame_head **);
	void (*unref)(frame_head *);
	void *(*alloc)(size_t);
	void (*free)(void *);
	int (*set)(void *, const char *, int64_t, int);
	int (*set_text)(void *, const char *, const char *, int);
	int (*get)(void *, const char *, int, int64_t *);
	int (*layout)(void *, const char *, int, sv_layout *); // NULL before FFmpeg 5.1
	const char *(*format)(int);
	const char *(*sample_format)(int);
	int (*reason)(int, char *, size_t);
	void (*log)(int);
	const char *(*release)(void);
} sv_library;

extern sv_library av;

// A function of a library, and the pointer that gets it.
typedef struct {
	const char *name;
	void *to;
} sv_function;

// Finds functions of a library. 0, and why in err, if one is missing.
int sv_find_functions(void *lib, const sv_function *functions, size_t n, char *err, size_t size);
// Puts the text of an error code into err, and returns SV_ERROR.
int sv_failed(int code, char *err, size_t size);

// avformat.c: the offsets of parameters in a version of libavcodec, a check of new parameters at these offsets, and
// setting them.
void sv_places(int version);
int sv_places_fit(const parameters_head *p);
void sv_parameters(parameters_head *p, int tag, int bits, int width, int height);

#endif
