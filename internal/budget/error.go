package budget

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/units"
)

// tooLittle returns an error with the minimum memory of the engine, in one line: for the requested prefetch, or for
// any.
func tooLittle(r *Request, p *Plan) error {
	from := "the memory budget"
	if r.Automatic {
		from = "the default part of the free memory"
		if r.Engines > 1 {
			from += fmt.Sprintf(", shared by the engines of %d processes,", r.Engines)
		}
	}
	read, scratch := p.read(r), p.scratch(r)
	rest := read + scratch + p.Window + p.Cache + p.Lookahead + p.Held
	need := func(slots int64) string {
		ahead := ""
		if p.Lookahead > 0 {
			ahead = fmt.Sprintf("%d MiB to read ahead, ", units.MiB(p.Lookahead))
		}
		if p.Window > 0 {
			ahead += fmt.Sprintf("%d MiB for the window of chunks that shuffle uses, ", units.MiB(p.Window))
		}
		if p.Cache > 0 {
			ahead += fmt.Sprintf("%d MiB of cache, ", units.MiB(p.Cache))
		}
		if p.Held > 0 {
			ahead = fmt.Sprintf("%d MiB of records that are held because their files are compressed, ", units.MiB(p.Held)) + ahead
		}
		return fmt.Sprintf("%d batches of %d MiB, %s%d MiB to read into and %d MiB of scratch need %d MiB",
			slots, units.MiB(p.SlotStride), ahead, units.MiB(read), units.MiB(scratch), units.MiB(slots*p.SlotStride+rest))
	}
	if fit := (r.Memory - rest) / p.SlotStride; fit >= minSlots {
		return fmt.Errorf("%d batches (prefetch) do not fit %s of %d MiB: %s; set memory to that or more, or prefetch to %d or less",
			r.Prefetch, from, r.Memory>>20, need(p.Ring/p.SlotStride), fit-2)
	}
	lower := "batch_size"
	if p.Lookahead > 0 {
		lower = "lookahead or batch_size"
	}
	return fmt.Errorf("%s is %d MiB, which is not enough: %s; set memory to that or more, or lower %s", from, r.Memory>>20, need(minSlots), lower)
}
