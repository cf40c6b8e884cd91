// dct -> JPEG: the same coefficients and tables, so the same pixels.
#include "sk.h"

#include <stdlib.h>
#include <string.h>

#include "dct.h"

// The maximum size of the part of a profile in an APP2 segment, after its 14 bytes of header.
#define ICC_PIECE 65519
#define OUT_STEP ((size_t)1 << 16)

// Lives on the heap, so that nothing is indeterminate after a longjmp.
typedef struct {
	struct jpeg_compress_struct ci;
	struct jpeg_error_mgr em;
	struct jpeg_destination_mgr dest;
	jmp_buf jump;
	dct_bytes *out;
	jvirt_barray_ptr coefs[DCT_MAX_COMPS];
	int no_memory;
} maker;

static void on_error(j_common_ptr ci) { longjmp(((maker *)ci->client_data)->jump, 1); }

static void on_message(j_common_ptr ci, int level)
{
	(void)ci;
	(void)level;
}

static void no_output(j_common_ptr ci) { (void)ci; }

// Grows the buffer by at least half of its size.
static void grow(maker *m)
{
	dct_bytes *b = m->out;
	const size_t cap = b->cap + b->cap / 2 + OUT_STEP;
	uint8_t *p = realloc(b->p, cap);
	if (p == NULL) {
		m->no_memory = 1;
		longjmp(m->jump, 1);
	}
	b->p = p;
	b->cap = cap;
	m->dest.next_output_byte = p + b->len;
	m->dest.free_in_buffer = cap - b->len;
}

static void dest_init(j_compress_ptr ci)
{
	maker *m = ci->client_data;
	m->out->len = 0;
	grow(m);
}

static boolean dest_full(j_compress_ptr ci)
{
	maker *m = ci->client_data;
	m->out->len = m->out->cap;
	grow(m);
	return TRUE;
}

static void dest_done(j_compress_ptr ci)
{
	maker *m = ci->client_data;
	m->out->len = m->out->cap - m->dest.free_in_buffer;
}

static int fail(char *message, const char *text)
{
	snprintf(message, SK_MESSAGE, "dct: %s", text);
	return DCT_NOT_JPEG;
}

static void put_icc(j_compress_ptr ci, const uint8_t *icc, size_t n)
{
	const unsigned pieces = (unsigned)((n + ICC_PIECE - 1) / ICC_PIECE);
	for (unsigned i = 0; i < pieces; i++) {
		const size_t from = (size_t)i * ICC_PIECE, len = n - from < ICC_PIECE ? n - from : ICC_PIECE;
		jpeg_write_m_header(ci, JPEG_APP0 + 2, (unsigned)len + 14);
		for (const char *s = "ICC_PROFILE"; *s != 0; s++)
			jpeg_write_m_byte(ci, *s);
		jpeg_write_m_byte(ci, 0);
		jpeg_write_m_byte(ci, (int)i + 1);
		jpeg_write_m_byte(ci, (int)pieces);
		for (size_t k = 0; k < len; k++)
			jpeg_write_m_byte(ci, icc[from + k]);
	}
}

// Sets the properties of the image in the compressor.
static void set_image(j_compress_ptr ci, const dct_image *im, jpeg_scan_info scans[DCT_MAX_COMPS])
{
	ci->image_width = (JDIMENSION)im->w;
	ci->image_height = (JDIMENSION)im->h;
	ci->input_components = im->ncomp;
	ci->in_color_space = im->ncomp == 1 ? JCS_GRAYSCALE : JCS_YCbCr;
	jpeg_set_defaults(ci);
	ci->optimize_coding = TRUE;
	for (int t = 0; t < im->ntables; t++) {
		if (ci->quant_tbl_ptrs[t] == NULL)
			ci->quant_tbl_ptrs[t] = jpeg_alloc_quant_table((j_common_ptr)ci);
		memcpy(ci->quant_tbl_ptrs[t]->quantval, im->quant[t], sizeof im->quant[t]);
		ci->quant_tbl_ptrs[t]->sent_table = FALSE;
	}
	int blocks = 0;
	for (int c = 0; c < im->ncomp; c++) {
		ci->comp_info[c].h_samp_factor = im->comp[c].h;
		ci->comp_info[c].v_samp_factor = im->comp[c].v;
		ci->comp_info[c].quant_tbl_no = im->comp[c].table;
		blocks += im->comp[c].h * im->comp[c].v;
	}
	// An MCU of a scan with several components has at most 10 blocks; with
	// more, each component gets its own scan.
	if (blocks <= C_MAX_BLOCKS_IN_MCU)
		return;
	for (int c = 0; c < im->ncomp; c++)
		scans[c] = (jpeg_scan_info){.comps_in_scan = 1, .component_index = {c}, .Ss = 0, .Se = 63, .Ah = 0, .Al = 0};
	ci->scan_info = scans;
	ci->num_scans = im->ncomp;
}

// Copies a tile's coefficients to libjpeg's arrays.
static void take_tile(void *to, const dct_image *im, int row, int col, const dct_shape *s, const dct_work *w)
{
	maker *m = to;
	for (int c = 0, b = 0; c < im->ncomp; c++) {
		const dct_comp *k = &im->comp[c];
		JBLOCKARRAY rows = m->ci.mem->access_virt_barray((j_common_ptr)&m->ci, m->coefs[c], (JDIMENSION)(row * k->v),
		                                                 (JDIMENSION)k->v, TRUE);
		for (int y = 0; y < s->bh[c]; y++)
			for (int x = 0; x < s->bw[c]; x++, b++)
				memcpy(rows[y][col * im->tile * k->h + x], w->coef[b], sizeof w->coef[b]);
	}
}

static int make(maker *m, const dct_image *im, const uint8_t *exif, size_t exif_len, const uint8_t *icc, size_t icc_len,
                char *message)
{
	j_compress_ptr ci = &m->ci;
	jpeg_scan_info scans[DCT_MAX_COMPS];
	ci->err = jpeg_std_error(&m->em);
	m->em.error_exit = on_error;
	m->em.emit_message = on_message;
	m->em.output_message = no_output;
	ci->client_data = m;
	if (setjmp(m->jump)) {
		char text[JMSG_LENGTH_MAX];
		if (m->no_memory)
			return fail(message, "out of memory");
		m->em.format_message((j_common_ptr)ci, text);
		snprintf(message, SK_MESSAGE, "dct: writing a JPEG: %.150s", text);
		return DCT_NOT_JPEG;
	}
	jpeg_create_compress(ci);
	ci->client_data = m; // cleared by the line before
	m->dest.init_destination = dest_init;
	m->dest.empty_output_buffer = dest_full;
	m->dest.term_destination = dest_done;
	ci->dest = &m->dest;
	set_image(ci, im, scans);
	for (int c = 0; c < im->ncomp; c++) {
		const dct_comp *k = &im->comp[c];
		m->coefs[c] = ci->mem->request_virt_barray((j_common_ptr)ci, JPOOL_IMAGE, FALSE, (JDIMENSION)(im->mcols * k->h),
		                                           (JDIMENSION)(im->mrows * k->v), (JDIMENSION)k->v);
	}
	jpeg_write_coefficients(ci, m->coefs);
	if (exif_len > 0)
		jpeg_write_marker(ci, JPEG_APP0 + 1, exif, (unsigned)exif_len);
	if (icc_len > 0)
		put_icc(ci, icc, icc_len);
	const char *wrong = dct_each_tile(im, take_tile, m);
	if (wrong != NULL)
		return fail(message, wrong);
	jpeg_finish_compress(ci);
	return DCT_OK;
}

int dct_to_jpeg(dct_bytes *out, const uint8_t *src, size_t n, const uint8_t *exif, size_t exif_len, const uint8_t *icc,
                size_t icc_len, char message[SK_MESSAGE])
{
	dct_image im;
	const char *wrong = dct_parse(&im, src, n);
	if (wrong != NULL)
		return fail(message, wrong);
	if ((int64_t)im.w * im.h > SK_MAX_PIXELS)
		return fail(message, "too many pixels");
	if (exif_len > 65533)
		return fail(message, "more EXIF than a segment holds");
	if (icc_len > (size_t)255 * ICC_PIECE)
		return fail(message, "more ICC profile than a JPEG holds");
	maker *m = calloc(1, sizeof *m);
	if (m == NULL)
		return fail(message, "out of memory");
	m->out = out;
	const int code = make(m, &im, exif, exif_len, icc, icc_len, message);
	jpeg_destroy_compress(&m->ci);
	free(m);
	return code;
}
