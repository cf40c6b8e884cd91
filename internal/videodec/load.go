package videodec

// #include <stdlib.h>
// #include "videodec.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/stokerdata/stoker/internal/dynlib"
)

// Folder is the environment variable that names the folders with FFmpeg's libraries.
const Folder = "STOKER_FFMPEG"

var library = &dynlib.Library{
	Decodes: "video", Name: "libavcodec",
	// The versions of FFmpeg 8 to 5.
	Names: []string{"libavcodec.so.62", "libavcodec.so.61", "libavcodec.so.60", "libavcodec.so.59"},
	// Wheels have names with a number in between: libavcodec-5e6b81c2.so.62.28.102.
	Patterns: []string{"libavcodec*.so*"}, Folders: Folder, Only: true,
	Install: []string{"apt-get install ffmpeg", "pip install av", "conda install -c conda-forge ffmpeg"},
	Bind:    bind,
}

// formatLibrary is libavformat, which reads containers. Its version must match that of libavcodec.
var formatLibrary = &dynlib.Library{
	Decodes: "the file", Name: "libavformat",
	Names:    []string{"libavformat.so.62", "libavformat.so.61", "libavformat.so.60", "libavformat.so.59"},
	Patterns: []string{"libavformat*.so*"}, Folders: Folder, Only: true, Install: library.Install,
	Bind: bindFormat,
}

// LoadFormat loads libavformat and libavcodec.
func LoadFormat() error {
	_, err := library.Load()
	if err == nil {
		_, err = formatLibrary.Load()
	}
	return err
}

// Library returns libavcodec.
func Library() *dynlib.Library { return library }

// loaded describes the library that was loaded.
func loaded() string {
	found, _ := library.Load()
	return fmt.Sprintf("%s (libavcodec %s)", found.Path, found.Version)
}

func bindFormat(path string) (version string, err error) {
	c, text := C.CString(path), [256]C.char{}
	defer C.free(unsafe.Pointer(c))
	if C.sv_load_format(c, &text[0], C.size_t(len(text))) != C.SV_OK {
		return "", errors.New(C.GoString(&text[0]))
	}
	return C.GoString(&text[0]), nil
}

func bind(path string) (version string, err error) {
	c, text := C.CString(path), [256]C.char{}
	defer C.free(unsafe.Pointer(c))
	if C.sv_load(c, &text[0], C.size_t(len(text))) != C.SV_OK {
		return "", errors.New(C.GoString(&text[0]))
	}
	return C.GoString(&text[0]), nil
}
