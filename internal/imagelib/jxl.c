// libjxl by dlopen. Its functions and the structures that they take are the same in all
// versions from 0.7 on; of the large one only the head is looked at.
#include "imagelib.h"
#include "load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MIN_VERSION = 7000 }; // 0.7.0
enum { DEC_SUCCESS = 0, DEC_ERROR = 1, NEED_MORE = 2, NEED_BUFFER = 5, BASIC_INFO = 0x40, FULL_IMAGE = 0x1000 };
enum { TYPE_UINT8 = 2, TYPE_UINT16 = 3, LITTLE = 1 };

typedef struct {
	uint32_t channels;
	int type, order;
	size_t align;
} pixel_format;

typedef struct {
	int have_container;
	uint32_t xsize, ysize;
	char rest[1024];
} basic_info;

static struct {
	void *lib;
	uint32_t (*version)(void);
	void *(*create)(const void *);
	void (*destroy)(void *);
	int (*subscribe)(void *, int);
	int (*input)(void *, const uint8_t *, size_t);
	void (*close)(void *);
	int (*process)(void *);
	int (*info)(const void *, basic_info *);
	int (*room)(const void *, const pixel_format *, size_t *);
	int (*buffer)(void *, const pixel_format *, void *, size_t);
} jxl;

int si_load_jxl(const char *path, char *text, size_t size)
{
	const si_function functions[] = {
		{"JxlDecoderVersion", &jxl.version},         {"JxlDecoderCreate", &jxl.create},
		{"JxlDecoderDestroy", &jxl.destroy},         {"JxlDecoderSubscribeEvents", &jxl.subscribe},
		{"JxlDecoderSetInput", &jxl.input},          {"JxlDecoderCloseInput", &jxl.close},
		{"JxlDecoderProcessInput", &jxl.process},    {"JxlDecoderGetBasicInfo", &jxl.info},
		{"JxlDecoderImageOutBufferSize", &jxl.room}, {"JxlDecoderSetImageOutBuffer", &jxl.buffer},
	};
	void *lib = si_open(path, functions, sizeof functions / sizeof *functions, text, size);
	if (!lib)
		return SI_UNSUPPORTED;
	const unsigned major = jxl.version() / 1000000, minor = jxl.version() / 1000 % 1000;
	snprintf(text, size, "%u.%u.%u", major, minor, jxl.version() % 1000);
	if (jxl.version() < MIN_VERSION) {
		snprintf(text, size, "it is version %u.%u; versions from 0.7 on are used", major, minor);
		dlclose(lib);
		return SI_UNSUPPORTED;
	}
	jxl.lib = lib;
	return SI_OK;
}

static int fail(char *err, size_t size, int code, const char *why)
{
	snprintf(err, size, "%s", why);
	return code;
}

static int decode(void *d, const si_shape *want, uint8_t *pix, char *err, size_t err_size)
{
	const pixel_format format = {(uint32_t)want->channels, want->bytes == 2 ? TYPE_UINT16 : TYPE_UINT8, LITTLE, 0};
	const size_t bytes = (size_t)want->width * want->height * (size_t)want->channels * (size_t)want->bytes;
	for (;;) {
		switch (jxl.process(d)) {
		case BASIC_INFO: {
			basic_info info;
			memset(&info, 0, sizeof info);
			if (jxl.info(d, &info) != DEC_SUCCESS)
				return fail(err, err_size, SI_DAMAGED, "its header makes no sense");
			if (info.xsize != want->width || info.ysize != want->height) {
				snprintf(err, err_size, "it is %u x %u pixels, its header says %u x %u", info.xsize, info.ysize,
				         want->width, want->height);
				return SI_DAMAGED;
			}
			break;
		}
		case NEED_BUFFER: {
			size_t room = 0;
			if (jxl.room(d, &format, &room) != DEC_SUCCESS || room != bytes ||
			    jxl.buffer(d, &format, pix, bytes) != DEC_SUCCESS)
				return fail(err, err_size, SI_UNSUPPORTED, "libjxl does not give its pixels in this form");
			break;
		}
		case FULL_IMAGE: // the first frame of several, or the only one
			return SI_OK;
		case NEED_MORE:
			return fail(err, err_size, SI_DAMAGED, "the image is truncated: its data ends before the image does");
		case DEC_SUCCESS: return fail(err, err_size, SI_DAMAGED, "there is no image in it");
		default: return fail(err, err_size, SI_DAMAGED, "its data makes no sense");
		}
	}
}

int si_jxl(const uint8_t *data, size_t size, const si_shape *want, uint8_t *pix, char *err, size_t err_size)
{
	void *d = jxl.create(NULL);
	if (!d)
		return SI_MEMORY;
	int rc = SI_DAMAGED;
	if (jxl.subscribe(d, BASIC_INFO | FULL_IMAGE) != DEC_SUCCESS || jxl.input(d, data, size) != DEC_SUCCESS) {
		fail(err, err_size, rc, "libjxl does not take it");
	} else {
		jxl.close(d);
		rc = decode(d, want, pix, err, err_size);
	}
	jxl.destroy(d);
	return rc;
}
