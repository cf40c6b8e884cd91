//go:build race

// Package racetest reports whether a test runs under the race detector, which needs memory of its own.
package racetest

// Enabled reports whether the race detector is on.
const Enabled = true
