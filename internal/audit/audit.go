// Package audit reads the logs in which loaders list the records that a training loop has received. It says which
// records were seen once, twice or never. The Python package writes the logs; docs/reference/audit-format.md has the
// format.
package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"os"
	"slices"

	"github.com/stokerdata/stoker/internal/sampler"
)

const (
	headerSize = 96
	version    = 1
	idBits     = 40
	epochBits  = 11
	// Instead of a record: a batch without rows, the end of an epoch.
	emptyBatch = 1<<idBits - 2
	endOfEpoch = 1<<idBits - 3
	golden     = 0x9e3779b97f4a7c15
)

var magic = []byte("\xff\xff\xff\xff\xffSTK")

// ErrNotLog is returned for a file that is not an audit log.
var ErrNotLog = errors.New("not an audit log: it comes from stoker.Ranks(audit=PATH)")

// place is a position in an epoch.
type place struct{ epoch, position int64 }

func (p place) before(q place) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.position < q.position
}

// part is a part of a log: what one loader received from a position on, without a jump.
type part struct {
	file        int
	from, to    int64 // its bytes in the file, after the header
	time        uint64
	records     int64
	start       place
	stride      int64
	rank, world int
	manifest    [16]byte
	salt        uint64
}

// log is a file.
type log struct {
	path    string
	parts   []part
	dropped int64 // bytes that are not whole
}

// parseHeader reads a header. It returns false if the bytes are not one.
func parseHeader(b []byte) (p part, ok bool, err error) {
	if len(b) < headerSize || !bytes.HasPrefix(b, magic) {
		return p, false, nil
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v != version {
		return p, false, fmt.Errorf("an audit log of version %d; this build knows version %d", v, version)
	}
	sum := sha256.Sum256(b[:headerSize-8])
	if !bytes.Equal(sum[:8], b[headerSize-8:headerSize]) {
		return p, false, nil
	}
	p = part{
		time: le.Uint64(b[16:]), records: int64(le.Uint64(b[24:])), start: place{int64(le.Uint64(b[32:])), int64(le.Uint64(b[40:]))},
		stride: int64(le.Uint64(b[48:])), rank: int(le.Uint32(b[56:])), world: int(le.Uint32(b[60:])),
		manifest: [16]byte(b[64:80]), salt: le.Uint64(b[80:]),
	}
	ok = p.records >= 0 && p.records <= sampler.MaxLen && p.start.epoch >= 0 && p.start.position >= 0 && p.stride >= 1 && p.rank < p.world
	return p, ok, nil
}

// mixed is SplitMix64's mix of a number.
func mixed(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// word is a number of a log: a record, with the epoch's lowest bits and whether it begins a batch.
type word struct {
	id    int64
	epoch uint64
	first bool
}

// parseWord reads number n of a part. It returns false if the bytes are not one, such as those of a write that was cut.
func (p *part) parseWord(b []byte, n uint64) (w word, ok bool) {
	v := binary.LittleEndian.Uint64(b)
	low := v & (1<<52 - 1)
	if mixed(low^p.salt^n*golden)>>52 != v>>52 {
		return w, false
	}
	return word{int64(low & (1<<idBits - 1)), low >> idBits & (1<<epochBits - 1), low>>51 == 1}, true
}

// readLog finds the parts of a log.
func readLog(path string, file int) (*log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &log{path: path}
	r := bufio.NewReaderSize(f, 1<<16)
	var cur *part
	var n uint64
	for at := int64(0); ; {
		b, err := r.Peek(headerSize)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(b) < 8 {
			l.dropped += int64(len(b))
			break
		}
		p, ok, err := parseHeader(b)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s is %w", path, err)
		case ok:
			p.file, p.from, p.to = file, at+headerSize, at+headerSize
			l.parts = append(l.parts, p)
			cur, n = &l.parts[len(l.parts)-1], 0
			at += headerSize
			_, _ = r.Discard(headerSize) // which were peeked
			continue
		case at == 0 && !bytes.HasPrefix(b, magic):
			return nil, fmt.Errorf("%s is %w", path, ErrNotLog)
		}
		if cur != nil {
			if _, ok = cur.parseWord(b, n); ok {
				n++
				cur.to += 8
			} else {
				cur = nil
			}
		}
		if !ok {
			l.dropped += 8
		}
		at += 8
		_, _ = r.Discard(8)
	}
	return l, nil
}

// Epoch is the result for one epoch.
type Epoch struct {
	Epoch int64 `json:"epoch"`
	// Complete reports that the loop has reached the end of the epoch.
	Complete bool `json:"complete"`
	// Once, Twice and Never count records. Twice also counts those that were seen more often.
	Once  int64 `json:"once"`
	Twice int64 `json:"twice"`
	Never int64 `json:"never"`
	// TwiceRecords and NeverRecords are the first of them.
	TwiceRecords []int64 `json:"twice_records"`
	NeverRecords []int64 `json:"never_records"`
}

// Report is the result for all logs of a training.
type Report struct {
	Records int64 `json:"records"`
	// Again counts the records that came after the position from which a later run continued. Its model had not seen
	// them, so they are not counted as seen.
	Again int64 `json:"again"`
	// DroppedBytes counts the bytes at the ends of writes that were cut, by log.
	DroppedBytes map[string]int64 `json:"dropped_bytes"`
	// Missing names the ranks of runs without a log.
	Missing []string `json:"missing_logs"`
	Epochs  []Epoch  `json:"epochs"`
}

// Exact reports whether each record was seen once in each complete epoch, and no record twice.
func (r *Report) Exact() bool {
	for _, e := range r.Epochs {
		if e.Twice > 0 || e.Complete && e.Never > 0 {
			return false
		}
	}
	return len(r.Missing) == 0
}

// run are the parts of the ranks that started at the same position.
type run struct {
	parts []part
	until place // a later run continued from here
}

func (r *run) takes(p *part) bool {
	of := &r.parts[0]
	return of.start == p.start && of.world == p.world && of.stride == p.stride &&
		!slices.ContainsFunc(r.parts, func(q part) bool { return q.rank == p.rank })
}

// shown is the number of records that a report lists.
const shown = 20

// Read reads the logs of all ranks and of all runs of a training.
func Read(paths []string) (*Report, error) {
	rep := &Report{DroppedBytes: map[string]int64{}, Missing: []string{}, Epochs: []Epoch{}}
	var parts []part
	for i, path := range paths {
		l, err := readLog(path, i)
		if err != nil {
			return nil, err
		}
		if l.dropped > 0 {
			rep.DroppedBytes[path] = l.dropped
		}
		parts = append(parts, l.parts...)
	}
	if len(parts) == 0 {
		return rep, nil
	}
	rep.Records = parts[0].records
	for i := range parts {
		if p := &parts[i]; p.manifest != parts[0].manifest || p.records != rep.Records {
			return nil, fmt.Errorf("%s and %s are logs of different data (manifests %s and %s): give the logs of one training",
				paths[parts[0].file], paths[p.file], hex.EncodeToString(parts[0].manifest[:]), hex.EncodeToString(p.manifest[:]))
		}
	}
	runs := runsOf(parts)
	seen := map[int64]*counts{}
	for i := range runs {
		rep.missing(&runs[i])
		for k := range runs[i].parts {
			p := &runs[i].parts[k]
			if err := rep.count(paths[p.file], p, runs[i].until, seen); err != nil {
				return nil, err
			}
		}
	}
	for epoch, c := range seen {
		e := Epoch{Epoch: epoch, Complete: c.complete, TwiceRecords: []int64{}, NeverRecords: []int64{}}
		c.sum(&e, rep.Records)
		rep.Epochs = append(rep.Epochs, e)
	}
	slices.SortFunc(rep.Epochs, func(a, b Epoch) int { return int(a.Epoch - b.Epoch) })
	return rep, nil
}

// runsOf groups parts, and finds the position from which later runs continued.
func runsOf(parts []part) []run {
	slices.SortStableFunc(parts, func(a, b part) int {
		if a.time < b.time {
			return -1
		}
		return bool01(a.time > b.time)
	})
	var runs []run
	for i := range parts {
		if n := len(runs); n > 0 && runs[n-1].takes(&parts[i]) {
			runs[n-1].parts = append(runs[n-1].parts, parts[i])
		} else {
			runs = append(runs, run{parts: []part{parts[i]}})
		}
	}
	until := place{1<<63 - 1, 0}
	for i := len(runs) - 1; i >= 0; i-- {
		runs[i].until = until
		if start := runs[i].parts[0].start; start.before(until) {
			until = start
		}
	}
	return runs
}

func bool01(b bool) int {
	if b {
		return 1
	}
	return 0
}

// missing notes the ranks of a run that have no log.
func (r *Report) missing(of *run) {
	have := map[int]bool{}
	for _, p := range of.parts {
		have[p.rank] = true
	}
	start := of.parts[0].start
	for rank := range of.parts[0].world {
		if !have[rank] && len(r.Missing) < shown {
			r.Missing = append(r.Missing, fmt.Sprintf("rank %d of %d, from position %d of epoch %d", rank, of.parts[0].world, start.position, start.epoch))
		}
	}
}

// counts has two bits for each record of an epoch, in pages that exist once a record of them was seen.
type counts struct {
	pages    map[int64]*page
	complete bool
}

const pageWords = 512

type page struct{ once, twice [pageWords]uint64 }

func (c *counts) add(id int64) {
	p := c.pages[id/(64*pageWords)]
	if p == nil {
		p = new(page)
		c.pages[id/(64*pageWords)] = p
	}
	w, bit := id/64%pageWords, uint64(1)<<(id%64)
	p.twice[w] |= p.once[w] & bit
	p.once[w] |= bit
}

// sum counts the records of an epoch, and lists the first ones of the wrong kinds.
func (c *counts) sum(e *Epoch, records int64) {
	for _, n := range slices.Sorted(maps.Keys(c.pages)) {
		p := c.pages[n]
		for w := range p.once {
			e.Twice += int64(bits.OnesCount64(p.twice[w]))
			e.Once += int64(bits.OnesCount64(p.once[w] &^ p.twice[w]))
			for set := p.twice[w]; set != 0 && len(e.TwiceRecords) < shown; set &= set - 1 {
				e.TwiceRecords = append(e.TwiceRecords, (n*pageWords+int64(w))*64+int64(bits.TrailingZeros64(set)))
			}
		}
	}
	e.Never = records - e.Once - e.Twice
	for id := int64(0); id < records && int64(len(e.NeverRecords)) < min(e.Never, shown); id++ {
		if p := c.pages[id/(64*pageWords)]; p == nil || p.once[id/64%pageWords]>>(id%64)&1 == 0 {
			e.NeverRecords = append(e.NeverRecords, id)
		}
	}
}

// count adds the records of a part up to a position.
func (r *Report) count(path string, p *part, until place, seen map[int64]*counts) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(f, p.from, p.to-p.from), 1<<16)
	at, epoch, batches := p.start, p.start.epoch, int64(0)
	base := p.start.position
	var b [8]byte
	for n := uint64(0); ; n++ {
		if _, err := io.ReadFull(in, b[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		w, _ := p.parseWord(b[:], n)
		switch w.epoch {
		case uint64(epoch) & (1<<epochBits - 1):
		case uint64(epoch+1) & (1<<epochBits - 1):
			epoch, base, batches = epoch+1, 0, 0
		default:
			return fmt.Errorf("%s is damaged: number %d of a part is of another epoch", path, n)
		}
		c := seen[epoch]
		if c == nil {
			c = &counts{pages: map[int64]*page{}}
			seen[epoch] = c
		}
		if w.id == endOfEpoch {
			c.complete = c.complete || (place{epoch, 1<<63 - 1}).before(until)
			continue
		}
		if w.first {
			at = place{epoch, base + batches*p.stride}
			batches++
		}
		switch {
		case w.id == emptyBatch:
		case w.id >= r.Records:
			return fmt.Errorf("%s is damaged: it has record %d of %d", path, w.id, r.Records)
		case !at.before(until):
			r.Again++
		default:
			c.add(w.id)
		}
	}
}
