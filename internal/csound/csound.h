// Sound in C: decoders, resampling and spectra. All functions use memory that the caller owns. Only the decoders of
// libraries keep state between calls.
#ifndef STOKER_CSOUND_H
#define STOKER_CSOUND_H

#include <stddef.h>
#include <stdint.h>

enum { SS_OK = 0, SS_DAMAGED = 1, SS_CHECKSUM = 2, SS_CUT = 3, SS_UNSUPPORTED = 4, SS_MEMORY = 5 };

// pcm.c: samples of files to floats. Channels are interleaved in src; channel c of
// dst begins at dst + c*stride.
enum { SS_PCM_U8, SS_PCM_S16, SS_PCM_S24, SS_PCM_S32, SS_PCM_F32, SS_PCM_F64, SS_PCM_TABLE };
void ss_pcm(int type, const uint8_t *src, float *dst, size_t stride, size_t channels, size_t n, const float *table);

// flac.c
typedef struct {
	int channels, bits, rate, max_block; // of the file; bits 0: any
	int unit;                            // samples that the number of a frame of fixed size counts
	int variable;                        // of the frame that was read last
	int block;
	int64_t sample; // the first one of that frame
	size_t bytes;   // of that frame
} ss_flac;
// Reads the header of the frame at data, including its bits per sample if present. Returns 0 or an error.
int ss_flac_header(ss_flac *f, const uint8_t *data, size_t size);
// Finds the first frame header in data from *at on.
int ss_flac_find(ss_flac *f, const uint8_t *data, size_t size, size_t *at);
// Decodes frames from *at on until samples [from, from+n) are in dst or the data ends. *done is the number of samples
// in dst.
int ss_flac_decode(ss_flac *f, const uint8_t *data, size_t size, size_t *at, int32_t *room, int64_t from, int64_t n,
                   float *dst, size_t stride, int64_t *done);

// kernels.c: loops that are compiled for several instruction sets. All of them give the same floats. set is that of
// SK_KERNEL_SOUND in package cdec.
enum { SS_LANES = 8, SS_FRAMES = 16 }; // of a vector; of a call of the FFT

// Output o of a resampler is made from taps coefficients of phase o % phases and as
// many samples from (o / phases) * step + start[phase] on.
void ss_resample(int set, const float *coefs, const int32_t *start, int phases, int step, int taps, const float *x,
                 int64_t first, int64_t from, int64_t n, float *out);

// v = scale * ln(max(v, floor) + add), for values that are not subnormal.
void ss_log(int set, float *x, size_t n, float floor, float add, float scale);

typedef struct {
	int n, bins;   // size of the transform; n/2 + 1
	int hop;       // between frames
	int mels;      // 0: bins
	int magnitude; // the root of the power
	int count;     // of factors
	int factors[32];
} ss_spectrum;
// Frames [0, frames) of x: frame t begins at x[t*hop]. Row m of out has the values of band m by time. room has space
// for (4*n + bins) * SS_LANES * 2 floats.
void ss_spectra(int set, const ss_spectrum *s, const float *window, const float *twiddles, const int32_t *lo,
                const int32_t *hi, const float *weights, const float *x, int64_t frames, float *out, size_t stride,
                float *room);

// ogg.c: packets are stored one after the other in data, sizes[i] bytes each. Decoding restarts with the first one.
// skip samples are left out, then n are written to dst, channel c to dst + c*stride. *done is the number of samples
// written.
typedef struct ss_vorbis ss_vorbis;
int ss_vorbis_open(const uint8_t *id, size_t id_size, const uint8_t *setup, size_t setup_size, ss_vorbis **out,
                   int *channels, int *rate);
void ss_vorbis_close(ss_vorbis *v);
// The block sizes of packets: each except the first adds a quarter of its own block and of the previous one.
int ss_vorbis_blocks(ss_vorbis *v, const uint8_t *data, const int32_t *sizes, int count, int32_t *blocks);
int ss_vorbis_decode(ss_vorbis *v, const uint8_t *data, const int32_t *sizes, int count, int64_t skip, int64_t n,
                     float *dst, size_t stride, int64_t *done);

typedef struct ss_opus ss_opus;
int ss_opus_open(int rate, int channels, int streams, int coupled, const uint8_t *mapping, int gain, ss_opus **out);
void ss_opus_close(ss_opus *o);
int ss_opus_samples(const uint8_t *data, const int32_t *sizes, int count, int rate, int64_t *total);
int ss_opus_decode(ss_opus *o, const uint8_t *data, const int32_t *sizes, int count, float *room, int64_t skip,
                   int64_t n, float *dst, size_t stride, int64_t *done);

// mp3.c
typedef struct ss_mp3 ss_mp3;
typedef struct {
	int lsf, crc, rate, bands, channels, mode, samples, bytes, side;
} ss_mp3_frame;
// Reads the 4 bytes of a header.
int ss_mp3_header(const uint8_t *p, ss_mp3_frame *f);
ss_mp3 *ss_mp3_new(void);
void ss_mp3_free(ss_mp3 *d);
void ss_mp3_reset(ss_mp3 *d);
int ss_mp3_decode(ss_mp3 *d, const uint8_t *data, const ss_mp3_frame *f, float *out, size_t stride);

#endif
