// Functions of a library that package dynlib has loaded (load.c).
#ifndef STOKER_IMAGELIB_LOAD_H
#define STOKER_IMAGELIB_LOAD_H

#include <stddef.h>

// A function of a library, and the pointer that gets it.
typedef struct {
	const char *name;
	void *to;
} si_function;

// Finds the functions of the library at path. Returns NULL, and the reason in err, if it cannot be used.
void *si_open(const char *path, const si_function *functions, size_t n, char *err, size_t size);

#endif
