//go:build invariants

package invariants

// Enabled says whether this is a build with checks. It is a constant, so that in
// others the compiler leaves them out.
const Enabled = true
