#include "jpegenc.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

typedef struct {
	struct jpeg_error_mgr base;
	jmp_buf escape;
	char *message;
	size_t message_len;
} enc_error;

static void enc_fail(j_common_ptr c)
{
	enc_error *e = (enc_error *)c->err;
	char text[JMSG_LENGTH_MAX];
	e->base.format_message(c, text);
	snprintf(e->message, e->message_len, "%s", text);
	longjmp(e->escape, 1);
}

static void enc_quiet(j_common_ptr c, int level)
{
	(void)c;
	(void)level;
}

// An APP2 marker holds at most 65,519 bytes of a profile after its 14 bytes of header. Longer profiles are split into
// numbered pieces.
#define ICC_PIECE 65519

static void write_icc(struct jpeg_compress_struct *c, const uint8_t *icc, size_t n)
{
	unsigned pieces = (unsigned)((n + ICC_PIECE - 1) / ICC_PIECE);
	for (unsigned i = 0; i < pieces; i++) {
		size_t from = (size_t)i * ICC_PIECE, len = n - from < ICC_PIECE ? n - from : ICC_PIECE;
		jpeg_write_m_header(c, JPEG_APP0 + 2, (unsigned)len + 14);
		static const char id[12] = "ICC_PROFILE";
		for (int k = 0; k < 12; k++)
			jpeg_write_m_byte(c, id[k]);
		jpeg_write_m_byte(c, (int)i + 1);
		jpeg_write_m_byte(c, (int)pieces);
		for (size_t k = 0; k < len; k++)
			jpeg_write_m_byte(c, icc[from + k]);
	}
}

// The compressor's state lives here and not on the stack of the function that
// calls setjmp, so that nothing is indeterminate after a longjmp.
typedef struct {
	struct jpeg_compress_struct c;
	enc_error err;
	struct jpeg_destination_mgr dest;
	unsigned char *buf;
	size_t len, cap;
} encoder;

// The output grows in memory that the encoder always owns. libjpeg's own jpeg_mem_dest reports the location of its
// memory only at the end. After an error it may already have freed memory that the caller would free again.
static void dest_room(encoder *e)
{
	e->dest.next_output_byte = e->buf + e->len;
	e->dest.free_in_buffer = e->cap - e->len;
}

static void dest_grow(encoder *e)
{
	size_t cap = e->cap ? 2 * e->cap : 64 << 10;
	unsigned char *buf = realloc(e->buf, cap);
	if (!buf) {
		snprintf(e->err.message, e->err.message_len, "out of memory");
		longjmp(e->err.escape, 1);
	}
	e->buf = buf;
	e->cap = cap;
	dest_room(e);
}

static void dest_init(j_compress_ptr c) { dest_grow(c->client_data); }

// Called when the buffer is full, regardless of free_in_buffer.
static boolean dest_full(j_compress_ptr c)
{
	encoder *e = c->client_data;
	e->len = e->cap;
	dest_grow(e);
	return TRUE;
}

static void dest_term(j_compress_ptr c)
{
	encoder *e = c->client_data;
	e->len = e->cap - e->dest.free_in_buffer;
}

static int encode(encoder *e, const sk_enc_params *p, const uint8_t *pixels)
{
	struct jpeg_compress_struct *c = &e->c;
	c->err = jpeg_std_error(&e->err.base);
	e->err.base.error_exit = enc_fail;
	e->err.base.emit_message = enc_quiet;
	if (setjmp(e->err.escape))
		return 1;
	jpeg_create_compress(c);
	c->client_data = e;
	c->dest = &e->dest;
	e->dest.init_destination = dest_init;
	e->dest.empty_output_buffer = dest_full;
	e->dest.term_destination = dest_term;
	int components = p->cmyk ? 4 : p->components;
	c->image_width = (JDIMENSION)p->width;
	c->image_height = (JDIMENSION)p->height;
	c->input_components = components;
	c->in_color_space = p->cmyk ? JCS_CMYK : components == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(c);
	if (p->cmyk)
		jpeg_set_colorspace(c, JCS_CMYK);
	else if (p->rgb && components == 3)
		jpeg_set_colorspace(c, JCS_RGB);
	jpeg_set_quality(c, p->quality, TRUE);
	// ISLOW gives the same coefficients on every machine, SIMD or not.
	c->dct_method = JDCT_ISLOW;
	c->optimize_coding = p->optimize ? TRUE : FALSE;
	c->restart_interval = (unsigned)p->restart_mcus;
	if (components == 3 && !p->rgb) {
		c->comp_info[0].h_samp_factor = p->h_samp;
		c->comp_info[0].v_samp_factor = p->v_samp;
	}
	if (p->progressive)
		jpeg_simple_progression(c);
	jpeg_start_compress(c, TRUE);
	if (p->exif_len > 0)
		jpeg_write_marker(c, JPEG_APP0 + 1, p->exif, (unsigned)p->exif_len);
	if (p->icc_len > 0)
		write_icc(c, p->icc, p->icc_len);
	size_t stride = (size_t)p->width * (size_t)components;
	while (c->next_scanline < c->image_height) {
		JSAMPROW rows[16];
		JDIMENSION n = 0;
		for (; n < 16 && c->next_scanline + n < c->image_height; n++)
			rows[n] = (JSAMPROW)(uintptr_t)(pixels + stride * (c->next_scanline + n));
		jpeg_write_scanlines(c, rows, n);
	}
	jpeg_finish_compress(c);
	return 0;
}

int sk_jpeg_encode(const sk_enc_params *p, const uint8_t *pixels, uint8_t **out, size_t *out_len, char *message,
                   size_t message_len)
{
	encoder *e = calloc(1, sizeof *e);
	if (!e) {
		snprintf(message, message_len, "out of memory");
		return 1;
	}
	e->err.message = message;
	e->err.message_len = message_len;
	int failed = encode(e, p, pixels);
	jpeg_destroy_compress(&e->c);
	if (failed) {
		free(e->buf);
	} else {
		*out = e->buf;
		*out_len = e->len;
	}
	free(e);
	return failed;
}

void sk_jpeg_free(uint8_t *out) { free(out); }
