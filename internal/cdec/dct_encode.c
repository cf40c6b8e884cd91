// JPEG -> dct: the entropy code is decoded, then one tile after the other is packed. Most JPEGs are read by
// huffman.c, a tile at a time, which stays in the first-level cache. Images that it cannot read are read by libjpeg,
// which also reports their errors.
#include "huffman.h"

#include <jerror.h>
#include <stdlib.h>
#include <string.h>

#include "dct_pack.h"

// A progressive file may repeat scans without end; real ones have about ten.
#define MAX_SCANS 500

// ---- libjpeg's errors

typedef struct {
	struct jpeg_error_mgr em; // first: libjpeg's err points here
	struct jpeg_source_mgr source;
	struct jpeg_progress_mgr progress;
	jmp_buf jump;
	int damaged; // message code of a warning that means lost data
} reader;

static void on_error(j_common_ptr ci) { longjmp(((reader *)ci->err)->jump, 1); }

// Warnings that do not affect the intended coefficients are ignored: a missing end marker after complete data, bytes
// before a marker, unusual application markers.
static void on_message(j_common_ptr ci, int level)
{
	if (level >= 0)
		return;
	switch (ci->err->msg_code) {
	case JWRN_JPEG_EOF:
	case JWRN_EXTRANEOUS_DATA:
	case JWRN_ADOBE_XFORM:
	case JWRN_JFIF_MAJOR:
	case JWRN_BOGUS_ICC: return;
	}
	// Stop here: a header that declares a large image, with data that ends early, would waste memory and time.
	reader *r = (reader *)ci->err;
	r->damaged = ci->err->msg_code;
	longjmp(r->jump, 1);
}

static void no_output(j_common_ptr ci) { (void)ci; }

static void nothing(j_decompress_ptr ci) { (void)ci; }

// The end of the data: an end marker. Data that stops within a scan then gives JWRN_HIT_MARKER, which counts as
// damage.
static boolean refill(j_decompress_ptr ci)
{
	static const JOCTET end_of_image[2] = {0xff, JPEG_EOI};
	ci->src->next_input_byte = end_of_image;
	ci->src->bytes_in_buffer = 2;
	return TRUE;
}

static void skip(j_decompress_ptr ci, long n)
{
	if (n <= 0)
		return;
	if ((size_t)n > ci->src->bytes_in_buffer) {
		refill(ci);
		return;
	}
	ci->src->next_input_byte += n;
	ci->src->bytes_in_buffer -= (size_t)n;
}

static void on_progress(j_common_ptr ci)
{
	j_decompress_ptr d = (j_decompress_ptr)ci;
	if (d->input_scan_number > MAX_SCANS) {
		ci->err->msg_code = JERR_BAD_PROGRESSION;
		on_error(ci);
	}
}

// ---- packing

static int gather(const int16_t *block, uint64_t *nonzero, uint64_t *sign, uint16_t *mag)
{
	uint64_t m = 0, negative = 0;
	int n = 0;
	for (int i = 1; i < 64; i++) {
		const int v = block[i], some = v != 0;
		m |= (uint64_t)some << (i - 1);
		negative |= (uint64_t)(v < 0) << n;
		mag[n] = (uint16_t)(v < 0 ? -v : v); // written over when it is 0
		n += some;
	}
	*nonzero = m;
	*sign = negative;
	return n;
}

static void planes(dct_packer *k, dct_writer *w, const uint16_t *mag, int n)
{
	for (int i = 0; i < n; i++)
		k->list[i] = (uint16_t)i;
	for (int plane = 2; plane <= DCT_MAX_PLANES && n > 0; plane++) {
		int more = 0;
		for (int i = 0; i < n; i += 32) {
			const int take = n - i < 32 ? n - i : 32;
			uint64_t bits = 0;
			for (int j = 0; j < take; j++) {
				const uint16_t at = k->list[i + j];
				const uint64_t flag = mag[at] >> (plane - 1) != 0;
				bits |= flag << j;
				k->list[more] = at; // more <= i + j
				more += (int)flag;
			}
			dct_put(w, bits, take);
		}
		n = more;
		for (int i = 0; i < n; i += 32) {
			const int take = n - i < 32 ? n - i : 32;
			uint64_t bits = 0;
			for (int j = 0; j < take; j++)
				bits |= (uint64_t)(mag[k->list[i + j]] >> (plane - 2) & 1) << j;
			dct_put(w, bits, take);
		}
	}
}

size_t dct_pack_scalar(dct_packer *k, const dct_shape *s, uint8_t *out)
{
	return dct_pack_tile(k, s, out, gather, planes);
}

// The most bytes that a tile of n blocks can take: one head, 16 bits of DC, 63
// positions with a sign, 15 flags and 15 further bits each.
static size_t tile_bound(int n) { return (size_t)n * (1 + 2 + 8 + 63 * 31 / 8 + 1) + 16; }

// ---- bytes that grow

static int reserve(dct_bytes *b, size_t more)
{
	if (b->cap - b->len >= more)
		return 1;
	size_t cap = b->cap + b->cap / 2 + more;
	uint8_t *p = realloc(b->p, cap);
	if (p == NULL)
		return 0;
	b->p = p;
	b->cap = cap;
	return 1;
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v & 0xffff);
	put16(p + 2, v >> 16);
}

// ---- the encoder

static int fail(char *message, int code, const char *text)
{
	snprintf(message, SK_MESSAGE, "%s", text);
	return code;
}

static int code_of(int libjpeg_code)
{
	switch (libjpeg_code) {
	case JERR_BAD_PRECISION: return DCT_PRECISION;
	case JERR_SOF_UNSUPPORTED: return DCT_LOSSLESS;
	case JERR_ARITH_NOTIMPL: return DCT_ARITHMETIC;
	case JERR_OUT_OF_MEMORY: return DCT_MEMORY;
	case JERR_IMAGE_TOO_BIG: return DCT_TOO_LARGE;
	case JERR_FRACT_SAMPLE_NOTIMPL: return DCT_SAMPLING;
	}
	return DCT_NOT_JPEG;
}

// Checks that are possible after the header is read.
static int check_header(j_decompress_ptr ci, char *message)
{
	if (ci->arith_code)
		return fail(message, DCT_ARITHMETIC, "arithmetic coding");
	if (ci->jpeg_color_space != JCS_YCbCr && ci->jpeg_color_space != JCS_GRAYSCALE)
		return fail(message, DCT_COLOR,
		            ci->jpeg_color_space == JCS_CMYK   ? "CMYK"
		            : ci->jpeg_color_space == JCS_YCCK ? "YCCK"
		            : ci->jpeg_color_space == JCS_RGB  ? "RGB without a colour transform"
		                                               : "an unknown colour space");
	if ((int64_t)ci->image_width * ci->image_height > SK_MAX_PIXELS || ci->image_width > SK_MAX_SIDE ||
	    ci->image_height > SK_MAX_SIDE)
		return fail(message, DCT_TOO_LARGE, "too many pixels");
	for (int c = 0; c < ci->num_components; c++)
		if (ci->max_h_samp_factor % ci->comp_info[c].h_samp_factor != 0 ||
		    ci->max_v_samp_factor % ci->comp_info[c].v_samp_factor != 0)
			return fail(message, DCT_SAMPLING, "fractional sampling");
	return DCT_OK;
}

// Checks that are possible after all coefficients are read. No data may be missing, because libjpeg would then smooth
// over the gaps when it decodes.
static int check_complete(j_decompress_ptr ci, char *message)
{
	for (int c = 0; c < ci->num_components; c++) {
		if (ci->comp_info[c].quant_table == NULL)
			return fail(message, DCT_INCOMPLETE, "a component has no scan");
		for (int k = 0; ci->progressive_mode && k < 64; k++)
			if (ci->coef_bits[c][k] != 0)
				return fail(message, DCT_INCOMPLETE, "progressive scans are missing");
	}
	return DCT_OK;
}

// Tiles are 64 pixels wide: 8 blocks of luma side by side, two loads of the
// transform for four blocks. Wide enough that table and first DC values stay
// below 2% of the bytes, narrow enough that a crop touches little around it.
static int default_tile(j_decompress_ptr ci)
{
	int per_mcu = 0;
	for (int c = 0; c < ci->num_components; c++)
		per_mcu += ci->comp_info[c].h_samp_factor * ci->comp_info[c].v_samp_factor;
	if (ci->num_components == 1)
		return 8;
	int t = ci->max_h_samp_factor == 1 ? 8 : 4;
	while (t * per_mcu > DCT_MAX_BLOCKS)
		t /= 2;
	return t;
}

// Header, quantisation tables and space for the tile table. Returns the offset of the tables, 0 if there is no
// memory.
static size_t put_header(j_decompress_ptr ci, dct_bytes *out, int tile)
{
	const int n = ci->num_components;
	if (!reserve(out, DCT_HEADER + 2 * DCT_MAX_COMPS + DCT_MAX_TABLES * 128))
		return 0;
	uint8_t *p = out->p;
	memcpy(p, "dct", 3);
	p[3] = DCT_VERSION;
	put16(p + 4, ci->image_width);
	put16(p + 6, ci->image_height);
	p[8] = (uint8_t)n;
	p[9] = (uint8_t)tile;
	p[11] = 0;
	uint8_t *at = p + DCT_HEADER;
	const JQUANT_TBL *tables[DCT_MAX_COMPS];
	int count = 0;
	for (int c = 0; c < n; c++) {
		const jpeg_component_info *k = &ci->comp_info[c];
		int t = 0;
		while (t < count && memcmp(tables[t]->quantval, k->quant_table->quantval, sizeof k->quant_table->quantval) != 0)
			t++;
		if (t == count)
			tables[count++] = k->quant_table;
		// A gray image has no other component that its factors could relate to.
		*at++ = (uint8_t)(n == 1 ? 0x11 : k->h_samp_factor << 4 | k->v_samp_factor);
		*at++ = (uint8_t)t;
	}
	p[10] = (uint8_t)count;
	for (int t = 0; t < count; t++) {
		int wide = 0;
		for (int i = 0; i < 64; i++)
			wide |= tables[t]->quantval[i] > 255;
		p[11] |= (uint8_t)(wide << t);
		for (int i = 0; i < 64; i++) {
			const unsigned q = tables[t]->quantval[dct_natural[i]];
			*at++ = (uint8_t)q;
			if (wide)
				*at++ = (uint8_t)(q >> 8);
		}
	}
	out->len = (size_t)(at - p);
	return out->len;
}

// The source of the coefficients of an image: tile by tile, or all of them by libjpeg if scan is NULL.
typedef struct {
	sk_scan *scan;
	jvirt_barray_ptr *coefs;
} coefficients;

// The blocks of a tile, out of its MCUs that huffman.c has scanned.
static void take_scanned(dct_packer *k, const dct_image *im, const dct_shape *s, const JCOEF (*mcus)[DCTSIZE2])
{
	int per = 0;
	for (int c = 0; c < im->ncomp; c++)
		per += im->comp[c].h * im->comp[c].v;
	for (int c = 0, b = 0; c < im->ncomp; mcus += im->comp[c].h * im->comp[c].v, c++)
		for (int y = 0; y < s->bh[c]; y++) {
			const JCOEF(*mcu)[DCTSIZE2] = mcus + y * im->comp[c].h;
			for (int x = 0, i = 0; x < s->bw[c]; x++) {
				k->block[b++] = mcu[i];
				if (++i == im->comp[c].h)
					i = 0, mcu += per;
			}
		}
}

// The same out of rows that libjpeg has read.
static void take_read(dct_packer *k, const dct_image *im, const dct_shape *s, const JBLOCKARRAY *rows, int col)
{
	for (int c = 0, b = 0; c < im->ncomp; c++)
		for (int y = 0; y < s->bh[c]; y++)
			for (int x = 0; x < s->bw[c]; x++, b++) {
				const JCOEF *from = rows[c][y][col * im->tile * im->comp[c].h + x];
				for (int i = 0; i < 64; i++)
					k->zigzag[b][i] = from[dct_natural[i]];
				k->block[b] = k->zigzag[b];
			}
}

// Packs all tiles. The header is in out.
static int put_tiles(j_decompress_ptr ci, const coefficients *from, dct_bytes *out, dct_packer *k, char *message)
{
	dct_image im;
	// The parser derives everything from the header, like the decoder. It needs a table after the header: reserve
	// space for it, zeroed.
	const size_t table = out->len;
	const int per_h = ci->num_components == 1 ? 1 : ci->max_h_samp_factor,
			  per_v = ci->num_components == 1 ? 1 : ci->max_v_samp_factor;
	const size_t mcols = (ci->image_width + 8u * (unsigned)per_h - 1) / (8u * (unsigned)per_h);
	const size_t mrows = (ci->image_height + 8u * (unsigned)per_v - 1) / (8u * (unsigned)per_v);
	const size_t tcols = (mcols + out->p[9] - 1) / out->p[9];
	const size_t size = mrows * (4 + 2 * tcols);
	if (!reserve(out, size))
		return fail(message, DCT_MEMORY, "out of memory");
	memset(out->p + table, 0, size);
	out->len += size;
	const char *wrong = dct_parse(&im, out->p, out->len);
	if (wrong != NULL)
		return fail(message, DCT_NOT_JPEG, wrong);
	dct_pack_tile_fn *const pack_tile = dct_pack_for();
	const size_t data = out->len;
	for (int row = 0; row < im.mrows; row++) {
		JBLOCKARRAY rows[DCT_MAX_COMPS] = {NULL};
		for (int c = 0; c < im.ncomp && from->scan == NULL; c++)
			rows[c] = ci->mem->access_virt_barray((j_common_ptr)ci, from->coefs[c], (JDIMENSION)(row * im.comp[c].v),
			                                      (JDIMENSION)im.comp[c].v, FALSE);
		if (out->len - data > UINT32_MAX)
			return fail(message, DCT_TOO_LARGE, "more than 4 GiB of coefficients");
		put32(out->p + table + 4 * (size_t)row, (uint32_t)(out->len - data));
		for (int col = 0; col < im.tcols; col++) {
			dct_shape s;
			dct_tile_shape(&im, row, col, &s);
			if (from->scan != NULL) {
				const int left = im.mcols - col * im.tile;
				const JCOEF(*mcus)[DCTSIZE2] = sk_scan_next(from->scan, left < im.tile ? left : im.tile);
				if (mcus == NULL)
					return SK_RETRY;
				take_scanned(k, &im, &s, mcus);
			} else {
				take_read(k, &im, &s, rows, col);
			}
			if (!reserve(out, tile_bound(s.first[s.ncomp])))
				return fail(message, DCT_MEMORY, "out of memory");
			const size_t n = pack_tile(k, &s, out->p + out->len);
			put16(out->p + table + 4 * (size_t)im.mrows + 2 * ((size_t)row * (size_t)im.tcols + (size_t)col),
			      (unsigned)n);
			out->len += n;
		}
	}
	return from->scan == NULL ? DCT_OK : sk_scan_end(from->scan);
}

struct dct_encoder {
	sk_scan *scan;
	dct_packer packer;
};

dct_encoder *dct_encoder_new(void)
{
	dct_encoder *e = malloc(sizeof *e);
	if (e != NULL && (e->scan = sk_scan_new()) == NULL) {
		free(e);
		return NULL;
	}
	return e;
}

void dct_encoder_free(dct_encoder *e)
{
	if (e == NULL)
		return;
	sk_scan_free(e->scan);
	free(e);
}

static int read_and_pack(j_decompress_ptr ci, reader *r, dct_encoder *e, dct_bytes *out, int tile, int plain,
                         char *message)
{
	if (setjmp(r->jump)) {
		char text[JMSG_LENGTH_MAX];
		if (r->damaged == JWRN_HIT_MARKER)
			return fail(message, DCT_INCOMPLETE, "the data ends early");
		const int code = r->damaged != 0 ? DCT_INCOMPLETE : code_of(r->em.msg_code);
		r->em.format_message((j_common_ptr)ci, text);
		snprintf(message, SK_MESSAGE, "%.150s", text);
		return code;
	}
	jpeg_read_header(ci, TRUE);
	int code = check_header(ci, message);
	if (code != DCT_OK)
		return code;
	coefficients from = {NULL, NULL};
	if (plain) {
		from.coefs = jpeg_read_coefficients(ci);
		code = check_complete(ci, message);
		if (code != DCT_OK)
			return code;
	} else {
		from.scan = e->scan;
		code = sk_scan_start(e->scan, ci);
		if (code != SK_OK)
			return code;
		for (int c = 0; c < ci->num_components; c++) {
			jpeg_component_info *info = &ci->comp_info[c];
			info->quant_table = info->quant_tbl_no >= 0 && info->quant_tbl_no < NUM_QUANT_TBLS
			                        ? ci->quant_tbl_ptrs[info->quant_tbl_no]
			                        : NULL;
			if (info->quant_table == NULL)
				return SK_RETRY;
		}
	}
	if (put_header(ci, out, tile > 0 ? tile : default_tile(ci)) == 0)
		return fail(message, DCT_MEMORY, "out of memory");
	return put_tiles(ci, &from, out, &e->packer, message);
}

static int convert(dct_encoder *e, dct_bytes *out, const uint8_t *jpeg, size_t n, int tile, int plain, char *message)
{
	struct jpeg_decompress_struct ci;
	reader r;
	memset(&r, 0, sizeof r);
	ci.err = jpeg_std_error(&r.em);
	r.em.error_exit = on_error;
	r.em.emit_message = on_message;
	r.em.output_message = no_output;
	if (setjmp(r.jump))
		return fail(message, DCT_MEMORY, "out of memory");
	jpeg_create_decompress(&ci);
	r.source.init_source = nothing;
	r.source.fill_input_buffer = refill;
	r.source.skip_input_data = skip;
	r.source.resync_to_restart = jpeg_resync_to_restart;
	r.source.term_source = nothing;
	r.source.next_input_byte = jpeg;
	r.source.bytes_in_buffer = n;
	ci.src = &r.source;
	r.progress.progress_monitor = on_progress;
	ci.progress = &r.progress;
	out->len = 0;
	const int code = read_and_pack(&ci, &r, e, out, tile, plain, message);
	jpeg_destroy_decompress(&ci);
	return code;
}

int dct_from_jpeg(dct_encoder *e, dct_bytes *out, const uint8_t *jpeg, size_t n, int tile, int plain,
                  char message[SK_MESSAGE])
{
	out->len = 0;
	if (n < 4 || jpeg[0] != 0xff || jpeg[1] != 0xd8)
		return fail(message, DCT_NOT_JPEG, "not a JPEG");
	int code = plain == 1 ? SK_RETRY : convert(e, out, jpeg, n, tile, 0, message);
	if (code == SK_RETRY && plain == DCT_ROWS_ONLY)
		return fail(message, DCT_INCOMPLETE, "all of it would be needed in memory");
	if (code == SK_RETRY)
		code = convert(e, out, jpeg, n, tile, 1, message);
	return code;
}
