// Voxels of volumes to floats.
#ifndef STOKER_VOXELS_H
#define STOKER_VOXELS_H

#include <stdint.h>

enum { SK_VOXELS_U8, SK_VOXELS_U16, SK_VOXELS_I16, SK_VOXELS_F32 };

// A box of voxels. All positions and steps are numbers of voxels.
typedef struct {
	int type;
	int scale, clip; // v * a + b; then at least `least` and at most `most`
	float a, b, least, most;
	int64_t channels, plane; // channels, and the voxels of each in src
	int64_t size[3];         // of dst
	int64_t lo[3], hi[3];    // the part of dst that is written
	int64_t start, step[3];  // the voxel of src at lo, and the distance of the next one along each axis
} sk_voxels;

// Writes the floats of the box; SK_UNREADABLE if a page of src cannot be read.
int sk_voxels_floats(float *dst, const uint8_t *src, const sk_voxels *v);

#endif
