// Vorbis and Opus, by their own libraries, linked statically.
#include "csound.h"

#include <opus/opus_multistream.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <vorbis/codec.h>

struct ss_vorbis {
	vorbis_info info;
	vorbis_comment comment;
	vorbis_dsp_state dsp;
	vorbis_block block;
	int ready; // number of structures to clear
};

static ogg_packet packet_of(const uint8_t *p, size_t n, int first, ogg_int64_t number)
{
	ogg_packet o = {
		.packet = (unsigned char *)p, .bytes = (long)n, .b_o_s = first, .granulepos = -1, .packetno = number};
	return o;
}

void ss_vorbis_close(ss_vorbis *v)
{
	if (v == NULL)
		return;
	if (v->ready > 2)
		vorbis_block_clear(&v->block);
	if (v->ready > 1)
		vorbis_dsp_clear(&v->dsp);
	vorbis_comment_clear(&v->comment);
	vorbis_info_clear(&v->info);
	free(v);
}

int ss_vorbis_open(const uint8_t *id, size_t id_size, const uint8_t *setup, size_t setup_size, ss_vorbis **out,
                   int *channels, int *rate)
{
	// The library requires comments, which are not used here.
	static const uint8_t comment[] = {3, 'v', 'o', 'r', 'b', 'i', 's', 0, 0, 0, 0, 0, 0, 0, 0, 1};
	*out = NULL;
	ss_vorbis *v = calloc(1, sizeof *v);
	if (v == NULL)
		return SS_MEMORY;
	vorbis_info_init(&v->info);
	vorbis_comment_init(&v->comment);
	v->ready = 1;
	ogg_packet p1 = packet_of(id, id_size, 1, 0), p2 = packet_of(comment, sizeof comment, 0, 1),
			   p3 = packet_of(setup, setup_size, 0, 2);
	if (vorbis_synthesis_headerin(&v->info, &v->comment, &p1) ||
	    vorbis_synthesis_headerin(&v->info, &v->comment, &p2) ||
	    vorbis_synthesis_headerin(&v->info, &v->comment, &p3) || v->info.channels < 1 ||
	    vorbis_synthesis_init(&v->dsp, &v->info)) {
		ss_vorbis_close(v);
		return SS_DAMAGED;
	}
	v->ready = 2;
	if (vorbis_block_init(&v->dsp, &v->block)) {
		ss_vorbis_close(v);
		return SS_MEMORY;
	}
	v->ready = 3;
	*channels = v->info.channels;
	*rate = (int)v->info.rate;
	*out = v;
	return SS_OK;
}

int ss_vorbis_blocks(ss_vorbis *v, const uint8_t *data, const int32_t *sizes, int count, int32_t *blocks)
{
	for (int i = 0; i < count; i++) {
		ogg_packet p = packet_of(data, (size_t)sizes[i], 0, 3 + i);
		const long n = vorbis_packet_blocksize(&v->info, &p);
		blocks[i] = n > 0 ? (int32_t)n : 0; // 0: not a packet of sound
		data += sizes[i];
	}
	return SS_OK;
}

int ss_vorbis_decode(ss_vorbis *v, const uint8_t *data, const int32_t *sizes, int count, int64_t skip, int64_t n,
                     float *dst, size_t stride, int64_t *done)
{
	*done = 0;
	vorbis_synthesis_restart(&v->dsp);
	for (int i = 0; i < count && *done < n; i++) {
		ogg_packet p = packet_of(data, (size_t)sizes[i], 0, 3 + i);
		data += sizes[i];
		if (vorbis_synthesis(&v->block, &p))
			continue; // as the library's own players do
		vorbis_synthesis_blockin(&v->dsp, &v->block);
		float **pcm;
		const int have = vorbis_synthesis_pcmout(&v->dsp, &pcm);
		if (have <= 0)
			continue;
		int64_t from = skip < have ? skip : have, take = have - from;
		if (take > n - *done)
			take = n - *done;
		for (int c = 0; c < v->info.channels; c++)
			memcpy(dst + (size_t)c * stride + *done, pcm[c] + from, sizeof(float) * (size_t)take);
		*done += take;
		skip -= from;
		vorbis_synthesis_read(&v->dsp, have);
	}
	return SS_OK;
}

#if defined(__x86_64__)
// libopus detects the processor's features with CPUID each time that a decoder restarts, and packets can cause
// restarts. In a virtual machine, CPUID is a call to the hypervisor, which takes longer than decoding a packet. The
// linker replaces the function by this one (--wrap), which detects the features once.
int __real_opus_select_arch(void);
int __wrap_opus_select_arch(void);

static int opus_arch;

static void ask_opus_arch(void) { opus_arch = __real_opus_select_arch(); }

int __wrap_opus_select_arch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, ask_opus_arch);
	return opus_arch;
}
#endif

struct ss_opus {
	OpusMSDecoder *d;
	int channels, rate;
};

int ss_opus_open(int rate, int channels, int streams, int coupled, const uint8_t *mapping, int gain, ss_opus **out)
{
	int err;
	ss_opus *o = calloc(1, sizeof *o);
	*out = NULL;
	if (o == NULL)
		return SS_MEMORY;
	o->d = opus_multistream_decoder_create(rate, channels, streams, coupled, mapping, &err);
	if (o->d == NULL) {
		free(o);
		return err == OPUS_ALLOC_FAIL ? SS_MEMORY : SS_DAMAGED;
	}
	opus_multistream_decoder_ctl(o->d, OPUS_SET_GAIN(gain));
	o->channels = channels;
	o->rate = rate;
	*out = o;
	return SS_OK;
}

void ss_opus_close(ss_opus *o)
{
	if (o == NULL)
		return;
	opus_multistream_decoder_destroy(o->d);
	free(o);
}

int ss_opus_samples(const uint8_t *data, const int32_t *sizes, int count, int rate, int64_t *total)
{
	*total = 0;
	for (int i = 0; i < count; i++) {
		if (sizes[i] > 0) {
			const int n = opus_packet_get_nb_samples(data, sizes[i], rate);
			if (n > 0)
				*total += n;
		}
		data += sizes[i];
	}
	return SS_OK;
}

// room has space for 120 ms of all channels.
int ss_opus_decode(ss_opus *o, const uint8_t *data, const int32_t *sizes, int count, float *room, int64_t skip,
                   int64_t n, float *dst, size_t stride, int64_t *done)
{
	const int most = o->rate / 25 * 3;
	*done = 0;
	opus_multistream_decoder_ctl(o->d, OPUS_RESET_STATE);
	for (int i = 0; i < count && *done < n; i++) {
		if (sizes[i] == 0)
			continue;
		const int have = opus_multistream_decode_float(o->d, data, sizes[i], room, most, 0);
		data += sizes[i];
		if (have == OPUS_ALLOC_FAIL)
			return SS_MEMORY;
		if (have < 0)
			return SS_DAMAGED;
		int64_t from = skip < have ? skip : have, take = have - from;
		if (take > n - *done)
			take = n - *done;
		for (int c = 0; c < o->channels; c++) {
			float *to = dst + (size_t)c * stride + *done;
			const float *src = room + from * o->channels + c;
			for (int64_t k = 0; k < take; k++)
				to[k] = src[k * o->channels];
		}
		*done += take;
		skip -= from;
	}
	return SS_OK;
}
