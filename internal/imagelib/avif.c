// libavif by dlopen. Only those heads of its structures are used that are the same in all versions from 0.9 on. The
// offset of the pixels of an avifRGBImage is found when the library is loaded.
#include "imagelib.h"
#include "load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { RGBA = 1, YUV444 = 1, ROOM = 256 };

typedef struct {
	uint32_t width, height, depth;
	int yuv_format;
} image_head;

typedef union {
	struct {
		uint32_t width, height, depth;
		int format;
	} head;
	uint64_t words[ROOM / 8];
} rgb_image;

static struct {
	void *lib;
	size_t pixels; // the word that points to the pixels; the size of a row follows
	const char *(*version)(void);
	image_head *(*empty)(void);
	image_head *(*image)(uint32_t, uint32_t, uint32_t, int);
	void (*destroy_image)(image_head *);
	void *(*create)(void);
	void (*destroy)(void *);
	int (*read)(void *, image_head *, const uint8_t *, size_t);
	const char *(*reason)(int);
	void (*defaults)(rgb_image *, const image_head *);
	int (*convert)(const image_head *, rgb_image *);
	void (*allocate)(rgb_image *); // gives a result in newer versions
	void (*free)(rgb_image *);
} avif;

// Finds the offset of the pixels of an avifRGBImage: the word that becomes a pointer when they are allocated, before
// the size of a row.
static int find_pixels(char *err, size_t size)
{
	image_head *image = avif.image(5, 3, 8, YUV444);
	rgb_image rgb, before;
	memset(&rgb, 0, sizeof rgb);
	size_t found = 0;
	if (image && image->width == 5 && image->height == 3 && image->depth == 8 && image->yuv_format == YUV444) {
		avif.defaults(&rgb, image);
		before = rgb;
		if (rgb.head.width == 5 && rgb.head.height == 3 && rgb.head.depth == 8 && rgb.head.format == RGBA) {
			avif.allocate(&rgb);
			for (size_t i = 2; i + 1 < ROOM / 8; i++)
				// A heap may begin anywhere, also below 4 GiB.
				if (!before.words[i] && rgb.words[i] > 4096 && (uint32_t)rgb.words[i + 1] == 4 * 5) {
					found = i;
					break;
				}
			if (found)
				avif.free(&rgb);
		}
	}
	if (image)
		avif.destroy_image(image);
	if (!found) {
		snprintf(err, size, "its structures are not those that are known");
		return SI_UNSUPPORTED;
	}
	avif.pixels = found;
	return SI_OK;
}

int si_load_avif(const char *path, char *text, size_t size)
{
	const si_function functions[] = {
		{"avifVersion", &avif.version},
		{"avifImageCreateEmpty", &avif.empty},
		{"avifImageCreate", &avif.image},
		{"avifImageDestroy", &avif.destroy_image},
		{"avifDecoderCreate", &avif.create},
		{"avifDecoderDestroy", &avif.destroy},
		{"avifDecoderReadMemory", &avif.read},
		{"avifResultToString", &avif.reason},
		{"avifRGBImageSetDefaults", &avif.defaults},
		{"avifImageYUVToRGB", &avif.convert},
		{"avifRGBImageAllocatePixels", &avif.allocate},
		{"avifRGBImageFreePixels", &avif.free},
	};
	void *lib = si_open(path, functions, sizeof functions / sizeof *functions, text, size);
	if (!lib)
		return SI_UNSUPPORTED;
	if (find_pixels(text, size) != SI_OK) {
		dlclose(lib);
		return SI_UNSUPPORTED;
	}
	snprintf(text, size, "%s", avif.version());
	avif.lib = lib;
	return SI_OK;
}

// The defaults of an avifDecoder that stand next to each other in all versions: the limit
// of images, and the flags of strictness.
enum { IMAGE_LIMIT = 12 * 3600 * 60, STRICT_PIXI = 1, STRICT_CLAP = 2, STRICT_ALL = 7, DECODER_WORDS = 24 };

// Accepts files that Pillow accepts: without "pixi", which phones leave out, and with an
// odd "clap".
static void be_lenient(uint32_t *decoder)
{
	for (int i = 0; i + 1 < DECODER_WORDS; i++)
		if (decoder[i] == IMAGE_LIMIT && decoder[i + 1] == STRICT_ALL) {
			decoder[i + 1] = STRICT_ALL & ~(STRICT_PIXI | STRICT_CLAP);
			return;
		}
}

int si_avif(const uint8_t *data, size_t size, const si_shape *want, uint8_t *pix, char *err, size_t err_size)
{
	void *d = avif.create();
	image_head *image = avif.empty();
	int rc = SI_MEMORY;
	if (d && image) {
		be_lenient(d);
		const int result = avif.read(d, image, data, size);
		rc = SI_DAMAGED;
		if (result) {
			snprintf(err, err_size, "libavif says: %s", avif.reason(result));
		} else if (image->width != want->width || image->height != want->height) {
			snprintf(err, err_size, "it is %u x %u pixels, its header says %u x %u", image->width, image->height,
			         want->width, want->height);
		} else {
			rgb_image rgb;
			memset(&rgb, 0, sizeof rgb);
			avif.defaults(&rgb, image);
			rgb.head.depth = 8 * (uint32_t)want->bytes; // to the whole range of which libavif scales
			rgb.head.format = RGBA;
			rgb.words[avif.pixels] = (uint64_t)(uintptr_t)pix;
			const uint32_t row = 4 * want->width * (uint32_t)want->bytes;
			memcpy(&rgb.words[avif.pixels + 1], &row, sizeof row);
			const int converted = avif.convert(image, &rgb);
			rc = converted ? SI_DAMAGED : SI_OK;
			if (converted)
				snprintf(err, err_size, "libavif says: %s", avif.reason(converted));
		}
	}
	if (image)
		avif.destroy_image(image);
	if (d)
		avif.destroy(d);
	return rc;
}
