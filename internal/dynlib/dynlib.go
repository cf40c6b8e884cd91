// Package dynlib finds shared libraries and loads them when they are first needed, so that one
// binary works on machines with and without them. Like cdec it is one of the few packages that
// import "C" or unsafe.
package dynlib

/*
#cgo CFLAGS: -O2 -Wall -Wextra -Werror -std=gnu11
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "open.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// Packages is the environment variable in which the Python package lists the library folders of other packages,
// separated by colons. An empty folder stands for the system.
const Packages = "STOKER_PACKAGE_LIBRARIES"

// ErrMissing is wrapped by the error for a library that cannot be loaded.
var ErrMissing = errors.New("a library is missing")

// Library is a shared library that is loaded once.
type Library struct {
	// Name is the library and Decodes the format that needs it, as used in messages: "libavif" and "AVIF".
	Name, Decodes string
	// Names are the library's files on systems, the newest first. Patterns match its files in
	// folders: wheels add digits to names.
	Names, Patterns []string
	// Folders is the environment variable with the folders that are searched first, with colons
	// between them. With Only, no others are searched if it is set.
	Folders string
	Only    bool
	// Install are commands that install the library.
	Install []string
	// Bind takes the library's functions from the file at path, and returns its version.
	Bind func(path string) (version string, err error)

	once  sync.Once
	found Found
	err   error
}

// Found is a library that was loaded.
type Found struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Load loads the library. The first answer stays.
func (l *Library) Load() (Found, error) {
	l.once.Do(func() { l.found, l.err = l.find() })
	return l.found, l.err
}

// Static reports whether this program is linked statically, and therefore cannot load libraries.
func Static() bool { return C.sd_can_load() == 0 }

func (l *Library) find() (Found, error) {
	if Static() {
		return Found{}, &Missing{l, "this program is static and cannot load libraries, which takes glibc 2.28 or newer", nil}
	}
	named := filepath.SplitList(os.Getenv(l.Folders))
	paths := l.in(named)
	if len(named) == 0 || !l.Only {
		paths = append(paths, l.in(Places())...)
	} else if len(paths) == 0 {
		return Found{}, &Missing{l, fmt.Sprintf("there is no %s in %s, which %s names", l.Name, strings.Join(named, ":"), l.Folders), l.Install}
	}
	var why []string
	for _, path := range paths {
		found, err := l.load(path)
		if err == nil {
			return found, nil
		}
		// A file that exists and cannot be used is reported, also if a dependency of it is missing.
		if !strings.HasPrefix(err.Error(), path+": cannot open shared object file: No such file") {
			why = append(why, path+": "+err.Error())
		}
	}
	if len(why) > 0 {
		return Found{}, &Missing{l, fmt.Sprintf("%s cannot be used (%s)", l.Name, strings.Join(why, "; ")), l.Install}
	}
	return Found{}, &Missing{l, l.Name + " was not found", l.Install}
}

// Places are the folders that are searched for every library, in this order: those of Python packages
// and of the conda environment, and System.
func Places() []string {
	folders := filepath.SplitList(os.Getenv(Packages))
	if !slices.Contains(folders, System) {
		folders = append(folders, System)
	}
	if prefix := os.Getenv("CONDA_PREFIX"); prefix != "" {
		folders = slices.Insert(folders, slices.Index(folders, System), filepath.Join(prefix, "lib"))
	}
	return folders
}

// System stands for the folders of the system's libraries.
const System = ""

// in lists the library's files in folders, the newest of each folder first.
func (l *Library) in(folders []string) (paths []string) {
	for _, folder := range folders {
		if folder == System {
			paths = append(paths, l.Names...)
			continue
		}
		for _, pattern := range l.Patterns {
			found, _ := filepath.Glob(filepath.Join(folder, pattern))
			slices.Sort(found)
			slices.Reverse(found)
			paths = append(paths, found...)
		}
	}
	return paths
}

func (l *Library) load(path string) (found Found, err error) {
	c, text := C.CString(path), [512]C.char{}
	defer C.free(unsafe.Pointer(c))
	lib := C.sd_open(c, &text[0], C.size_t(len(text)))
	if lib == nil {
		return found, errors.New(C.GoString(&text[0]))
	}
	if found.Version, err = l.Bind(path); err != nil {
		C.sd_close(lib)
		return found, err
	}
	C.sd_path(lib, &text[0], C.size_t(len(text)))
	found.Path = C.GoString(&text[0])
	return found, nil
}

// Missing is the error of a library that cannot be loaded.
type Missing struct {
	Library *Library
	// Why is the reason: "libavif was not found".
	Why string
	// Install are commands that help.
	Install []string
}

// Error implements error.
func (e *Missing) Error() string {
	text := fmt.Sprintf("%s needs %s, but %s", e.Library.Decodes, e.Library.Name, e.Why)
	if len(e.Install) > 0 {
		text += fmt.Sprintf(": %s, or set %s to its folder", strings.Join(e.Install, ", or "), e.Library.Folders)
	}
	return text
}

// Is reports that the error is ErrMissing.
func (e *Missing) Is(target error) bool { return target == ErrMissing }
