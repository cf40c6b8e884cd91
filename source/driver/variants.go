package driver

import (
	"strconv"
	"strings"
)

// A pack may hold each record in several variants, made by random transforms when it
// was packed: of the field image there are then image~0, image~1 and so on, beside the
// fields that are the same in all. Who reads it has one of them, under the name of the
// field: package internal/source/wrap/variants. Which one is for the order of the records to say.

// Varied is implemented by sources that have each record in several variants. Variant v
// of record id is asked for by the number InEpoch(v, id); id alone is variant 0.
type Varied interface {
	// Variants is how many there are, 1 where there is nothing to choose.
	Variants() int
	// Varies says whether a field, given by its place in Info.Fields, has other values in
	// each variant.
	Varies(field int) bool
}

// VariantsOf is in how many variants a source has each record.
func VariantsOf(s Source) int {
	if v, ok := As[Varied](s); ok {
		return v.Variants()
	}
	return 1
}

// Varies says whether a field of a source has other values in each variant of a record.
func Varies(s Source, field int) bool {
	v, ok := As[Varied](s)
	return ok && v.Variants() > 1 && v.Varies(field)
}

// MaxVariants bounds how often a record is in a pack.
const MaxVariants = 32

// variantMark stands between the name of a field and the number of the variant.
const variantMark = "~"

// VariantName is what variant v of a field is called in a pack.
func VariantName(field string, v int) string { return field + variantMark + strconv.Itoa(v) }

// CutVariant is the reverse of VariantName. What stands behind an @ is the resolution
// and belongs to the field: of image~1@192 that is image@192.
func CutVariant(name string) (field string, v int, ok bool) {
	name, resolution, at := strings.Cut(name, "@")
	i := strings.LastIndex(name, variantMark)
	if i < 1 {
		return "", 0, false
	}
	digits := name[i+len(variantMark):]
	v, err := strconv.Atoi(digits)
	if err != nil || v < 0 || v >= MaxVariants || strconv.Itoa(v) != digits {
		return "", 0, false
	}
	field = name[:i]
	if at {
		field += "@" + resolution
	}
	return field, v, true
}
