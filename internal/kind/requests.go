package kind

import (
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/transform"
)

// requests are calls of the decoder that are made together.
type requests struct {
	reqs []decode.Request
	of   []rowOutput // the destination of each request
}

// rowOutput is the destination of a request.
type rowOutput struct {
	k   int // row in the group
	out int
	// run is nil for pixels that several arrays share.
	run *transform.Run
}

func (r *requests) init(n int) {
	r.reqs, r.of = make([]decode.Request, 0, n), make([]rowOutput, 0, n)
}

func (r *requests) add(req decode.Request, of rowOutput) {
	r.reqs, r.of = append(r.reqs, req), append(r.of, of)
}

func (r *requests) clear() {
	clear(r.reqs) // so that no record's bytes stay alive
	r.reqs, r.of = r.reqs[:0], r.of[:0]
}
