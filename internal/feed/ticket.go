// Package feed has batches that travel between machines: tickets that name them, tokens that permit them, and their form
// as Arrow Flight messages. docs/reference/tickets.md describes all three. Package feedserver sends batches, and
// feedclient receives them.
package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Ticket names a batch. The same ticket gives the same bytes on every server.
type Ticket struct {
	// Manifest and Pipeline are those of pipeline.Hashes.
	Manifest string `json:"manifest"`
	Pipeline string `json:"pipeline"`
	Seed     uint64 `json:"seed"`
	Epoch    int64  `json:"epoch"`
	// Batch is the number of the global batch in its epoch; with buckets that of the batch, over all ranks.
	Batch int64 `json:"batch"`
	// Rows are the positions of the rows in the epoch's order, or in that of their bucket.
	Rows Rows `json:"rows"`
}

// Rows are the positions Lo, Lo + Stride, ... of Hi - Lo rows. In JSON they are [Lo, Hi] or [Lo, Hi, Stride].
type Rows struct{ Lo, Hi, Stride int64 }

// MarshalJSON implements json.Marshaler.
func (r Rows) MarshalJSON() ([]byte, error) {
	if r.Stride > 1 {
		return fmt.Appendf(nil, "[%d,%d,%d]", r.Lo, r.Hi, r.Stride), nil
	}
	return fmt.Appendf(nil, "[%d,%d]", r.Lo, r.Hi), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rows) UnmarshalJSON(data []byte) error {
	var n []int64
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	if len(n) < 2 || len(n) > 3 {
		return errors.New("rows must be [first, end] or [first, end, stride]")
	}
	*r = Rows{Lo: n[0], Hi: n[1]}
	if len(n) == 3 {
		r.Stride = n[2]
	}
	return nil
}

// MaxTicket is the largest ticket in bytes.
const MaxTicket = 2 << 10

// maxHash is the longest hash in a ticket.
const maxHash = 256

// ParseTicket reads a ticket. It accepts nothing but the keys of a ticket, each with a value in its range.
func ParseTicket(raw []byte) (Ticket, error) {
	var t Ticket
	if len(raw) > MaxTicket {
		return t, fmt.Errorf("the ticket has %d bytes, more than the limit of %d", len(raw), MaxTicket)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return Ticket{}, fmt.Errorf("the ticket is not a JSON object of a ticket: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return Ticket{}, errors.New("the ticket has text after its closing brace")
	}
	for _, h := range []struct{ name, hash string }{{"manifest", t.Manifest}, {"pipeline", t.Pipeline}} {
		if !isHash(h.hash) {
			return Ticket{}, fmt.Errorf("%s of the ticket is not a hash", h.name)
		}
	}
	r := t.Rows
	if t.Epoch < 0 || t.Batch < 0 || r.Lo < 0 || r.Hi < r.Lo || r.Stride < 0 {
		return Ticket{}, errors.New("the ticket has a negative number, or rows that end before they begin")
	}
	return t, nil
}

// isHash reports whether a text has only letters, digits and the separators of hashes. Paths are not hashes.
func isHash(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == ':', c == '-', c == '_', c == '=', c == '+':
		default:
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxHash
}

// Text is the JSON form of a ticket.
func (t *Ticket) Text() []byte {
	out, err := json.Marshal(t)
	if err != nil {
		panic("feed: " + err.Error()) // there is nothing in a ticket that cannot be written
	}
	return out
}
