// Package cifartest writes small datasets in the formats of CIFAR, for tests.
package cifartest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

const (
	side   = 32
	pixels = 3 * side * side
)

// Pickler writes pickles like Python 2 (protocols 0 and 2) and Python 3.
type Pickler struct {
	bytes.Buffer
	// Proto is the protocol, Python the version of Python.
	Proto, Python int
}

// Str writes a string.
func (p *Pickler) Str(s string) {
	switch {
	case p.Proto == 0 && p.Python == 2:
		fmt.Fprintf(p, "S%s\n", repr(s))
	case p.Proto < 3 && p.Python == 3:
		// _codecs.encode(text, "latin1")
		var text []rune
		for i := range len(s) {
			text = append(text, rune(s[i]))
		}
		p.WriteString("c_codecs\nencode\n(")
		if p.Proto == 0 {
			p.WriteString("V")
			for _, r := range text {
				if r == '\\' || r == '\n' || r == 0 || r == '\r' || r == 0x1A {
					fmt.Fprintf(p, "\\u%04x", r)
				} else {
					p.WriteByte(byte(r))
				}
			}
			p.WriteString("\nVlatin1\ntR")
			return
		}
		p.WriteString("X")
		p.u32(len(string(text)))
		p.WriteString(string(text) + "X\x06\x00\x00\x00latin1tR")
	case len(s) < 256 && p.Proto == 3:
		p.WriteString("C" + string([]byte{byte(len(s))}) + s)
	case len(s) < 256:
		p.WriteString("U" + string([]byte{byte(len(s))}) + s)
	case p.Proto == 3:
		p.WriteString("B")
		p.u32(len(s))
		p.WriteString(s)
	default:
		p.WriteString("T")
		p.u32(len(s))
		p.WriteString(s)
	}
}

// repr returns a string as Python 2 shows it.
func repr(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\\' || c == '\'':
			b.WriteString("\\" + string(rune(c)))
		case c == '\n':
			b.WriteString("\\n")
		case c == '\r':
			b.WriteString("\\r")
		case c == '\t':
			b.WriteString("\\t")
		case c < 32 || c > 126:
			fmt.Fprintf(&b, "\\x%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}

func (p *Pickler) u32(n int) { p.Write(binary.LittleEndian.AppendUint32(nil, uint32(n))) }

func (p *Pickler) num(n int) {
	switch {
	case p.Proto == 0:
		fmt.Fprintf(p, "I%d\n", n)
	case n < 0:
		p.WriteString("J")
		p.u32(n)
	case n < 256:
		p.Write([]byte{'K', byte(n)})
	case n < 1<<16:
		p.Write([]byte{'M', byte(n), byte(n >> 8)})
	default:
		p.WriteString("J")
		p.u32(n)
	}
}

// Begin writes the beginning of a dictionary.
func (p *Pickler) Begin() {
	if p.Proto > 0 {
		p.Write([]byte{0x80, byte(p.Proto)})
	}
	p.WriteString("(dp1\n")
}

func (p *Pickler) ints(v []int) {
	if p.Proto == 0 {
		p.WriteString("(lp9\n")
		for _, n := range v {
			p.num(n)
			p.WriteString("a")
		}
		return
	}
	p.WriteString("]q\x09(")
	for _, n := range v {
		p.num(n)
	}
	p.WriteString("e")
}

func (p *Pickler) strs(v []string) {
	p.WriteString("(lp9\n")
	for _, s := range v {
		p.Str(s)
		p.WriteString("a")
	}
}

// Pixels writes an array of n rows.
func (p *Pickler) Pixels(n int, data string) {
	p.WriteString("cnumpy.core.multiarray\n_reconstruct\np7\n(cnumpy\nndarray\n(")
	p.num(0)
	p.WriteString("t")
	p.Str("b")
	p.WriteString("tRp8\n(")
	p.num(1)
	p.WriteString("(")
	p.num(n)
	p.num(pixels)
	p.WriteString("tcnumpy\ndtype\n(")
	p.Str("u1")
	p.num(0)
	p.num(1)
	p.WriteString("tRp11\n(")
	p.num(3)
	p.Str("|")
	p.WriteString("NNN")
	p.num(-1)
	p.num(-1)
	p.num(0)
	p.WriteString("tb")
	if p.Proto == 0 {
		p.WriteString("I00\n")
	} else {
		p.WriteString("\x89")
	}
	p.Str(data)
	p.WriteString("tb")
}

// planes returns the pixels of record i.
func planes(i int) []byte {
	b := make([]byte, pixels)
	for k := range b {
		b[k] = byte(i*31 + k*7 + k/256)
	}
	return b
}

// Row returns the pixels of record i after loading.
func Row(i int) []byte {
	src, out := planes(i), make([]byte, pixels)
	for k := range out {
		out[k] = src[k%3*side*side+k/3]
	}
	return out
}

// Batch returns a file of n records in the format of Python, with labels of two kinds if fine is set.
func Batch(from, n, proto, python int, fine bool) []byte {
	p := &Pickler{Proto: proto, Python: python}
	p.Begin()
	put := func(key string, value func()) {
		p.Str(key)
		value()
		p.WriteString("s")
	}
	put("batch_label", func() { p.Str("training batch 1 of 5") })
	a, b := make([]int, n), make([]int, n)
	var data []byte
	var names []string
	for i := range n {
		a[i], b[i] = (from+i)%10, (from+i)%3
		data = append(data, planes(from+i)...)
		names = append(names, fmt.Sprintf("file's_%d.png", i))
	}
	if fine {
		put("fine_labels", func() { p.ints(a) })
		put("coarse_labels", func() { p.ints(b) })
	} else {
		put("labels", func() { p.ints(a) })
	}
	put("data", func() { p.Pixels(n, string(data)) })
	put("filenames", func() { p.strs(names) })
	p.WriteString(".")
	return p.Bytes()
}

// Meta returns a file of names: a number of them for each key.
func Meta(proto, python int, keys map[string]int) []byte {
	p := &Pickler{Proto: proto, Python: python}
	p.Begin()
	for key, n := range keys {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("%s %d", key, i))
		}
		p.Str(key)
		p.strs(names)
		p.WriteString("s")
	}
	p.Str("num_vis")
	p.num(3072)
	p.WriteString("s.")
	return p.Bytes()
}

// Flat returns a file of n records in the binary format.
func Flat(from, n int, fine bool) []byte {
	var out []byte
	for i := range n {
		if fine {
			out = append(out, byte((from+i)%3))
		}
		out = append(append(out, byte((from+i)%10)), planes(from+i)...)
	}
	return out
}

// Names are the names of ten classes.
const Names = "c 0\nc 1\nc 2\nc 3\nc 4\nc 5\nc 6\nc 7\nc 8\nc 9\n\n"

// Folders returns both data sets in all formats: 15 and 10 records in two batches.
func Folders(t testing.TB) map[string]string {
	out := map[string]string{
		"10 binary":  drivertest.Folder(t, map[string][]byte{"data_batch_1.bin": Flat(0, 15, false), "data_batch_2.bin": Flat(15, 10, false), "batches.meta.txt": []byte(Names)}),
		"100 binary": drivertest.Folder(t, map[string][]byte{"train.bin": Flat(0, 25, true), "fine_label_names.txt": []byte(Names), "coarse_label_names.txt": []byte("a\nb\nc\n")}),
	}
	for _, f := range []struct{ proto, python int }{{0, 2}, {2, 2}, {0, 3}, {2, 3}, {3, 3}} {
		name := fmt.Sprintf("protocol %d of Python %d", f.proto, f.python)
		out["10 "+name] = drivertest.Folder(t, map[string][]byte{
			"data_batch_1": Batch(0, 15, f.proto, f.python, false), "data_batch_2": Batch(15, 10, f.proto, f.python, false),
			"batches.meta": Meta(f.proto, f.python, map[string]int{"label_names": 10}),
		})
		out["100 "+name] = drivertest.Folder(t, map[string][]byte{
			"train": Batch(0, 25, f.proto, f.python, true), "meta": Meta(f.proto, f.python, map[string]int{"fine_label_names": 10, "coarse_label_names": 3}),
		})
	}
	return out
}
