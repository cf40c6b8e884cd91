// The decoding rate of one core without a loader: JPEGs in memory -> RandomResizedCrop 224 + flip -> u8 batch rows.
//
//   decode ROUNDS LIST     LIST: one JPEG path per line
//
// Variants, each over all images with the same boxes, in a new random order in each round:
//   huffman   entropy decoding alone (jpeg_read_coefficients)
//   decode    full decode to RGBX, no resize
//   full      full decode to RGBX, then the resize
//   partial   the usual way to decode less with libjpeg-turbo: crop, skip, stop early; then the resize
//   keep      the product's JPEG path, called from C
//   dct       the product's dct path, called from C
// full and partial use the product's own resize on the decoded pixels, so that only the decoding differs. full,
// partial, keep and dct must all give the same bytes. If they do not, the program fails with an error.
//
// One line of JSON per round and variant; images per second of CPU time.
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

#include "dct.h"

enum { SIZE = 224, ROW = SIZE * SIZE * 3, PADDING = 64, MARGIN = 2, TILE = 0 /* the codec's own choice */ };

typedef struct {
	unsigned char *jpeg, *dct;
	size_t jpeg_len, dct_len;
	int w, h;
	sk_geom geom;
} image;

// CPU time, because load of other programs on the core must not count.
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what, const char *why)
{
	fprintf(stderr, "ceiling: %s: %s\n", what, why);
	exit(1);
}

static unsigned char *read_all(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		die(path, "cannot open");
	fseek(f, 0, SEEK_END);
	*len = (size_t)ftell(f);
	rewind(f);
	unsigned char *p = calloc(1, *len + PADDING);
	if (!p || fread(p, 1, *len, f) != *len)
		die(path, "cannot read");
	fclose(f);
	return p;
}

// xorshift64*, so that the boxes are the same on every machine.
static unsigned long long seed = 88172645463325252ull;
static double uniform(void)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (double)((seed * 2685821657736338717ull) >> 11) / 9007199254740992.0;
}

// torchvision's RandomResizedCrop(224), and a flip for half of the images.
static sk_geom draw(int w, int h)
{
	int cw = 0, ch = 0, x = 0, y = 0, found = 0;
	for (int i = 0; i < 10 && !found; i++) {
		double area = (double)w * h * (0.08 + 0.92 * uniform());
		double ratio = exp(log(0.75) + (log(4.0 / 3.0) - log(0.75)) * uniform());
		cw = (int)lround(sqrt(area * ratio));
		ch = (int)lround(sqrt(area / ratio));
		found = cw > 0 && cw <= w && ch > 0 && ch <= h;
		if (found) {
			x = (int)(uniform() * (w - cw + 1));
			y = (int)(uniform() * (h - ch + 1));
		}
	}
	if (!found) {
		cw = w < h ? w : h;
		ch = cw;
		x = (w - cw) / 2;
		y = (h - ch) / 2;
	}
	sk_geom g;
	memset(&g, 0, sizeof g);
	g.box_x = x, g.box_y = y, g.box_w = cw, g.box_h = ch;
	g.resize_w = g.resize_h = SIZE;
	g.win_w = g.win_h = SIZE;
	g.flip_h = uniform() < 0.5;
	g.filter = SK_BILINEAR;
	return g;
}

static sk_job job_of(const image *m, unsigned char *dst)
{
	sk_job j;
	memset(&j, 0, sizeof j);
	j.dst = dst;
	j.dst_len = ROW;
	j.geom = m->geom;
	j.store.dtype = SK_U8;
	j.store.layout = SK_NHWC;
	j.store.channels = 3;
	for (int c = 0; c < 3; c++)
		j.store.scale[c] = 1;
	return j;
}

static void run_job(sk_dec *d, sk_job *j)
{
	sk_run(d, sk_best_isa(), j, 1);
	if (j->code != SK_OK)
		die("sk_run", j->message);
}

// Resizes RGBX pixels of which the job's box is relative to (x0, y0).
static void resize(sk_dec *d, const image *m, unsigned char *px, int w, int h, int x0, int y0, unsigned char *dst)
{
	sk_job j = job_of(m, dst);
	j.format = SK_FORMAT_RGBX;
	j.src = px;
	j.src_len = (size_t)w * (size_t)h * 4 + PADDING;
	j.width = w, j.height = h, j.stride = (int64_t)w * 4;
	j.geom.box_x -= x0, j.geom.box_y -= y0;
	run_job(d, &j);
}

static void scanlines(struct jpeg_decompress_struct *c, unsigned char *out, int n)
{
	size_t stride = (size_t)c->output_width * 4;
	for (int got = 0; got < n;) {
		unsigned char *rows[8];
		int want = n - got < 8 ? n - got : 8;
		for (int k = 0; k < want; k++)
			rows[k] = out + (size_t)(got + k) * stride;
		got += (int)jpeg_read_scanlines(c, rows, (JDIMENSION)want);
	}
}

// One pass of a variant over one image. px holds the largest image as RGBX.
static void variant(const char *name, sk_dec *d, struct jpeg_decompress_struct *c, const image *m, unsigned char *px,
                    unsigned char *dst)
{
	if (!strcmp(name, "keep") || !strcmp(name, "dct")) {
		sk_job j = job_of(m, dst);
		int dct = name[0] == 'd';
		j.format = dct ? SK_FORMAT_DCT : SK_FORMAT_JPEG;
		j.src = dct ? m->dct : m->jpeg;
		j.src_len = dct ? m->dct_len : m->jpeg_len;
		run_job(d, &j);
		return;
	}
	jpeg_mem_src(c, m->jpeg, m->jpeg_len);
	jpeg_read_header(c, TRUE);
	if (!strcmp(name, "huffman")) {
		jpeg_read_coefficients(c);
		jpeg_abort_decompress(c);
		return;
	}
	c->out_color_space = JCS_EXT_RGBX;
	c->dct_method = JDCT_ISLOW;
	jpeg_start_decompress(c);
	if (strcmp(name, "partial")) {
		scanlines(c, px, m->h);
		jpeg_finish_decompress(c);
		if (!strcmp(name, "full"))
			resize(d, m, px, m->w, m->h, 0, 0, dst);
		return;
	}
	// Two pixels around the box, so that fancy upsampling sees its neighbours.
	int x = m->geom.box_x - MARGIN, y = m->geom.box_y - MARGIN;
	int r = m->geom.box_x + m->geom.box_w + MARGIN, b = m->geom.box_y + m->geom.box_h + MARGIN;
	x = x < 0 ? 0 : x, y = y < 0 ? 0 : y, r = r > m->w ? m->w : r, b = b > m->h ? m->h : b;
	JDIMENSION left = (JDIMENSION)x, width = (JDIMENSION)(r - x);
	jpeg_crop_scanline(c, &left, &width);
	if (y > 0)
		jpeg_skip_scanlines(c, (JDIMENSION)y);
	scanlines(c, px, b - y);
	int w = (int)c->output_width;
	jpeg_abort_decompress(c);
	resize(d, m, px, w, b - y, (int)left, y, dst);
}

// The dct form of an image. Returns 0 if there is none (for example, CMYK stays JPEG).
static int pack(image *m)
{
	dct_bytes out;
	char why[SK_MESSAGE];
	memset(&out, 0, sizeof out);
	int code = dct_from_jpeg(&out, m->jpeg, m->jpeg_len, sk_best_isa(), TILE, why);
	if (code == DCT_OK) {
		m->dct = realloc(out.p, out.len + PADDING);
		m->dct_len = out.len;
		return 1;
	}
	free(out.p);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		die("usage", "decode ROUNDS LIST");
	int rounds = atoi(argv[1]), n = 0;
	image *images = calloc(100000, sizeof *images);
	FILE *list = fopen(argv[2], "r");
	if (!list)
		die(argv[2], "cannot open");
	struct jpeg_error_mgr errors;
	struct jpeg_decompress_struct c;
	c.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&c);
	size_t most = 0;
	for (char line[4096]; n < 100000 && fgets(line, sizeof line, list); n++) {
		line[strcspn(line, "\n")] = 0;
		image *m = &images[n];
		m->jpeg = read_all(line, &m->jpeg_len);
		jpeg_mem_src(&c, m->jpeg, m->jpeg_len);
		jpeg_read_header(&c, TRUE);
		m->w = (int)c.image_width, m->h = (int)c.image_height;
		jpeg_abort_decompress(&c);
		m->geom = draw(m->w, m->h);
		size_t size = (size_t)m->w * (size_t)m->h * 4;
		most = size > most ? size : most;
	}
	fclose(list);
	double start = now();
	size_t jpeg_bytes = 0, dct_bytes = 0;
	for (int i = 0; i < n; i++) {
		if (!pack(&images[i]))
			die("dct", "an image of the list has no dct form; leave it out");
		jpeg_bytes += images[i].jpeg_len;
		dct_bytes += images[i].dct_len;
	}
	printf("{\"variant\": \"pack-dct\", \"round\": 0, \"images\": %d, \"images_s\": %.1f, \"bytes_ratio\": %.4f}\n", n,
	       n / (now() - start), (double)dct_bytes / (double)jpeg_bytes);
	unsigned char *px = calloc(1, most + PADDING), *dst = calloc(256, ROW), *want = calloc(1, ROW);
	sk_dec *d = sk_dec_new();
	if (!px || !dst || !want || !d)
		die("memory", "not enough");

	const char *names[] = {"full", "partial", "keep", "dct", "decode", "huffman"};
	int count = 6;
	for (int i = 0; i < n; i++) {
		variant("full", d, &c, &images[i], px, want);
		for (int v = 1; v < 4; v++) {
			memset(dst, 0, ROW);
			variant(names[v], d, &c, &images[i], px, dst);
			if (memcmp(dst, want, ROW))
				die(names[v], "other pixels than the full decode");
		}
	}
	for (int round = 0; round < rounds; round++) {
		for (int k = count - 1; k > 0; k--) {
			int o = (int)(uniform() * (k + 1));
			const char *t = names[k];
			names[k] = names[o], names[o] = t;
		}
		for (int v = 0; v < count; v++) {
			start = now();
			// The rows of a batch, one after another, like in a loader.
			for (int i = 0; i < n; i++)
				variant(names[v], d, &c, &images[i], px, dst + (size_t)(i % 256) * ROW);
			double rate = n / (now() - start);
			printf("{\"variant\": \"%s\", \"round\": %d, \"images\": %d, \"images_s\": %.1f}\n", names[v], round, n,
			       rate);
			fflush(stdout);
		}
	}
	sk_dec_free(d);
	jpeg_destroy_decompress(&c);
	return 0;
}
