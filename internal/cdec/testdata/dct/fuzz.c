// Coverage-guided fuzzing of the dct codec with libFuzzer and sanitizers; see
// fuzz.sh. The input is dct bytes: no kernel may touch foreign memory, all must
// agree on errors and pixels, a box must be part of the whole, and the JPEG with
// the same coefficients must have the same pixels. Input that begins as a JPEG
// goes through the encoder first.
#include "../../sk.h"

#include <stdlib.h>
#include <string.h>

#include "../../dct.h"

#define MOST_PIXELS (1 << 16)

#define CHECK(ok)                                            \
	do {                                                     \
		if (!(ok)) {                                         \
			fprintf(stderr, "line %d: %s\n", __LINE__, #ok); \
			abort();                                         \
		}                                                    \
	} while (0)

static uint8_t *decode(sk_dec *d, int set, const uint8_t *src, size_t n, int x, int y, int w, int h, int px, int *code)
{
	uint8_t *out = malloc((size_t)w * (size_t)h * 4);
	sk_memory_sink s;
	sk_memory_sink_init(&s, out, (ptrdiff_t)w * px, w);
	sk_use_set(set);
	*code = sk_dct_decode_box(d, src, n, x, y, w, h, &s.sink);
	return out;
}

static void check_dct(sk_dec *d, const uint8_t *src, size_t n, const uint8_t *jpeg, size_t jpeg_len)
{
	dct_image im;
	if (dct_parse(&im, src, n) != NULL || im.w * (int64_t)im.h > MOST_PIXELS)
		return;
	const int px = im.ncomp == 1 ? 1 : 4;
	unsigned seed = 0;
	for (size_t i = 0; i < n; i++)
		seed = seed * 31 + src[i];
	const int x = (int)(seed % (unsigned)im.w), y = (int)(seed / 7 % (unsigned)im.h);
	const int w = 1 + (int)(seed / 49 % (unsigned)(im.w - x)), h = 1 + (int)(seed / 343 % (unsigned)(im.h - y));
	uint8_t *whole[3], *box[3];
	int code[3], box_code[3];
	for (int set = 0; set < 3; set++) {
		whole[set] = decode(d, set, src, n, 0, 0, im.w, im.h, px, &code[set]);
		box[set] = decode(d, set, src, n, x, y, w, h, px, &box_code[set]);
		CHECK(code[set] == code[0] && box_code[set] == box_code[0]);
		CHECK(code[0] != SK_OK || memcmp(whole[set], whole[0], (size_t)im.w * (size_t)im.h * (size_t)px) == 0);
		CHECK(box_code[0] != SK_OK || memcmp(box[set], box[0], (size_t)w * (size_t)h * (size_t)px) == 0);
	}
	CHECK(code[0] != SK_OK || box_code[0] == SK_OK);
	if (code[0] == SK_OK) {
		for (int i = 0; i < h; i++)
			CHECK(memcmp(box[0] + i * w * px, whole[0] + ((y + i) * im.w + x) * px, (size_t)w * (size_t)px) == 0);
		dct_bytes made = {0};
		char message[SK_MESSAGE];
		if (jpeg == NULL && dct_to_jpeg(&made, src, n, NULL, 0, NULL, 0, message) == DCT_OK) {
			jpeg = made.p;
			jpeg_len = made.len;
		}
		uint8_t *rgb = malloc((size_t)im.w * (size_t)im.h * 3);
		int jw, jh;
		// A decoder of its own: what other images defined must not matter.
		sk_dec *reference = sk_dec_new();
		if (jpeg != NULL &&
		    sk_jpeg_decode_full(reference, jpeg, jpeg_len, rgb, (size_t)im.w * (size_t)im.h * 3, &jw, &jh) == SK_OK) {
			CHECK(jw == im.w && jh == im.h);
			for (int i = 0; i < im.w * im.h; i++)
				for (int c = 0; c < 3; c++)
					CHECK(rgb[3 * i + c] == whole[0][i * px + (px == 1 ? 0 : c)]);
		}
		sk_dec_free(reference);
		free(rgb);
		free(made.p);
	}
	for (int set = 0; set < 3; set++) {
		free(whole[set]);
		free(box[set]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static sk_dec *d;
	static dct_encoder *e;
	if (d == NULL) {
		d = sk_dec_new();
		e = dct_encoder_new();
	}
	if (n < 2 || data[0] != 0xff) {
		check_dct(d, data, n, NULL, 0);
		return 0;
	}
	dct_bytes out[4] = {{0}};
	char message[SK_MESSAGE];
	int code[4];
	for (int way = 0; way < 4; way++) { // the last one by libjpeg alone
		sk_use_set(way % 3);
		code[way] = dct_from_jpeg(e, &out[way], data, n, 0, way == 3, message);
		CHECK(code[way] == code[0]);
		CHECK(code[0] != DCT_OK || (out[way].len == out[0].len && memcmp(out[way].p, out[0].p, out[0].len) == 0));
	}
	if (code[0] == DCT_OK) {
		// An allocation of its own, so that reads beyond the end show.
		uint8_t *copy = malloc(out[0].len);
		memcpy(copy, out[0].p, out[0].len);
		check_dct(d, copy, out[0].len, data, n);
		free(copy);
	}
	for (int way = 0; way < 4; way++)
		free(out[way].p);
	return 0;
}
