#define _GNU_SOURCE
#include "open.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { MAX_NEEDED = 64, MAX_DEPTH = 8 };

int sd_can_load(void) { return getauxval(AT_BASE) != 0; }

// open_needed opens a library, and first what it needs from its own folder: only their own
// Python module knows where the libraries of a wheel are.
static void *open_needed(const char *path, int depth, char *err, size_t size)
{
	const char *slash = strrchr(path, '/');
	for (int i = 0; i < MAX_NEEDED; i++) {
		void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (lib)
			return lib;
		const char *why = dlerror();
		snprintf(err, size, "%s", why ? why : "it cannot be loaded");
		// "libneeded.so.1: cannot open shared object file: No such file or directory"
		const char *end = why ? strstr(why, ": cannot open shared object file") : NULL;
		char beside[PATH_MAX];
		if (!slash || !end || depth == 0 || memchr(why, '/', (size_t)(end - why)) ||
		    snprintf(beside, sizeof beside, "%.*s%.*s", (int)(slash + 1 - path), path, (int)(end - why), why) >=
		        (int)sizeof beside ||
		    access(beside, R_OK) != 0)
			return NULL;
		// It stays open: the library that needs it finds it by its name.
		if (!open_needed(beside, depth - 1, err, size))
			return NULL;
	}
	return NULL;
}

void *sd_open(const char *path, char *err, size_t size) { return open_needed(path, MAX_DEPTH, err, size); }

void sd_path(void *lib, char *path, size_t size)
{
	struct link_map *map = NULL;
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0])
		snprintf(path, size, "%s", map->l_name);
}

void sd_close(void *lib) { dlclose(lib); }
