// libopenjp2 by dlopen: JPEG 2000 of one component. Its functions, and the heads of the
// structures that are looked at, are the same in all versions 2.
#include "imagelib.h"
#include "load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODEC_J2K = 0, CODEC_JP2 = 2, PARAMETERS = 32 << 10, STREAM_CHUNK = 64 << 10 };

typedef struct {
	uint32_t dx, dy, w, h, x0, y0, prec, bpp, sgnd, resno_decoded, factor;
	int32_t *data;
	uint16_t alpha;
} component;

typedef struct {
	uint32_t x0, y0, x1, y1, numcomps;
	int color_space;
	component *comps;
} image_head;

static struct {
	const char *(*version)(void);
	void *(*create)(int);
	void (*destroy)(void *);
	void (*defaults)(void *);
	int (*setup)(void *, void *);
	void *(*stream)(size_t, int);
	void (*stream_destroy)(void *);
	void (*set_read)(void *, size_t (*)(void *, size_t, void *));
	void (*set_skip)(void *, int64_t (*)(int64_t, void *));
	void (*set_seek)(void *, int (*)(int64_t, void *));
	void (*set_user)(void *, void *, void (*)(void *));
	void (*set_length)(void *, uint64_t);
	int (*read_header)(void *, void *, image_head **);
	int (*decode)(void *, void *, image_head *);
	void (*image_destroy)(image_head *);
	int (*on_error)(void *, void (*)(const char *, void *), void *);
} j2k;

int si_load_openjp2(const char *path, char *text, size_t size)
{
	const si_function functions[] = {
		{"opj_version", &j2k.version},
		{"opj_create_decompress", &j2k.create},
		{"opj_destroy_codec", &j2k.destroy},
		{"opj_set_default_decoder_parameters", &j2k.defaults},
		{"opj_setup_decoder", &j2k.setup},
		{"opj_stream_create", &j2k.stream},
		{"opj_stream_destroy", &j2k.stream_destroy},
		{"opj_stream_set_read_function", &j2k.set_read},
		{"opj_stream_set_skip_function", &j2k.set_skip},
		{"opj_stream_set_seek_function", &j2k.set_seek},
		{"opj_stream_set_user_data", &j2k.set_user},
		{"opj_stream_set_user_data_length", &j2k.set_length},
		{"opj_read_header", &j2k.read_header},
		{"opj_decode", &j2k.decode},
		{"opj_image_destroy", &j2k.image_destroy},
		{"opj_set_error_handler", &j2k.on_error},
	};
	if (!si_open(path, functions, sizeof functions / sizeof *functions, text, size))
		return SI_UNSUPPORTED;
	snprintf(text, size, "%s", j2k.version());
	return SI_OK;
}

// The data, and how far it was read.
typedef struct {
	const uint8_t *data;
	size_t size, at;
} source;

static size_t read_some(void *to, size_t n, void *user)
{
	source *s = user;
	if (s->at >= s->size)
		return (size_t)-1;
	if (n > s->size - s->at)
		n = s->size - s->at;
	memcpy(to, s->data + s->at, n);
	s->at += n;
	return n;
}

static int64_t skip_some(int64_t n, void *user)
{
	source *s = user;
	if (n < 0)
		return -1;
	if ((uint64_t)n > s->size - s->at)
		n = (int64_t)(s->size - s->at);
	s->at += (size_t)n;
	return n;
}

static int seek_to(int64_t at, void *user)
{
	source *s = user;
	if (at < 0 || (uint64_t)at > s->size)
		return 0;
	s->at = (size_t)at;
	return 1;
}

// The message of the library. Only its first line is kept.
typedef struct {
	char *err;
	size_t size;
} said;

static void keep(const char *text, void *user)
{
	said *s = user;
	if (*s->err)
		return;
	snprintf(s->err, s->size, "libopenjp2 says: %s", text);
	s->err[strcspn(s->err, "\r\n")] = 0;
}

static int fail(said *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int fail(said *s, const char *format, ...)
{
	if (!*s->err) {
		va_list args;
		va_start(args, format);
		vsnprintf(s->err, s->size, format, args);
		va_end(args);
	}
	return SI_DAMAGED;
}

// Puts the rows that are wanted of the samples where they belong.
static int gray(const image_head *image, const si_shape *want, uint8_t *pix, said *s)
{
	const component *c = image->comps;
	if (!c->data || c->w != want->width || c->h < want->height)
		return fail(s, "its samples are not decoded");
	const size_t n = (size_t)want->width * want->height;
	for (size_t i = 0; i < n; i++) {
		const uint32_t v = (uint32_t)c->data[i];
		pix[i * (size_t)want->bytes] = (uint8_t)v;
		if (want->bytes == 2)
			pix[2 * i + 1] = (uint8_t)(v >> 8);
	}
	return SI_OK;
}

static int decode(void *codec, void *stream, image_head **image, const si_shape *want, uint8_t *pix, said *s)
{
	union {
		char bytes[PARAMETERS];
		uint64_t align;
	} *parameters = calloc(1, sizeof *parameters); // whose size differs between versions, and is less
	if (!parameters)
		return SI_MEMORY;
	j2k.defaults(parameters);
	const int ok = j2k.setup(codec, parameters);
	free(parameters);
	if (!ok || !j2k.read_header(stream, codec, image) || !*image)
		return fail(s, "its header makes no sense");
	const image_head *head = *image;
	if (head->numcomps != 1)
		return fail(s, "it has %u components, and one is read", head->numcomps);
	const component *c = head->comps;
	if (c->w != want->width || c->h < want->height)
		return fail(s, "it is JPEG 2000 of %u x %u, and a frame has %u x %u voxels or more", c->w, c->h, want->width,
		            want->height);
	if (c->prec > 8 * (uint32_t)want->bytes)
		return fail(s, "its samples have %u bits, and not %d bytes", c->prec, want->bytes);
	if (!j2k.decode(codec, stream, *image))
		return fail(s, "its data makes no sense");
	return gray(*image, want, pix, s);
}

int si_j2k(const uint8_t *data, size_t size, const si_shape *want, uint8_t *pix, char *err, size_t err_size)
{
	source from = {data, size, 0};
	said s = {err, err_size};
	*err = 0;
	// A raw stream begins with FF 4F, a file with its first box.
	void *codec = j2k.create(size > 2 && data[0] == 0xFF && data[1] == 0x4F ? CODEC_J2K : CODEC_JP2);
	void *stream = j2k.stream(STREAM_CHUNK, 1);
	image_head *image = NULL;
	int rc = SI_MEMORY;
	if (codec && stream) {
		j2k.on_error(codec, keep, &s);
		j2k.set_user(stream, &from, NULL);
		j2k.set_length(stream, size);
		j2k.set_read(stream, read_some);
		j2k.set_skip(stream, skip_some);
		j2k.set_seek(stream, seek_to);
		rc = decode(codec, stream, &image, want, pix, &s);
	}
	if (image)
		j2k.image_destroy(image);
	if (stream)
		j2k.stream_destroy(stream);
	if (codec)
		j2k.destroy(codec);
	return rc;
}
