package videodec

// #include <stdlib.h>
// #include "videodec.h"
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

// Folder is the environment variable that names the folder with FFmpeg's libraries.
const Folder = "STOKER_FFMPEG"

// names are the library as systems call it: those of FFmpeg 8 to 5.
var names = []string{"libavcodec.so.62", "libavcodec.so.61", "libavcodec.so.60", "libavcodec.so.59"}

// advice is what to do where there is no library.
const advice = "install FFmpeg's libraries (apt-get install libavcodec-extra, or pip install av beside stoker), or name their folder in " + Folder

var loading struct {
	sync.Once
	path string
	err  error
}

// Load loads libavcodec. What it finds the first time stays.
func Load() error {
	loading.Do(func() { loading.path, loading.err = load(os.Getenv(Folder)) })
	return loading.err
}

// Loaded says which library was loaded.
func Loaded() string { return fmt.Sprintf("%s (version %d)", loading.path, C.sv_version()) }

func load(folder string) (path string, err error) {
	if C.sv_can_load() == 0 {
		return "", errors.New("this program is linked statically and cannot load libavcodec; build it by make build, and name it in STOKER_BINARY")
	}
	paths := names
	if folder != "" {
		// Wheels have names with a number in between: libavcodec-5e6b81c2.so.62.28.102.
		if paths, err = filepath.Glob(filepath.Join(folder, "libavcodec*.so*")); err != nil || len(paths) == 0 {
			return "", fmt.Errorf("there is no libavcodec in %s, which %s names; %s", folder, Folder, advice)
		}
		slices.Sort(paths)
		slices.Reverse(paths)
	}
	var why []string
	for _, path := range paths {
		c, text := C.CString(path), [256]C.char{}
		rc := C.sv_load(c, &text[0], C.size_t(len(text)))
		C.free(unsafe.Pointer(c))
		if rc == C.SV_OK {
			return path, nil
		}
		if reason := C.GoString(&text[0]); folder != "" || !strings.Contains(reason, "No such file") {
			why = append(why, path+": "+reason)
		}
	}
	if len(why) > 0 {
		return "", fmt.Errorf("libavcodec cannot be used (%s); %s", strings.Join(why, "; "), advice)
	}
	return "", fmt.Errorf("libavcodec is needed for it, and is not on this machine; %s", advice)
}
