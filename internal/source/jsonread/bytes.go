package jsonread

import "context"

// Bytes reads a value in memory without a copy. path and at are its origin, for messages.
func Bytes(b []byte, path string, at int64) *Reader {
	return &Reader{ctx: context.Background(), path: path, size: at + int64(len(b)), buf: b, at: at + int64(len(b))}
}
