package pystack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"regexp"
)

// Limits for reading an ELF file. libpython with debug information has 45 sections, 20,000 symbols and 1 MB of their
// names.
const (
	maxSections     = 4096
	maxProgHeaders  = 256
	maxSymbols      = 1 << 20
	maxSectionNames = 1 << 20
	maxSymbolNames  = 64 << 20
	maxReadOnly     = 16 << 20
)

// The symbols to find.
const (
	symbolRuntime = "_PyRuntime" // since 3.7
	symbolVersion = "Py_Version" // since 3.11
)

// image has the needed parts of the ELF file of an interpreter. Addresses are those of the file: the load address must
// be added.
type image struct {
	fixed   bool // loaded at its own address (not position independent)
	loads   []elfLoad
	runtime uint64 // 0 if not found
	size    uint64 // size of the data there; 0 if unknown
	version uint64 // of Py_Version; 0 if not found
	minor   int    // of version 3, by a text in its read-only data; 0 if not found
}

// elfLoad is a part of the file that is mapped.
type elfLoad struct{ offset, addr uint64 }

var errNotELF = errors.New("not an ELF file of a 64-bit little-endian machine")

// elfSection is a section header.
type elfSection struct {
	name   uint32
	kind   elf.SectionType
	flags  elf.SectionFlag
	addr   uint64
	offset uint64
	size   uint64
	link   uint32
}

// readImage reads the headers of an ELF file and looks for the symbols. All sizes are limited before memory is
// allocated. Names that cannot be read count as missing.
func readImage(r io.ReaderAt) (*image, error) {
	var h [64]byte
	if !readAt(r, h[:], 0) || string(h[:4]) != elf.ELFMAG || elf.Class(h[4]) != elf.ELFCLASS64 || elf.Data(h[5]) != elf.ELFDATA2LSB {
		return nil, errNotELF
	}
	le := binary.LittleEndian
	img := &image{}
	switch elf.Type(le.Uint16(h[16:])) {
	case elf.ET_EXEC:
		img.fixed = true
	case elf.ET_DYN:
	default:
		return nil, errNotELF
	}
	phoff, shoff := le.Uint64(h[32:]), le.Uint64(h[40:])
	phsize, phnum := le.Uint16(h[54:]), le.Uint16(h[56:])
	shsize, shnum, shstr := le.Uint16(h[58:]), le.Uint16(h[60:]), le.Uint16(h[62:])
	if phsize != 56 || phnum > maxProgHeaders {
		return nil, errNotELF
	}
	programs := make([]byte, int(phnum)*56)
	if !readAt(r, programs, phoff) {
		return nil, errNotELF
	}
	for ; len(programs) > 0; programs = programs[56:] {
		if elf.ProgType(le.Uint32(programs)) == elf.PT_LOAD {
			img.loads = append(img.loads, elfLoad{offset: le.Uint64(programs[8:]), addr: le.Uint64(programs[16:])})
		}
	}
	if shsize != 64 || shnum == 0 || shnum > maxSections || shstr >= shnum {
		return img, nil // no sections: the caller reports missing symbols
	}
	headers := make([]byte, int(shnum)*64)
	if !readAt(r, headers, shoff) {
		return img, nil
	}
	sections := make([]elfSection, shnum)
	for i := range sections {
		b := headers[64*i:]
		sections[i] = elfSection{
			name: le.Uint32(b), kind: elf.SectionType(le.Uint32(b[4:])), flags: elf.SectionFlag(le.Uint64(b[8:])),
			addr: le.Uint64(b[16:]), offset: le.Uint64(b[24:]), size: le.Uint64(b[32:]), link: le.Uint32(b[40:]),
		}
	}
	names := sectionBytes(r, sections[shstr], maxSectionNames)
	var readOnly elfSection
	for _, s := range sections {
		switch cString(names, s.name) {
		case ".PyRuntime": // CPython puts the variable there for readers like this one
			img.runtime, img.size = s.addr, s.size
		case ".rodata":
			readOnly = s
		}
	}
	// Stripped files still have the dynamic symbols; the others are the second choice.
	for _, kind := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		for _, s := range sections {
			if s.kind == kind && int(s.link) < len(sections) && (img.runtime == 0 || img.version == 0) {
				img.findSymbols(r, s, sections[s.link])
			}
		}
	}
	if img.version == 0 {
		img.minor = minorFromText(sectionBytes(r, readOnly, maxReadOnly))
	}
	return img, nil
}

// findSymbols looks for the variables in one symbol table.
func (img *image) findSymbols(r io.ReaderAt, table, text elfSection) {
	if table.flags&elf.SHF_COMPRESSED != 0 || text.flags&elf.SHF_COMPRESSED != 0 {
		return
	}
	names := sectionBytes(r, text, maxSymbolNames)
	const symbolBytes, chunk = 24, 4096
	count := min(table.size/symbolBytes, maxSymbols)
	buf := make([]byte, symbolBytes*min(count, chunk))
	for at := uint64(0); at < count; {
		n := min(count-at, chunk)
		b := buf[:symbolBytes*n]
		if table.offset > 1<<62 || !readAt(r, b, table.offset+at*symbolBytes) {
			return
		}
		for ; len(b) > 0; b = b[symbolBytes:] {
			addr := le64(b, 8)
			if section := binary.LittleEndian.Uint16(b[6:]); section == uint16(elf.SHN_UNDEF) || addr == 0 {
				continue
			}
			switch name := le32(b, 0); {
			case isString(names, name, symbolRuntime) && img.runtime == 0:
				img.runtime, img.size = addr, le64(b, 16)
			case isString(names, name, symbolVersion) && img.version == 0:
				img.version = addr
			}
		}
		at += n
	}
}

// base returns the value to add to the addresses of the file, if the part of the file at offset is mapped at start.
func (img *image) base(start, offset uint64) (uint64, bool) {
	if img.fixed {
		return 0, true
	}
	for _, l := range img.loads {
		const page = 4096 // the least there is: larger ones are multiples
		if l.offset&^(page-1) == offset || l.offset == offset {
			return start - (l.addr - (l.offset - offset)), true
		}
	}
	return 0, false
}

// pythonVersion matches PY_VERSION as a separate text, which every interpreter has.
var pythonVersion = regexp.MustCompile(`\x003\.(\d{1,2})\.\d{1,2}(?:\+|(?:a|b|rc)\d{1,2}\+?)?\x00`)

// minorFromText finds the version in the texts of an interpreter, for builds whose symbols do not show it (Py_Version
// came with 3.11).
func minorFromText(data []byte) int {
	for _, m := range pythonVersion.FindAllSubmatch(data, 8) {
		minor := 0
		for _, d := range m[1] {
			minor = 10*minor + int(d-'0')
		}
		if minor >= 6 {
			return minor
		}
	}
	return 0
}

// sectionBytes reads a section, nil if it cannot be read or is longer than limit.
func sectionBytes(r io.ReaderAt, s elfSection, limit uint64) []byte {
	if s.size == 0 || s.size > limit || s.kind == elf.SHT_NOBITS || s.flags&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	// Read in pieces: a file that claims to be long gets memory only as its bytes arrive.
	var out bytes.Buffer
	if s.offset > 1<<62 {
		return nil
	}
	n, err := io.Copy(&out, io.NewSectionReader(r, int64(s.offset), int64(s.size)))
	if err != nil || uint64(n) != s.size {
		return nil
	}
	return out.Bytes()
}

// cString returns the text at off up to its NUL byte.
func cString(b []byte, off uint32) string {
	if uint64(off) >= uint64(len(b)) {
		return ""
	}
	b = b[off:min(uint64(len(b)), uint64(off)+64)]
	if end := bytes.IndexByte(b, 0); end >= 0 {
		return string(b[:end])
	}
	return ""
}

// isString reports whether b has text at off, with its NUL byte.
func isString(b []byte, off uint32, text string) bool {
	end := uint64(off) + uint64(len(text))
	return end < uint64(len(b)) && b[end] == 0 && string(b[off:end]) == text
}

func readAt(r io.ReaderAt, b []byte, off uint64) bool {
	if off > 1<<62 {
		return false
	}
	n, err := r.ReadAt(b, int64(off))
	return n == len(b) && (err == nil || errors.Is(err, io.EOF))
}
