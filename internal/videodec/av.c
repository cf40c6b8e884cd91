// libavcodec by dlopen. The code uses only the first fields of FFmpeg's structures, which are the same in all
// versions from 5 to 8 (libavcodec 59 to 62). sv_load also checks them against the loaded library. Everything else
// uses functions and options by name.
#include "videodec.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "av.h"

enum { DISCARD_DEFAULT = 0, DISCARD_NONREF = 8 };
enum { MEDIA_VIDEO = 0, LOG_QUIET = -8 };
enum { DETECT_CRC = 1, DETECT_EXPLODE = 8 };

sv_library av;

struct sv_decoder {
	void *context;
	packet_head *packet;
	frame_head *frame;
	int skipping;
};

int sv_find_functions(void *lib, const sv_function *functions, size_t n, char *err, size_t size)
{
	for (size_t i = 0; i < n; i++) {
		void *f = dlsym(lib, functions[i].name);
		if (!f) {
			snprintf(err, size, "it has no %s", functions[i].name);
			return 0;
		}
		memcpy(functions[i].to, &f, sizeof f);
	}
	return 1;
}

int sv_load(const char *path, char *text, size_t size)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(text, size, "it cannot be loaded");
		return SV_ERROR;
	}
	const sv_function functions[] = {
		{"avcodec_version", &av.version},
		{"avcodec_find_decoder_by_name", &av.find},
		{"avcodec_alloc_context3", &av.context},
		{"avcodec_free_context", &av.free_context},
		{"avcodec_parameters_alloc", &av.parameters},
		{"avcodec_parameters_free", &av.free_parameters},
		{"avcodec_parameters_to_context", &av.to_context},
		{"avcodec_open2", &av.open},
		{"avcodec_send_packet", &av.send},
		{"avcodec_receive_frame", &av.receive},
		{"avcodec_flush_buffers", &av.flush},
		{"av_packet_alloc", &av.packet},
		{"av_packet_free", &av.free_packet},
		{"av_packet_unref", &av.unref_packet},
		// Functions of libavutil, with which libavcodec is linked.
		{"av_frame_alloc", &av.frame},
		{"av_frame_free", &av.free_frame},
		{"av_frame_unref", &av.unref},
		{"av_mallocz", &av.alloc},
		{"av_free", &av.free},
		{"av_opt_set_int", &av.set},
		{"av_opt_set", &av.set_text},
		{"av_opt_get_int", &av.get},
		{"av_get_pix_fmt_name", &av.format},
		{"av_get_sample_fmt_name", &av.sample_format},
		{"av_strerror", &av.reason},
		{"av_log_set_level", &av.log},
		{"av_version_info", &av.release},
	};
	if (!sv_find_functions(lib, functions, sizeof functions / sizeof *functions, text, size)) {
		dlclose(lib);
		return SV_ERROR;
	}
	void *layout = dlsym(lib, "av_opt_get_chlayout");
	memcpy(&av.layout, &layout, sizeof layout);
	int version = (int)(av.version() >> 16);
	if (version < MIN_VERSION || version > MAX_VERSION) {
		snprintf(text, size, "it is version %d; versions %d to %d are used, those of FFmpeg 5 to 8", version,
		         MIN_VERSION, MAX_VERSION);
		dlclose(lib);
		return SV_ERROR;
	}
	// New structures have values that show whether the fields are at the expected offsets.
	frame_head *frame = av.frame();
	packet_head *packet = av.packet();
	int fits = frame && packet && frame->extended == frame->data && !frame->width && frame->format == -1 &&
	           frame->pts == NO_PTS && packet->pts == NO_PTS && packet->dts == NO_PTS && !packet->data && !packet->size;
	av.free_frame(&frame);
	av.free_packet(&packet);
	sv_places(version);
	parameters_head *par = av.parameters();
	fits = fits && par && sv_places_fit(par);
	av.free_parameters(&par);
	if (!fits) {
		snprintf(text, size, "its structures are not those of FFmpeg 5 to 8");
		dlclose(lib);
		return SV_ERROR;
	}
	av.log(LOG_QUIET);
	snprintf(text, size, "%d, FFmpeg %s", version, av.release());
	av.lib = lib;
	return SV_OK;
}

int sv_has(const char *name) { return av.lib && av.find(name); }

int sv_failed(int code, char *err, size_t size)
{
	if (av.reason(code, err, size) < 0)
		snprintf(err, size, "error %d", code);
	return SV_ERROR;
}

sv_decoder *sv_open(const char *name, int tag, int bits, int width, int height, const uint8_t *config,
                    size_t config_size, int64_t max_pixels, int strict, char *err, size_t size)
{
	codec_head *codec = av.find(name);
	sv_decoder *d = codec ? calloc(1, sizeof *d) : NULL;
	parameters_head *par = d ? av.parameters() : NULL;
	if (!par) {
		snprintf(err, size, codec ? "there is no memory for it" : "the library has no such decoder");
		free(d);
		return NULL;
	}
	par->media = MEDIA_VIDEO;
	par->codec = codec->id;
	sv_parameters(par, tag, bits, width, height);
	int code = -12; // no memory
	d->context = av.context(codec);
	d->packet = av.packet();
	d->frame = av.frame();
	if (config_size)
		par->extradata = av.alloc(config_size + 64);
	if (d->context && d->packet && d->frame && (par->extradata || !config_size)) {
		if (config_size) {
			memcpy(par->extradata, config, config_size);
			par->extradata_size = (int)config_size;
		}
		code = av.to_context(d->context, par);
		if (code >= 0) {
			av.set(d->context, "threads", 1, 0);
			av.set(d->context, "max_pixels", max_pixels, 0);
			if (strict)
				av.set(d->context, "err_detect", DETECT_CRC | DETECT_EXPLODE, 0);
			code = av.open(d->context, codec, NULL);
		}
	}
	av.free_parameters(&par);
	if (code < 0) {
		sv_failed(code, err, size);
		sv_close(d);
		return NULL;
	}
	return d;
}

int sv_send(sv_decoder *d, const uint8_t *data, size_t size, int64_t pts, int skip, char *err, size_t err_size)
{
	if (skip != d->skipping && av.set(d->context, "skip_frame", skip ? DISCARD_NONREF : DISCARD_DEFAULT, 0) >= 0)
		d->skipping = skip;
	packet_head *p = d->packet;
	p->data = (uint8_t *)data; // the library copies it, with its own padding
	p->size = (int)size;
	p->pts = pts;
	p->dts = NO_PTS;
	int code = av.send(d->context, data ? p : NULL);
	p->data = NULL;
	p->size = 0;
	if (code == AVERROR_EAGAIN)
		return SV_AGAIN;
	if (code == AVERROR_EOF)
		return SV_END;
	return code < 0 ? sv_failed(code, err, err_size) : SV_OK;
}

int sv_receive(sv_decoder *d, sv_frame *out, char *err, size_t err_size)
{
	frame_head *f = d->frame;
	int code = av.receive(d->context, f);
	if (code == AVERROR_EAGAIN)
		return SV_AGAIN;
	if (code == AVERROR_EOF)
		return SV_END;
	if (code < 0)
		return sv_failed(code, err, err_size);
	for (int i = 0; i < 4; i++) {
		out->planes[i] = f->data[i];
		out->stride[i] = f->linesize[i];
	}
	out->width = f->width;
	out->height = f->height;
	out->pts = f->pts;
	const char *format = av.format(f->format);
	snprintf(out->format, sizeof out->format, "%s", format ? format : "");
	int64_t v = 2;
	out->matrix = av.get(d->context, "colorspace", 0, &v) >= 0 ? (int)v : 2;
	v = 0;
	out->range = av.get(d->context, "color_range", 0, &v) >= 0 ? (int)v : 0;
	return SV_OK;
}

void sv_flush(sv_decoder *d) { av.flush(d->context); }

void sv_close(sv_decoder *d)
{
	if (!d)
		return;
	av.free_frame(&d->frame);
	av.free_packet(&d->packet);
	av.free_context(&d->context);
	free(d);
}
