package pipeline

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Identity is the part of a saved state that says what its position belongs to. Two pipelines with the same Identity have
// the same batches at the same position.
type Identity struct {
	Seed uint64 `json:"seed"`
	// Order is sampler.OrderVersion and the order, such as "1:window:16".
	Order string `json:"order"`
	// Manifest identifies the records, in 32 hexadecimal digits.
	Manifest string `json:"manifest"`
	// Pipeline has 8 digits for each part of the settings that change batches: how they are cut, and what is done to
	// records. The number of ranks, the batch size without buckets, resources and the handling of errors are not in it.
	Pipeline string `json:"pipeline"`
	// Ranks is the number of batches of a bucket that come together, 0 without buckets.
	Ranks int `json:"ranks,omitempty"`
}

// PipelineParts names the parts of Identity.Pipeline.
var PipelineParts = []string{"bucket, sequences, mix, drop_last or uneven", "transforms, fields or layout"}

// identity returns the Identity of an open pipeline.
func (p *Pipeline) identity(info *driver.Info) Identity {
	c := &p.cfg
	cut := xxh3.New()
	_, _ = fmt.Fprintln(cut, c.DropLast, c.Uneven, text(c.Sequence))
	if b := p.order.bucketInfo; b != nil {
		_, _ = fmt.Fprintln(cut, b.By, b.Largest, b.Records, b.Rows)
		if c.Bucket != nil && p.balanced() {
			_, _ = fmt.Fprintln(cut, "balanced")
		}
		if c.Bucket != nil && c.Align != nil {
			_, _ = fmt.Fprintln(cut, "aligned by", c.Align.By)
		}
	}
	if p.order.mix != nil {
		_, _ = fmt.Fprintln(cut, p.mixSettings())
	}
	if p.order.window != nil {
		var b [8]byte
		for _, at := range p.order.window.starts {
			binary.LittleEndian.PutUint64(b[:], uint64(at))
			_, _ = cut.Write(b[:])
		}
	}
	work := xxh3.HashString(text(struct {
		Outputs          []transform.Output
		BatchOps         []json.RawMessage
		Layout           string
		Fields           []string
		Pad              map[string]collate.Pad
		ApplyOrientation bool
		Variants         int
	}{c.Outputs, c.BatchOps, c.Layout, c.Fields, c.Pad, c.ApplyOrientation, p.records.variants}))
	of, records := info.Fingerprint, info.Len
	if s := p.info.Sequences; s != nil {
		of, records = p.records.documents, s.Documents
	}
	data := xxh3.HashString128(fmt.Sprintln(of, records)).Bytes()
	id := Identity{
		Seed: c.Seed, Order: fmt.Sprintf("%d:%s", sampler.OrderVersion, p.ordered()), Manifest: hex.EncodeToString(data[:]),
		Pipeline: fmt.Sprintf("%08x-%08x", uint32(cut.Sum64()), uint32(work)),
	}
	if p.order.buckets != nil {
		id.Ranks = p.order.bucketInfo.Ranks
	}
	return id
}

// Check returns an error that names the difference if a state belongs to another pipeline than id.
func (id *Identity) Check(state *Identity) error {
	version, order, _ := strings.Cut(state.Order, ":")
	ours, mode, _ := strings.Cut(id.Order, ":")
	switch {
	case state.Manifest != id.Manifest:
		return fmt.Errorf("the state has another manifest (%s, here %s): it was saved over other data; open that data", state.Manifest, id.Manifest)
	case version != ours:
		return fmt.Errorf("the state has order version %q, this build has %q; use the version that saved it, or begin an epoch with SetEpoch", version, ours)
	case state.Seed != id.Seed:
		return fmt.Errorf("the state has another pipeline: it was saved with seed %d, the loader has seed %d; open it with that seed", state.Seed, id.Seed)
	case order != mode:
		return fmt.Errorf("the state has another pipeline: it was saved in the order %q, the loader has %q; open it with that order", order, mode)
	case state.Pipeline != id.Pipeline:
		return fmt.Errorf("the state has another pipeline: it was saved with other settings of %s; open it with those, or begin an epoch with SetEpoch", Differences(state.Pipeline, id.Pipeline))
	case state.Ranks != id.Ranks:
		return fmt.Errorf("the state has another pipeline: %d batches of a bucket come together, in the loader %d; set Bucket.Ranks to %d", state.Ranks, id.Ranks, state.Ranks)
	}
	return nil
}

// Differences names the parts in which two values of Identity.Pipeline differ.
func Differences(a, b string) string {
	x, y := strings.Split(a, "-"), strings.Split(b, "-")
	var names []string
	for i, name := range PipelineParts {
		if i >= len(x) || i >= len(y) || x[i] != y[i] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "map, batch_map or device"
	}
	return strings.Join(names, ", and ")
}

// text returns settings as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // an operation that is not JSON, which compiling refuses
		return err.Error()
	}
	return string(b)
}
