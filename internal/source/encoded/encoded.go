// Package encoded reads the text of annotation files in any encoding that their reference readers accept.
package encoded

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"
)

// HeadBytes is the number of bytes that Wide looks at.
const HeadBytes = 4

// Wide returns the encoding of a text with 16 or 32 bits per character by its beginning, nil for others. The byte order
// mark decides, or else, if ASCII is true, which bytes are zero: the text begins with two ASCII characters, like JSON.
func Wide(head []byte, ascii bool) encoding.Encoding {
	zero := func(at int) bool { return len(head) > at && head[at] == 0 }
	switch has := func(bom string) bool { return bytes.HasPrefix(head, []byte(bom)) }; {
	case has("\xFF\xFE\x00\x00"):
		return utf32.UTF32(utf32.LittleEndian, utf32.UseBOM)
	case has("\x00\x00\xFE\xFF"):
		return utf32.UTF32(utf32.BigEndian, utf32.UseBOM)
	case has("\xFF\xFE"), has("\xFE\xFF"):
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case !ascii || len(head) < HeadBytes:
		return nil
	case zero(0) && zero(1):
		return utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)
	case zero(0):
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	case zero(1) && zero(2) && zero(3):
		return utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)
	case zero(1):
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	}
	return nil
}

// UTF8 returns a text as UTF-8 without a byte order mark, and whether it was Wide.
func UTF8(b []byte, ascii bool) (text []byte, wide bool) {
	if e := Wide(b[:min(len(b), HeadBytes)], ascii); e != nil {
		if text, _, err := transform.Bytes(e.NewDecoder(), b); err == nil {
			b, wide = text, true
		}
	}
	return bytes.TrimPrefix(b, []byte("\xEF\xBB\xBF")), wide
}

// Reader returns the UTF-8 of a text in an encoding with a name, such as that of an XML declaration.
func Reader(name string, in io.Reader) (io.Reader, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, n := range []string{name, strings.ReplaceAll(name, "_", "-"), strings.NewReplacer("-", "", "_", "").Replace(name)} {
		if e, err := ianaindex.IANA.Encoding(n); err == nil && e != nil {
			return e.NewDecoder().Reader(in), nil
		}
		if e, err := htmlindex.Get(n); err == nil {
			return e.NewDecoder().Reader(in), nil
		}
	}
	return nil, fmt.Errorf("the encoding %.40q is not known: convert the file to UTF-8 (iconv -t UTF-8)", name)
}
