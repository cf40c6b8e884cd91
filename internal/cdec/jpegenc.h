// The JPEG encoder: used to generate data and by tests, never while loading.
#ifndef STOKER_JPEGENC_H
#define STOKER_JPEGENC_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
	int32_t width, height;
	int32_t components;     // 1: gray rows of width bytes, 3: RGB rows of 3*width bytes
	int32_t quality;        // 1 to 100, as in libjpeg
	int32_t h_samp, v_samp; // sampling of luma over that of chroma
	int32_t progressive, optimize;
	int32_t restart_mcus; // MCUs between restart markers, 0 for none
	int32_t rgb;          // keep RGB as the colour space of the file
	int32_t cmyk;         // 4 components stored as Adobe writes them; rows of 4*width bytes
	const uint8_t *exif, *icc;
	size_t exif_len, icc_len;
} sk_enc_params;

// Encodes one image. On success returns 0 and sets *out to the file, to be released with sk_jpeg_free. Otherwise
// returns 1 and sets message to the reason.
int sk_jpeg_encode(const sk_enc_params *p, const uint8_t *pixels, uint8_t **out, size_t *out_len, char *message,
                   size_t message_len);
void sk_jpeg_free(uint8_t *out);

#endif
