// Libraries that are loaded when the program runs (load.c).
#ifndef STOKER_IMAGELIB_LOAD_H
#define STOKER_IMAGELIB_LOAD_H

#include <stddef.h>

// A function of a library, and the pointer that gets it.
typedef struct {
	const char *name;
	void *to;
} si_function;

// Loads the library at path and finds its functions. NULL, and why in err, where it cannot be used.
void *si_open(const char *path, const si_function *functions, size_t n, char *err, size_t size);

#endif
