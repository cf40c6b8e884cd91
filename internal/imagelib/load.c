#include "load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NEEDED = 64, MAX_DEPTH = 8 };

// open_needed opens a library, and first what it needs of its own folder: wheels put
// libraries beside each other of which only their own module knows where they lie.
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
		// It stays open: the one that needs it finds it by its name.
		if (!open_needed(beside, depth - 1, err, size))
			return NULL;
	}
	return NULL;
}

void *si_open(const char *path, const si_function *functions, size_t n, char *err, size_t size)
{
	void *lib = open_needed(path, MAX_DEPTH, err, size);
	if (!lib)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		void *f = dlsym(lib, functions[i].name);
		if (!f) {
			snprintf(err, size, "it has no %s", functions[i].name);
			dlclose(lib);
			return NULL;
		}
		memcpy(functions[i].to, &f, sizeof f);
	}
	return lib;
}
