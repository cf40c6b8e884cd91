package pystack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// fakeMemory answers reads from a few bytes. Only addresses in its range are mapped.
type fakeMemory struct {
	base  uint64
	data  []byte
	calls int
}

func (m *fakeMemory) read(reqs []request) {
	m.calls++
	for i := range reqs {
		r := &reqs[i]
		off := r.addr - m.base
		r.ok = r.addr >= m.base && off <= uint64(len(m.data)) && uint64(len(m.data))-off >= uint64(len(r.buf))
		if r.ok {
			copy(r.buf, m.data[off:])
		}
	}
}

func (m *fakeMemory) failure() error { return nil }
func (m *fakeMemory) close() error   { return nil }

// layouts returns the layouts of all versions; the described ones have the offsets of real builds.
func layouts() []*layout {
	l313 := layout312
	l313.version = Version{Major: 3, Minor: 13}
	l313.viaCFrame, l313.threadFrame = false, 72
	l314 := l313
	l314.version = Version{Major: 3, Minor: 14, FreeThreaded: true}
	l314.frameTLBC, l314.codeTLBC, l314.gilEnabled, l314.kindShift, l314.frameBytes = 72, 144, 24, 8, 88
	l314.codeBytes = 152
	return []*layout{&layout310, &layout311, &layout312, &l313, &l314}
}

// fakeBase is the start address of the fake memories.
const fakeBase = 0x1000

// fakePython returns the memory of a CPython 3.12 with one thread, which runs inner, called by outer.
func fakePython() []byte {
	l, le := &layout312, binary.LittleEndian
	m := make([]byte, 8192)
	put := func(at, off, v uint64) { le.PutUint64(m[at+off:], v) }
	ptr := func(at uint64) uint64 { return fakeBase + at }
	const interp, gil, thread, cframe, chunk, kind, name, table = 0x100, 0x400, 0x500, 0x700, 0x800, 0xc00, 0xd00, 0xe00
	put(0, l.interpHead, ptr(interp))
	put(interp, l.interpThreads, ptr(thread))
	put(interp, l.interpGIL, ptr(gil))
	put(gil, l.gilHolder, ptr(thread))
	put(gil, l.gilLocked, 1)
	put(thread, l.threadInterp, ptr(interp))
	put(thread, l.threadFrame, ptr(cframe))
	put(thread, l.threadChunk, ptr(chunk))
	put(chunk, 8, 0x400)
	put(kind, l.typeName, ptr(name))
	copy(m[name:], "code\x00")
	put(table, l.sizeOf, 4)
	copy(m[table+l.bytesData:], []byte{0x81, 0, 0x81 | 11<<3, 0, 0}) // two units each: the first line, then the next
	str := func(at uint64, text string) uint64 {
		put(at, l.stringLength, uint64(len(text)))
		le.PutUint32(m[at+l.stringState:], 1<<2|1<<5|1<<6) // kind 1, compact, ASCII
		copy(m[at+l.asciiBytes:], text)
		return ptr(at)
	}
	file := str(0xf00, "train.py")
	code := func(at, first uint64, name string) {
		put(at, l.objectType, ptr(kind))
		put(at, l.sizeOf, 4)
		put(at, l.codeFile, file)
		put(at, l.codeName, str(at+0x100, name))
		put(at, l.codeQual, str(at+0x180, "Trainer."+name))
		put(at, l.codeLines, ptr(table))
		put(at, l.codeFirst, first)
	}
	code(0x1000, 10, "outer")
	code(0x1400, 20, "inner")
	frame := func(at, code, previous, offset uint64) {
		put(at, l.frameCode, ptr(code))
		put(at, l.framePrevious, previous)
		put(at, l.frameInstr, ptr(code)+l.codeStart+offset)
	}
	frame(chunk+0x20, 0x1000, 0, 4)
	frame(chunk+0x80, 0x1400, ptr(chunk+0x20), 0)
	put(cframe, l.cframeFrame, ptr(chunk+0x80))
	return m
}

func TestFakePython(t *testing.T) {
	mem := &fakeMemory{base: fakeBase, data: fakePython()}
	p := newProcess(os.Getpid(), mem, &layout312, fakeBase)
	want := []Frame{{"train.py", "inner", "Trainer.inner", 20}, {"train.py", "outer", "Trainer.outer", 11}}
	for i := range 3 {
		mem.calls = 0
		got := sample(t, p)
		if len(got) != 1 || !got[0].GIL || got[0].Torn || !slices.Equal(got[0].Frames, want) {
			t.Fatalf("sample %d: %+v", i, got)
		}
	}
	if mem.calls > 3 { // the thread's id is searched again, because it was not found
		t.Errorf("a sample of what is known takes %d calls", mem.calls)
	}
	// A frame with a position outside its code, then an invalid code object.
	for _, damage := range []func([]byte){
		func(m []byte) { m[0x800+0x80+layout312.frameInstr+2] ^= 0x40 },
		func(m []byte) { m[0x1400+layout312.objectType] ^= 0x40 },
		func(m []byte) { m[0x800+0x80+layout312.frameOwner] = 77 },
		func(m []byte) { copy(m[0x800+0x20+layout312.framePrevious:], m[0x700:0x708]) }, // a ring
	} {
		mem.data = fakePython()
		damage(mem.data)
		if got := sample(t, p); len(got) != 1 || !got[0].Torn || len(got[0].Frames) != 0 {
			t.Errorf("damaged: %+v", got)
		}
	}
	if s := p.Stats(); s.Torn != 4 || s.Samples != 7 {
		t.Errorf("%+v", s)
	}
}

// For any memory content, a sample ends soon and keeps to the limits.
func FuzzSample(f *testing.F) {
	const base = fakeBase
	f.Add(fakePython(), uint8(2))
	f.Add(fakePython(), uint8(3))
	// Memory in which each word points to another word of it.
	for seed := range uint64(4) {
		b := make([]byte, 4096)
		for i := range len(b) / 8 {
			binary.LittleEndian.PutUint64(b[8*i:], base+(uint64(i)*(2*seed+7)*8+seed*64)%uint64(len(b)))
		}
		f.Add(b, uint8(seed))
	}
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, version uint8) {
		l := layouts()[int(version)%5]
		// The memory repeats, so that large offsets are also inside it.
		if len(data) > 0 {
			data = bytes.Repeat(data, 1+8192/len(data))
		}
		mem := &fakeMemory{base: base, data: data}
		p := newProcess(os.Getpid(), mem, l, base)
		for range 3 {
			threads, err := p.Sample()
			if err != nil {
				return
			}
			if len(threads) > maxThreads {
				t.Fatalf("%d threads", len(threads))
			}
			for _, th := range threads {
				if len(th.Frames) > maxDepth || th.Torn && len(th.Frames) > 0 {
					t.Fatalf("%d frames, torn %v", len(th.Frames), th.Torn)
				}
				for _, fr := range th.Frames {
					if utf8.RuneCountInString(fr.File) > maxPath || utf8.RuneCountInString(fr.Func) > maxName || !utf8.ValidString(fr.Qual) {
						t.Fatalf("%+v", fr)
					}
				}
			}
		}
	})
}

func FuzzDescribedLayout(f *testing.F) {
	for _, version := range []uint64{0x030d00f0, 0x030e00f0, 0x030f00f0} {
		b := make([]byte, debugBytes)
		copy(b, debugCookie)
		binary.LittleEndian.PutUint64(b[8:], version)
		for i := 24; i < len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], uint64(i%200))
		}
		f.Add(b)
		f.Add(b[:300])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, _, _ := describedLayout(b)
		if l == nil {
			return
		}
		if !l.plausible() {
			t.Fatalf("%+v", l)
		}
		mem := &fakeMemory{base: 0, data: bytes.Repeat([]byte{0x40, 0, 0, 0, 0, 0, 0, 0}, 4096)}
		p := newProcess(os.Getpid(), mem, l, 0)
		_, _ = p.Sample()
	})
}

// elfFile builds a small ELF file with the given sections' contents and symbols.
func elfFile(stripped bool) []byte {
	le := binary.LittleEndian
	names := "\x00.shstrtab\x00.PyRuntime\x00.rodata\x00.dynsym\x00.dynstr\x00"
	at := func(s string) uint32 { return uint32(strings.Index(names, s)) }
	dynstr := "\x00_PyRuntime\x00Py_Version\x00_PyRuntimeX\x00"
	symbol := func(name string, value uint64) []byte {
		b := make([]byte, 24)
		le.PutUint32(b, uint32(strings.Index(dynstr, "\x00"+name+"\x00")+1))
		le.PutUint16(b[6:], 1)
		le.PutUint64(b[8:], value)
		return b
	}
	rodata := "junk\x003.10.13\x00more"
	dynsym := append(append(make([]byte, 24), symbol("_PyRuntimeX", 1)...), append(symbol("_PyRuntime", 0x5000), symbol("Py_Version", 0x3000)...)...)
	out := make([]byte, 64+56)
	type section struct {
		name string
		kind elf.SectionType
		data []byte
		addr uint64
		link uint32
	}
	sections := []section{{}, {".shstrtab", elf.SHT_STRTAB, []byte(names), 0, 0}, {".rodata", elf.SHT_PROGBITS, []byte(rodata), 0x2000, 0}}
	if stripped {
		sections = append(sections, section{".dynsym", elf.SHT_DYNSYM, dynsym, 0, 4}, section{".dynstr", elf.SHT_STRTAB, []byte(dynstr), 0, 0})
	} else {
		sections = append(sections, section{".PyRuntime", elf.SHT_PROGBITS, []byte("12345678"), 0x5000, 0})
	}
	var headers []byte
	for _, s := range sections {
		h := make([]byte, 64)
		if s.name != "" {
			le.PutUint32(h, at(s.name))
		}
		le.PutUint32(h[4:], uint32(s.kind))
		le.PutUint64(h[16:], s.addr)
		le.PutUint64(h[24:], uint64(len(out)))
		le.PutUint64(h[32:], uint64(len(s.data)))
		le.PutUint32(h[40:], s.link)
		out = append(out, s.data...)
		headers = append(headers, h...)
	}
	copy(out, "\x7fELF\x02\x01\x01")
	le.PutUint16(out[16:], uint16(elf.ET_DYN))
	le.PutUint64(out[32:], 64)
	le.PutUint64(out[40:], uint64(len(out)))
	le.PutUint16(out[54:], 56)
	le.PutUint16(out[56:], 1)
	le.PutUint16(out[58:], 64)
	le.PutUint16(out[60:], uint16(len(sections)))
	le.PutUint16(out[62:], 1)
	le.PutUint32(out[64:], uint32(elf.PT_LOAD))
	le.PutUint64(out[64+16:], 0x1000)
	return append(out, headers...)
}

func TestImage(t *testing.T) {
	img, err := readImage(bytes.NewReader(elfFile(false)))
	if err != nil || img.runtime != 0x5000 || img.minor != 10 || img.fixed {
		t.Errorf("with sections: %+v, %v", img, err)
	}
	img, err = readImage(bytes.NewReader(elfFile(true)))
	if err != nil || img.runtime != 0x5000 || img.version != 0x3000 {
		t.Errorf("stripped: %+v, %v", img, err)
	}
	if base, ok := img.base(0x7f0000001000, 0); !ok || base != 0x7f0000000000 {
		t.Errorf("base %#x, %v", base, ok)
	}
	if _, err := readImage(strings.NewReader("#!/bin/sh\n")); err == nil {
		t.Error("a script is no ELF file")
	}
}

func FuzzImage(f *testing.F) {
	f.Add(elfFile(true))
	f.Add(elfFile(false))
	f.Fuzz(func(t *testing.T, b []byte) {
		img, err := readImage(bytes.NewReader(b))
		if err == nil {
			img.base(0x1000, 0)
		}
	})
}

const mapsText = `5581c0000000-5581c0001000 r--p 00000000 fe:00 1234                       /opt/conda/bin/python3.12
5581c0001000-5581c0002000 r-xp 00001000 fe:00 1234                       /opt/conda/bin/python3.12
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000200000-7f0000300000 r--p 00000000 fe:00 99                         /usr/lib/x86_64-linux-gnu/libpython3.12.so.1.0
7f0000400000-7f0000500000 r--p 00000000 fe:00 98                         /usr/lib/python3.12/lib-dynload/_json.cpython-312-x86_64-linux-gnu.so
7f0000600000-7f0000700000 r--p 00000000 fe:00 97                         /tmp/a b/python3 (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestMaps(t *testing.T) {
	got, minor, first, err := readMaps(strings.NewReader(mapsText), "/opt/conda/bin/python3.12")
	if err != nil || minor != 12 || first != 0x5581c0000000 {
		t.Errorf("minor %d, first %#x, %v", minor, first, err)
	}
	var names []string
	for _, m := range got {
		names = append(names, m.Name)
	}
	want := "/usr/lib/x86_64-linux-gnu/libpython3.12.so.1.0 /opt/conda/bin/python3.12 /tmp/a b/python3 (deleted)"
	if strings.Join(names, " ") != want {
		t.Errorf("got %q, want %s", names, want)
	}
}

func FuzzMaps(f *testing.F) {
	f.Add(mapsText)
	f.Fuzz(func(t *testing.T, text string) {
		candidates, _, _, _ := readMaps(strings.NewReader(text), "/usr/bin/python3")
		for _, m := range candidates {
			if m.Name == "" {
				t.Error("a mapping without a name")
			}
		}
	})
}

func FuzzLineTable(f *testing.F) {
	f.Add([]byte{0xf0, 1, 2, 0xd8, 3, 0xe9, 2, 0x81, 0}, 10)
	f.Fuzz(func(t *testing.T, b []byte, first int) {
		for _, lines := range [][]lineRange{lines310(b, first), lines311(b, first)} {
			c := code{first: first, lines: lines}
			end := uint32(0)
			for _, l := range lines {
				if l.end <= end {
					t.Fatalf("%v", lines)
				}
				end = l.end
			}
			for _, off := range []int64{-2, 0, 1, int64(end), 1 << 40} {
				c.line(off)
			}
		}
	})
}

func TestStrings(t *testing.T) {
	for _, c := range []struct {
		bytes string
		kind  uint64
		want  string
	}{
		{"train.py", 1, "train.py"},
		{"gr\xf6\xdfe", 1, "größe"},
		{"\xe5\x65\x2c\x67", 2, "日本"},
		{"\x80\xdca\x00", 2, "\uFFFDa"}, // a byte of a path that is not valid text
		{"\x00\xf6\x01\x00", 4, "😀"},
		{"\xff\xff\xff\xff", 4, "\uFFFD"},
	} {
		if got := decodeString([]byte(c.bytes), c.kind); got != c.want {
			t.Errorf("%q: got %q, want %q", c.bytes, got, c.want)
		}
	}
}

// Interpreters of free-threaded builds have a t after their version.
func TestNamesOfInterpreters(t *testing.T) {
	for name, want := range map[string]bool{
		"/usr/bin/python3.14t": true, "/usr/bin/python3.13": true, "/opt/lib/libpython3.14t.so.1.0": true, "/usr/lib/libpython3.11.so.1.0": true,
		"/usr/bin/python3.14t (deleted)": true, "/usr/bin/pypy3.10": false, "/usr/bin/bash": false,
	} {
		if got := isPython(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestOtherPrograms(t *testing.T) {
	for program, want := range map[string]Error{
		"pypy3.10": {Msg: "it runs PyPy (pypy3.10)", Kind: OtherPython}, "bash": {Msg: "it is not a Python process (bash)", Kind: NotPython},
	} {
		if e := notPython(7, program); !strings.HasPrefix(e.Msg, want.Msg) || e.Kind != want.Kind || e.Hint == "" {
			t.Errorf("%s: %+v", program, e)
		}
	}
}
