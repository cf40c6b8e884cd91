//go:build asan || race || msan

package transform

// instrumented builds allocate where others do not.
const instrumented = true
