//go:build asan || race || msan

package transform

// Instrumented builds allocate memory in more places.
const instrumented = true
