// JPEG with libjpeg-turbo: the pixels of a box. They are equal, bit for bit, to those of a full decode with the
// library's defaults (ISLOW, fancy upsampling), and therefore to those of Pillow and torchvision.
//
// Damage that is an error: a record whose pixels are not those that its writer meant is never served silently. The
// following warnings of libjpeg are therefore errors of the record: data that ends early, codes that do not exist,
// restart markers out of order. Pillow also refuses truncated files, but accepts bad codes. Tolerated, like in Pillow
// and torchvision: bytes before a marker, a missing end marker after complete data, unusual JFIF, Adobe and ICC
// markers. Rows below the box are not checked: damage there fails only the boxes that reach it (`stoker pack` and
// `stoker verify --decode` check every row).
#include "huffman.h"

#include <string.h>

#include <jerror.h>

// Fancy upsampling reads one chroma sample to each side, which is two pixels.
// With less around the box its outermost columns differ from a full decode.
#define MARGIN 2
// Rows decoded before they are passed on: libjpeg returns 1 to 4 at a time.
#define BAND_ROWS 8
// A progressive file may repeat scans without end; real ones have about ten.
#define MAX_SCANS 500

// ---- source manager: the whole file in memory

static void source_nothing(j_decompress_ptr ci) { (void)ci; }

static boolean source_fill(j_decompress_ptr ci)
{
	static const JOCTET end_of_image[2] = {0xff, JPEG_EOI};
	((sk_dec *)ci->client_data)->ran_out = 1;
	ci->src->next_input_byte = end_of_image;
	ci->src->bytes_in_buffer = 2;
	return TRUE;
}

static void source_skip(j_decompress_ptr ci, long n)
{
	if (n <= 0)
		return;
	if ((size_t)n > ci->src->bytes_in_buffer) {
		source_fill(ci);
		return;
	}
	ci->src->next_input_byte += n;
	ci->src->bytes_in_buffer -= (size_t)n;
}

// libjpeg keeps the tables of an image for the next one, which may lack its own. Here each image is independent, so
// the tables are discarded. libjpeg holds their memory until the object is destroyed. The object is therefore
// recreated often enough that the list of tables, which is searched for each new table, stays short.
#define IMAGES_PER_OBJECT 16
// The memory of discarded tables counts towards the limit for an image. If the limit is so small that this matters,
// the object is recreated for each image.
#define TIGHT_MEMORY (8 << 20)

static void create(sk_dec *d)
{
	jpeg_create_decompress(&d->ci); // keeps err and client_data
	d->ci.progress = &d->progress;
	d->ci.mem->max_memory_to_use = (long)d->max_memory;
	d->images = 0;
}

static void source_from(sk_dec *d, const uint8_t *src, size_t n)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	int tight = d->max_memory > 0 && d->max_memory < TIGHT_MEMORY;
	if (ci->mem == NULL || ++d->images == IMAGES_PER_OBJECT || tight) {
		jpeg_destroy_decompress(ci);
		create(d);
	}
	for (int i = 0; i < NUM_QUANT_TBLS; i++)
		ci->quant_tbl_ptrs[i] = NULL;
	for (int i = 0; i < NUM_HUFF_TBLS; i++)
		ci->dc_huff_tbl_ptrs[i] = ci->ac_huff_tbl_ptrs[i] = NULL;
	d->ran_out = 0;
	d->source.next_input_byte = src;
	d->source.bytes_in_buffer = n;
	ci->src = &d->source;
}

// ---- errors

static int code_of(int libjpeg_code)
{
	switch (libjpeg_code) {
	case JERR_BAD_PRECISION:
	case JERR_SOF_UNSUPPORTED:
	case JERR_CONVERSION_NOTIMPL:
	case JERR_ARITH_NOTIMPL:
	case JERR_NOT_COMPILED:
	case JERR_FRACT_SAMPLE_NOTIMPL:
	case JERR_CCIR601_NOTIMPL:
	case JERR_BAD_J_COLORSPACE: return SK_UNSUPPORTED;
	case JERR_OUT_OF_MEMORY: return SK_NO_MEMORY;
	case JERR_NO_BACKING_STORE: // more than max_memory
		return SK_OVER_MEMORY;
	case JERR_IMAGE_TOO_BIG: return SK_LIMIT;
	}
	return SK_CORRUPT;
}

static void on_error(j_common_ptr ci)
{
	sk_dec *d = ci->client_data;
	char text[JMSG_LENGTH_MAX];
	d->jcode = code_of(ci->err->msg_code);
	if (ci->err->msg_code == JERR_BAD_PRECISION) {
		sk_fail(d, d->jcode, "a JPEG with %d bits per sample; only 8 are supported", ci->err->msg_parm.i[0]);
	} else if (ci->err->msg_code == JERR_NO_BACKING_STORE) {
		sk_fail(d, d->jcode, "the JPEG takes more than the %lld MiB of memory that there are for it",
		        (long long)(d->max_memory >> 20));
	} else {
		ci->err->format_message(ci, text);
		sk_fail(d, d->jcode, "%s", text);
	}
	longjmp(d->jump, 1);
}

static void on_message(j_common_ptr ci, int level)
{
	if (level >= 0)
		return;
	ci->err->num_warnings++;
	switch (ci->err->msg_code) {
	case JWRN_HIT_MARKER:
		if (((sk_dec *)ci->client_data)->ran_out) {
			sk_dec *d = ci->client_data;
			d->jcode = sk_fail(d, SK_CORRUPT, "the JPEG is truncated: its data ends before the image does");
			longjmp(d->jump, 1);
		}
		on_error(ci);
		break;
	case JWRN_HUFF_BAD_CODE:
	case JWRN_MUST_RESYNC:
	case JWRN_BOGUS_PROGRESSION: on_error(ci); break;
	}
}

static void on_output(j_common_ptr ci) { (void)ci; }

static void on_progress(j_common_ptr ci)
{
	sk_dec *d = ci->client_data;
	if (d->ci.input_scan_number > MAX_SCANS) {
		d->jcode = sk_fail(d, SK_LIMIT, "the JPEG has more than %d scans", MAX_SCANS);
		longjmp(d->jump, 1);
	}
}

int sk_jpeg_failed(sk_dec *d)
{
	jpeg_abort_decompress(&d->ci);
	return d->jcode;
}

int sk_jpeg_init(sk_dec *d)
{
	d->ci.err = jpeg_std_error(&d->em);
	d->em.error_exit = on_error;
	d->em.emit_message = on_message;
	d->em.output_message = on_output;
	d->ci.client_data = d;
	if (setjmp(d->jump)) {
		jpeg_destroy_decompress(&d->ci);
		return d->jcode;
	}
	create(d);
	d->source.init_source = source_nothing;
	d->source.fill_input_buffer = source_fill;
	d->source.skip_input_data = source_skip;
	d->source.resync_to_restart = jpeg_resync_to_restart;
	d->source.term_source = source_nothing;
	d->progress.progress_monitor = on_progress;
	return SK_OK;
}

// ---- decoding

static void fail_jump(sk_dec *d, int code)
{
	if (code == SK_OK)
		return;
	d->jcode = code;
	longjmp(d->jump, 1);
}

// Options that all decoding has in common.
static void usual_options(sk_dec *d)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	fail_jump(d, sk_check_size(d, ci->image_width, ci->image_height));
	if (ci->arith_code)
		fail_jump(d, sk_fail(d, SK_UNSUPPORTED, "a JPEG with arithmetic coding; only Huffman coding is supported"));
	ci->dct_method = JDCT_ISLOW;
	ci->do_fancy_upsampling = TRUE;
}

// Chooses output colour space and decoding options before jpeg_start_decompress. May leave with a longjmp.
static void set_options(sk_dec *d)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	usual_options(d);
	switch (ci->jpeg_color_space) {
	case JCS_GRAYSCALE: ci->out_color_space = JCS_GRAYSCALE; break;
	case JCS_YCbCr:
	case JCS_RGB: ci->out_color_space = JCS_EXT_RGBX; break;
	case JCS_CMYK:
	case JCS_YCCK: ci->out_color_space = JCS_CMYK; break;
	default:
		fail_jump(d,
		          sk_fail(d, SK_UNSUPPORTED, "a JPEG with %d components of no known colour space", ci->num_components));
	}
}

// Pillow's way from CMYK to RGB: JPEGs hold inverted values (Adobe's habit,
// which Pillow takes for granted), and black scales the other inks.
static void cmyk_to_rgbx(uint8_t *p, int n)
{
	for (int i = 0; i < n; i++, p += 4) {
		unsigned k = p[3]; // stored inverted: 255 - ink
		for (int c = 0; c < 3; c++) {
			unsigned t = (255u - p[c]) * k + 128;
			unsigned ink = ((t >> 8) + t) >> 8;
			p[c] = k > ink ? (uint8_t)(k - ink) : 0;
		}
		p[3] = 255;
	}
}

// Whether crop and skip keep every pixel of a full decode.
static int partial_is_exact(const struct jpeg_decompress_struct *ci)
{
	// A progressive file whose last scans are missing is smoothed across blocks. At the edge of a crop, libjpeg does
	// that differently.
	if (ci->progressive_mode && ci->coef_bits != NULL)
		for (int c = 0; c < ci->num_components; c++)
			for (int k = 0; k < DCTSIZE2; k++)
				if (ci->coef_bits[c][k] != 0)
					return 0;
	return 1;
}

// Crops, skips and loops over the rows after jpeg_start_decompress, with the pixels of a full decode. It ends with
// jpeg_abort_decompress.
static int emit_box(sk_dec *d, int x, int y, int w, int h, sk_sink *sink)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	const int partial = partial_is_exact(ci);
	const int px = ci->out_color_components;
	JDIMENSION left = 0, width = ci->output_width;

	if (ci->inputctl->has_multiple_scans && d->ran_out)
		fail_jump(d, sk_fail(d, SK_CORRUPT, "the JPEG is truncated: its scans do not end"));
	if (partial && (JDIMENSION)w < width) {
		JDIMENSION right = (JDIMENSION)(x + w + MARGIN);
		left = x > MARGIN ? (JDIMENSION)(x - MARGIN) : 0;
		if (right > width)
			right = width;
		width = right - left;
		jpeg_crop_scanline(ci, &left, &width); // moves left down to a block
	}
	const size_t stride = ((size_t)ci->output_width * (size_t)px + SK_PAD + 63) & ~(size_t)63;
	uint8_t *band = sk_need(&d->band, stride * BAND_ROWS);
	if (band == NULL)
		fail_jump(d, sk_fail(d, SK_NO_MEMORY, "no memory for %zu bytes of decoded rows", stride * BAND_ROWS));
	JSAMPROW rows[BAND_ROWS];
	for (int i = 0; i < BAND_ROWS; i++)
		rows[i] = band + stride * (size_t)i;

	if (partial && y > 0)
		jpeg_skip_scanlines(ci, (JDIMENSION)y);
	while (ci->output_scanline < (JDIMENSION)y)
		jpeg_read_scanlines(ci, rows, 1);

	const uint8_t *px0 = band + (size_t)((JDIMENSION)x - left) * (size_t)px;
	const JDIMENSION end = (JDIMENSION)(y + h);
	sink->px = px;
	while (ci->output_scanline < end) {
		// Fill the band before it is handed on: reading rows with wide loads
		// right after libjpeg wrote them with narrower stores would stall.
		int got = 0;
		while (got < BAND_ROWS && ci->output_scanline < end) {
			const JDIMENSION want = end - ci->output_scanline, room = (JDIMENSION)(BAND_ROWS - got);
			got += (int)jpeg_read_scanlines(ci, rows + got, want < room ? want : room);
		}
		if (ci->out_color_space == JCS_CMYK)
			for (int i = 0; i < got; i++)
				cmyk_to_rgbx(rows[i], (int)ci->output_width);
		int code = sink->rows(sink, px0, (ptrdiff_t)stride, got);
		if (code != SK_OK) {
			jpeg_abort_decompress(ci);
			return code;
		}
	}
	jpeg_abort_decompress(ci);
	return SK_OK;
}

int sk_jpeg_decode_box(sk_dec *d, const uint8_t *src, size_t n, int x, int y, int w, int h, sk_sink *sink)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	if (setjmp(d->jump))
		return sk_jpeg_failed(d);
	source_from(d, src, n);
	jpeg_read_header(ci, TRUE);
	set_options(d);
	fail_jump(d, sk_check_box(d, (int)ci->image_width, (int)ci->image_height, x, y, w, h));
	jpeg_start_decompress(ci);
	if (!d->plain)
		fail_jump(d, sk_huffman_start(d));
	return emit_box(d, x, y, w, h, sink);
}

static int emit_full(sk_dec *d, uint8_t *dst, size_t dst_len, int *w, int *h)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	jpeg_read_header(ci, TRUE);
	set_options(d);
	if (ci->out_color_space != JCS_CMYK)
		ci->out_color_space = JCS_RGB;
	*w = (int)ci->image_width;
	*h = (int)ci->image_height;
	const size_t width = ci->image_width, need = width * ci->image_height * 3;
	if (need > dst_len)
		fail_jump(d, sk_fail(d, SK_BAD_ARGUMENT, "the image of %dx%d pixels needs %zu bytes, not %zu", *w, *h, need,
		                     dst_len));
	jpeg_start_decompress(ci);
	if (ci->inputctl->has_multiple_scans && d->ran_out)
		fail_jump(d, sk_fail(d, SK_CORRUPT, "the JPEG is truncated: its scans do not end"));
	const size_t px = (size_t)ci->out_color_components;
	uint8_t *row = sk_need(&d->band, width * px);
	if (row == NULL)
		fail_jump(d, sk_fail(d, SK_NO_MEMORY, "no memory for a row of %d pixels", *w));
	while (ci->output_scanline < ci->output_height) {
		JSAMPROW rows[1] = {px == 3 ? dst : row};
		jpeg_read_scanlines(ci, rows, 1);
		if (px == 3) {
			dst += width * 3;
			continue;
		}
		cmyk_to_rgbx(row, *w);
		for (size_t i = 0; i < width; i++, dst += 3)
			memcpy(dst, row + i * px, 3);
	}
	jpeg_finish_decompress(ci);
	return SK_OK;
}

int sk_jpeg_decode_full(sk_dec *d, const uint8_t *src, size_t n, uint8_t *dst, size_t dst_len, int *w, int *h)
{
	if (setjmp(d->jump))
		return sk_jpeg_failed(d);
	source_from(d, src, n);
	return emit_full(d, dst, dst_len, w, h);
}

static int emit_samples(sk_dec *d, uint8_t *dst, size_t dst_len, int *w, int *h, int *channels)
{
	struct jpeg_decompress_struct *ci = &d->ci;
	jpeg_read_header(ci, TRUE);
	usual_options(d);
	ci->out_color_space = ci->jpeg_color_space;
	if (ci->jpeg_color_space == JCS_YCbCr)
		ci->out_color_space = JCS_RGB;
	*w = (int)ci->image_width;
	*h = (int)ci->image_height;
	*channels = ci->num_components;
	const size_t row = (size_t)ci->image_width * (size_t)ci->num_components, need = row * ci->image_height;
	if (need > dst_len)
		fail_jump(d, sk_fail(d, SK_BAD_ARGUMENT, "the JPEG of %d x %d pixels needs %zu bytes, not %zu", *w, *h, need,
		                     dst_len));
	jpeg_start_decompress(ci);
	if (ci->inputctl->has_multiple_scans && d->ran_out)
		fail_jump(d, sk_fail(d, SK_CORRUPT, "the JPEG is truncated: its scans do not end"));
	while (ci->output_scanline < ci->output_height) {
		JSAMPROW rows[1] = {dst};
		jpeg_read_scanlines(ci, rows, 1);
		dst += row;
	}
	jpeg_abort_decompress(ci);
	return SK_OK;
}

int sk_jpeg_decode_samples(sk_dec *d, const uint8_t *src, size_t n, uint8_t *dst, size_t dst_len, int *w, int *h,
                           int *channels)
{
	if (setjmp(d->jump))
		return sk_jpeg_failed(d);
	source_from(d, src, n);
	return emit_samples(d, dst, dst_len, w, h, channels);
}

const char *sk_message(const sk_dec *d) { return d->message; }
