// Package formattest writes small datasets in the formats that Stoker reads, for the table of formats in
// source/formats_table_test.go and for the tests of single formats.
package formattest

import (
	"bytes"
	"compress/gzip"
)

// Gzip compresses b.
func Gzip(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a bytes.Buffer does not fail
	_ = z.Close()
	return out.Bytes()
}
