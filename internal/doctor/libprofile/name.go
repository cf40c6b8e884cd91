package libprofile

import (
	"path"
	"strings"
)

// Names for code that is not in a library.
const (
	Python = "Python" // the interpreter itself
	C      = "libc"   // the C library, which others have called
	Made   = "code made at run time"
)

// Name returns the usual name of a mapped file: "libhdf5", "libz", "PIL", "Python". A library bundled in a wheel gets
// its ordinary name.
func Name(file string) string {
	file = strings.TrimSuffix(file, " (deleted)")
	base := path.Base(file)
	switch {
	case file == "" || strings.HasPrefix(file, "/memfd:") || strings.HasPrefix(file, "//anon"):
		return Made
	case strings.HasPrefix(file, "["):
		return C // [vdso]: the clock
	case strings.HasPrefix(base, "python"), strings.HasPrefix(base, "libpython"), strings.HasPrefix(base, "pypy"), strings.HasPrefix(base, "libpypy"):
		return Python
	case strings.HasPrefix(base, "libc.so"), strings.HasPrefix(base, "libc-"), strings.HasPrefix(base, "libm.so"), strings.HasPrefix(base, "libm-"),
		strings.HasPrefix(base, "ld-linux"), strings.HasPrefix(base, "ld-musl"), strings.HasPrefix(base, "libpthread"):
		return C
	}
	name, _, ok := strings.Cut(base, ".so")
	if !ok {
		return base // a program
	}
	name, _, _ = strings.Cut(name, ".cpython-")
	name, _, _ = strings.Cut(name, ".abi3")
	if strings.HasPrefix(name, "lib") {
		// libjpeg-9ab123ef.so.62 of a wheel, libhdf5_serial.so.103 of Debian.
		if stem, tag, ok := cutLast(name, "-"); ok && isTag(tag) {
			name = stem
		}
		return strings.TrimSuffix(name, "_serial")
	}
	for _, folder := range []string{"/site-packages/", "/dist-packages/"} {
		if _, rest, ok := strings.Cut(file, folder); ok {
			if owner, _, ok := strings.Cut(rest, "/"); ok {
				return strings.TrimSuffix(owner, ".libs")
			}
		}
	}
	return name
}

// isTag reports whether text is a suffix that a wheel adds to a library's name: eight hexadecimal digits, or a
// version.
func isTag(text string) bool {
	return text != "" && strings.Trim(text, "0123456789abcdef.") == ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// works lists the work of libraries that often slow down data paths, by the first letters of their names.
var works = []struct{ library, does string }{
	{"libz", "inflating (gzip, PNG, zip)"}, {"zlib", "inflating (gzip, PNG, zip)"}, {"libdeflate", "inflating (gzip)"}, {"libisal", "inflating (gzip)"},
	{"libjpeg", "decoding JPEG"}, {"libturbojpeg", "decoding JPEG"}, {"libpng", "decoding PNG"}, {"libwebp", "decoding WebP"},
	{"libsharpyuv", "decoding WebP"}, {"libtiff", "decoding TIFF"}, {"libopenjp2", "decoding JPEG 2000"}, {"libaom", "decoding AVIF"}, {"libdav1d", "decoding AV1"},
	{"libavcodec", "decoding video or sound"}, {"libavformat", "reading video or sound"}, {"libswscale", "converting video"}, {"libx264", "encoding video"},
	{"libopus", "decoding sound"}, {"libvorbis", "decoding sound"}, {"libFLAC", "decoding sound"}, {"libmpg123", "decoding sound"}, {"libsndfile", "reading sound"},
	{"libzstd", "decompressing (zstd)"}, {"libz-ng", "inflating"}, {"liblz4", "decompressing (lz4)"}, {"libsnappy", "decompressing (snappy)"}, {"libblosc", "decompressing (blosc)"},
	{"libbz2", "decompressing (bzip2)"}, {"liblzma", "decompressing (xz)"}, {"libbrotli", "decompressing (brotli)"},
	{"libhdf5", "HDF5"}, {"libnetcdf", "netCDF"}, {"libsqlite3", "SQLite"}, {"liblmdb", "LMDB"}, {"lmdb", "LMDB"}, {"librocksdb", "RocksDB"},
	{"libarrow", "Arrow"}, {"libparquet", "Parquet"}, {"libssl", "encryption"}, {"libcrypto", "encryption"},
}

// Does returns the purpose of a library, if known: "decoding JPEG".
func Does(library string) string {
	best, does := 0, ""
	for _, w := range works {
		if len(w.library) > best && strings.HasPrefix(library, w.library) {
			best, does = len(w.library), w.does
		}
	}
	return does
}
