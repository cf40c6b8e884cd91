#include "load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void *si_open(const char *path, const si_function *functions, size_t n, char *err, size_t size)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(err, size, "it cannot be loaded");
		return NULL;
	}
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
