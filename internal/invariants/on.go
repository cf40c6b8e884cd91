//go:build invariants

package invariants

// Enabled reports whether this is a build with checks. It is a constant, so that other builds do not contain the
// checks.
const Enabled = true
