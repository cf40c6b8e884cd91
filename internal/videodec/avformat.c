// libavformat by dlopen, for containers that package video does not read, and sound that package audio does not. As
// in av.c, the code uses only the fields of structures whose offsets sv_load_format checks.
#include "videodec.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "av.h"

enum { SEEK_SIZE = 0x10000, IO_BUFFER = 64 << 10, KEY = 1, CORRUPT = 2, DISPLAY_MATRIX = 5 };

// The heads of the structures.
typedef struct {
	const void *class, *input, *output;
	void *private, *pb;
	int flags;
	unsigned count;
	uint8_t **streams;
} format_head;

typedef struct {
	const void *class;
	uint8_t *buffer;
} io_head;

typedef struct {
	uint8_t *data;
	size_t size;
	int type;
} side_head;

static struct {
	void *lib;
	int parameters, time_base; // offsets in a stream
	unsigned (*version)(void);
	format_head *(*context)(void);
	int (*open)(format_head **, const char *, const void *, void **);
	int (*info)(format_head *, void **);
	int (*best)(format_head *, int, int, int, const codec_head **, int);
	int (*read)(format_head *, packet_head *);
	void (*close)(format_head **);
	uint8_t *(*stream)(format_head *, const codec_head *);
	void (*free_context)(format_head *);
	io_head *(*io)(uint8_t *, int, int, void *, int (*)(void *, uint8_t *, int), void *,
	               int64_t (*)(void *, int64_t, int));
	void (*free_io)(io_head **);
	uint8_t *(*side)(const void *, int, size_t *);               // of a stream, until FFmpeg 6
	const side_head *(*coded_side)(const side_head *, int, int); // of parameters, from FFmpeg 7 on
} fmt;

// The offsets of the fields after the head of parameters.
static struct {
	int format, bits, profile, width;
} place;

static int get(const void *at, int offset)
{
	int v;
	memcpy(&v, (const uint8_t *)at + offset, sizeof v);
	return v;
}

static void put(void *at, int offset, int v) { memcpy((uint8_t *)at + offset, &v, sizeof v); }

static void *pointer(const void *at, int offset)
{
	void *p;
	memcpy(&p, (const uint8_t *)at + offset, sizeof p);
	return p;
}

void sv_places(int version)
{
	int more = version > 60 ? 16 : 0; // side data comes before
	place.format = 28 + more;
	place.bits = 40 + more;
	place.profile = 48 + more;
	place.width = 56 + more;
}

int sv_places_fit(const parameters_head *p)
{
	return p->media == -1 && get(p, place.format) == -1 && get(p, place.profile) == -99 &&
	       get(p, place.profile + 4) == -99 && !get(p, place.width);
}

void sv_parameters(parameters_head *p, int tag, int bits, int width, int height)
{
	p->tag = (uint32_t)tag;
	put(p, place.bits, bits);
	put(p, place.width, width);
	put(p, place.width + 4, height);
}

int sv_load_format(const char *path, char *err, size_t size)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(err, size, "it cannot be loaded");
		return SV_ERROR;
	}
	const sv_function functions[] = {
		{"avformat_version", &fmt.version},           {"avformat_alloc_context", &fmt.context},
		{"avformat_open_input", &fmt.open},           {"avformat_find_stream_info", &fmt.info},
		{"av_find_best_stream", &fmt.best},           {"av_read_frame", &fmt.read},
		{"avformat_close_input", &fmt.close},         {"avformat_new_stream", &fmt.stream},
		{"avformat_free_context", &fmt.free_context}, {"avio_alloc_context", &fmt.io},
		{"avio_context_free", &fmt.free_io},
	};
	if (!sv_find_functions(lib, functions, sizeof functions / sizeof *functions, err, size)) {
		dlclose(lib);
		return SV_ERROR;
	}
	int version = (int)(fmt.version() >> 16);
	fmt.parameters = version > 59 ? 16 : 208;
	fmt.time_base = version > 59 ? 32 : 16;
	void *f = dlsym(lib, "av_stream_get_side_data");
	memcpy(&fmt.side, &f, sizeof f);
	f = dlsym(lib, "av_packet_side_data_get");
	memcpy(&fmt.coded_side, &f, sizeof f);
	int fits = version == (int)(av.version() >> 16);
	if (fits) {
		format_head *c = fmt.context();
		fits = c && !c->input && !c->pb && !c->count;
		uint8_t *s = fits ? fmt.stream(c, NULL) : NULL;
		fits = s && c->count == 1 && c->streams && c->streams[0] == s;
		parameters_head *p = fits ? pointer(s, fmt.parameters) : NULL;
		fits = p && sv_places_fit(p);
		if (c)
			fmt.free_context(c);
	}
	if (!fits) {
		snprintf(err, size, "its structures are not those of the libavcodec that is loaded");
		dlclose(lib);
		return SV_ERROR;
	}
	snprintf(err, size, "%d", version);
	fmt.lib = lib;
	return SV_OK;
}

struct sv_demuxer {
	const uint8_t *data; // NULL: read through handle
	uintptr_t handle;
	int64_t size, at;
	format_head *context;
	io_head *io;
	packet_head *packet;
	int stream;
	const codec_head *codec;
	void *decoder; // of sound
	frame_head *frame;
	int ended;
};

static int io_read(void *opaque, uint8_t *to, int n)
{
	sv_demuxer *d = opaque;
	if (d->at >= d->size)
		return AVERROR_EOF;
	if (n > d->size - d->at)
		n = (int)(d->size - d->at);
	if (d->data)
		memcpy(to, d->data + d->at, (size_t)n);
	else if (svRead(d->handle, d->at, to, n))
		return AVERROR_IO;
	d->at += n;
	return n;
}

static int64_t io_seek(void *opaque, int64_t to, int whence)
{
	sv_demuxer *d = opaque;
	switch (whence & 0xffff) {
	case SEEK_SET: break;
	case SEEK_CUR: to += d->at; break;
	case SEEK_END: to += d->size; break;
	}
	if (whence & SEEK_SIZE)
		return d->size;
	if (to < 0)
		return AVERROR_IO;
	return d->at = to;
}

// Copies the codec's name of a stream, and its configuration for the decoder, to out.
static void describe(sv_demuxer *d, sv_stream *out)
{
	const uint8_t *s = d->context->streams[d->stream];
	const parameters_head *p = pointer(s, fmt.parameters);
	snprintf(out->codec, sizeof out->codec, "%s", d->codec->name);
	out->tag = (int)p->tag;
	out->config = p->extradata;
	out->config_size = p->extradata_size > 0 ? (size_t)p->extradata_size : 0;
	out->bits = get(p, place.bits);
	out->width = get(p, place.width);
	out->height = get(p, place.width + 4);
	out->num = get(s, fmt.time_base);
	out->den = get(s, fmt.time_base + 4);
	size_t size = 0;
	const uint8_t *matrix = NULL;
	if (av.version() >> 16 < 61 && fmt.side) {
		matrix = fmt.side(s, DISPLAY_MATRIX, &size);
	} else if (fmt.coded_side) {
		const side_head *side = fmt.coded_side(pointer(p, 32), get(p, 40), DISPLAY_MATRIX);
		if (side) {
			matrix = side->data;
			size = side->size;
		}
	}
	out->turned = matrix && size >= 36;
	if (out->turned)
		memcpy(out->matrix, matrix, sizeof out->matrix);
}

sv_demuxer *sv_demux(const uint8_t *data, uintptr_t handle, int64_t size, int media, sv_stream *out, char *err,
                     size_t err_size)
{
	sv_demuxer *d = calloc(1, sizeof *d);
	uint8_t *buffer = d ? av.alloc(IO_BUFFER) : NULL;
	if (!buffer) {
		snprintf(err, err_size, "there is no memory for it");
		free(d);
		return NULL;
	}
	d->data = data;
	d->handle = handle;
	d->size = size;
	d->packet = av.packet();
	d->context = fmt.context();
	d->io = fmt.io(buffer, IO_BUFFER, 0, d, io_read, NULL, io_seek);
	int code = -12; // no memory
	if (d->context && d->io && d->packet) {
		d->context->pb = d->io;
		// A file may name others, also of the network: none is opened.
		av.set_text(d->context, "protocol_whitelist", "none", 0);
		code = fmt.open(&d->context, "", NULL, NULL); // frees the context on failure
		if (code >= 0)
			code = fmt.info(d->context, NULL);
		if (code >= 0)
			code = fmt.best(d->context, media, -1, -1, &d->codec, 0);
	}
	if (code < 0) {
		sv_failed(code, err, err_size);
		sv_demux_close(d);
		return NULL;
	}
	d->stream = code;
	describe(d, out);
	return d;
}

int sv_demux_next(sv_demuxer *d, sv_packet *out, char *err, size_t err_size)
{
	packet_head *p = d->packet;
	for (;;) {
		av.unref_packet(p);
		int code = fmt.read(d->context, p);
		if (code == AVERROR_EOF)
			return SV_END;
		if (code < 0)
			return sv_failed(code, err, err_size);
		if (p->stream == d->stream)
			break;
	}
	out->data = p->data;
	out->size = p->size;
	out->pts = p->pts;
	out->dts = p->dts;
	out->key = p->flags & KEY;
	memcpy(&out->pos, (const uint8_t *)p + 72, sizeof out->pos);
	return SV_OK;
}

int sv_sound_begin(sv_demuxer *d, char *err, size_t size)
{
	d->decoder = av.context(d->codec);
	d->frame = av.frame();
	int code = -12;
	if (d->decoder && d->frame)
		code = av.to_context(d->decoder, pointer(d->context->streams[d->stream], fmt.parameters));
	if (code >= 0) {
		av.set(d->decoder, "threads", 1, 0);
		code = av.open(d->decoder, d->codec, NULL);
	}
	return code < 0 ? sv_failed(code, err, size) : SV_OK;
}

int sv_sound_next(sv_demuxer *d, sv_samples *out, char *err, size_t size)
{
	for (;;) {
		int code = av.receive(d->decoder, d->frame);
		if (code >= 0)
			break;
		if (code == AVERROR_EOF)
			return SV_END;
		if (code != AVERROR_EAGAIN)
			return sv_failed(code, err, size);
		sv_packet packet;
		int rc = d->ended ? SV_END : sv_demux_next(d, &packet, err, size);
		if (rc == SV_ERROR)
			return rc;
		d->ended = rc == SV_END;
		code = av.send(d->decoder, d->ended ? NULL : d->packet);
		if (code < 0 && code != AVERROR_EAGAIN && code != AVERROR_EOF)
			return sv_failed(code, err, size);
	}
	int64_t v = 0;
	out->rate = av.get(d->decoder, "ar", 0, &v) >= 0 ? (int)v : 0;
	sv_layout layout = {0};
	if (av.layout && av.layout(d->decoder, "ch_layout", 0, &layout) >= 0)
		out->channels = layout.channels;
	else
		out->channels = av.get(d->decoder, "ac", 0, &v) >= 0 ? (int)v : 0;
	out->samples = d->frame->samples;
	const char *name = av.sample_format(d->frame->format);
	snprintf(out->format, sizeof out->format, "%s", name ? name : "");
	out->planar = strlen(out->format) > 0 && out->format[strlen(out->format) - 1] == 'p';
	return SV_OK;
}

#define COPY(type, value)                                                                                     \
	for (int c = 0; c < channels; c++) {                                                                      \
		const type *from = (const type *)f->extended[planar ? c : 0] + (planar ? skip : skip * channels + c); \
		float *to = dst + (size_t)c * stride;                                                                 \
		for (int64_t i = 0; i < n; i++) {                                                                     \
			type v = from[planar ? i : i * channels];                                                         \
			to[i] = value;                                                                                    \
		}                                                                                                     \
	}

int sv_sound_copy(sv_demuxer *d, const sv_samples *s, int64_t skip, int64_t n, float *dst, size_t stride)
{
	const frame_head *f = d->frame;
	int channels = s->channels, planar = s->planar;
	if (!strncmp(s->format, "u8", 2)) {
		COPY(uint8_t, (float)(v - 128) * (1.0f / 128))
	} else if (!strncmp(s->format, "s16", 3)) {
		COPY(int16_t, (float)v * (1.0f / 32768))
	} else if (!strncmp(s->format, "s32", 3)) {
		COPY(int32_t, (float)v * (1.0f / 2147483648.0f))
	} else if (!strncmp(s->format, "flt", 3)) {
		COPY(float, v)
	} else if (!strncmp(s->format, "dbl", 3)) {
		COPY(double, (float)v)
	} else {
		return SV_ERROR;
	}
	return SV_OK;
}

void sv_demux_close(sv_demuxer *d)
{
	if (!d)
		return;
	if (d->decoder)
		av.free_context(&d->decoder);
	av.free_frame(&d->frame);
	av.free_packet(&d->packet);
	if (d->context)
		fmt.close(&d->context);
	if (d->io) {
		av.free(d->io->buffer);
		fmt.free_io(&d->io);
	}
	free(d);
}
