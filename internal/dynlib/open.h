// Shared libraries that are opened when the program runs.
#ifndef STOKER_DYNLIB_OPEN_H
#define STOKER_DYNLIB_OPEN_H

#include <stddef.h>

// Reports whether this program can load libraries: a static one cannot.
int sd_can_load(void);

// Opens the library at path. Returns NULL, and the reason in err, if it cannot be used.
void *sd_open(const char *path, char *err, size_t size);

// Writes the path of the file that was opened.
void sd_path(void *lib, char *path, size_t size);

void sd_close(void *lib);

#endif
