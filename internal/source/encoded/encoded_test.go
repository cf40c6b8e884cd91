package encoded

import (
	"io"
	"strings"
	"testing"

	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// Every encoding of JSON that Python finds by itself, with and without a byte order mark.
func TestUTF8(t *testing.T) {
	const want = `{"name": "犬 ü"}`
	for _, bom := range []unicode.BOMPolicy{unicode.UseBOM, unicode.IgnoreBOM} {
		for _, order := range []unicode.Endianness{unicode.BigEndian, unicode.LittleEndian} {
			b, err := unicode.UTF16(order, bom).NewEncoder().String(want)
			if got, wide := UTF8([]byte(b), true); err != nil || string(got) != want || !wide {
				t.Errorf("UTF-16 %v %v: %q, %v", bom, order, got, err)
			}
		}
		for _, order := range []utf32.Endianness{utf32.BigEndian, utf32.LittleEndian} {
			b, err := utf32.UTF32(order, utf32.BOMPolicy(bom)).NewEncoder().String(want)
			if got, wide := UTF8([]byte(b), true); err != nil || string(got) != want || !wide {
				t.Errorf("UTF-32 %v %v: %q, %v", bom, order, got, err)
			}
		}
	}
	for _, b := range []string{want, "\xEF\xBB\xBF" + want} {
		if got, wide := UTF8([]byte(b), true); string(got) != want || wide {
			t.Errorf("%q", got)
		}
	}
	for _, b := range []string{"", "\xFF", "\xFF\xFE", "\xFF\xFE1", "0 \x000"} {
		UTF8([]byte(b), true)
		UTF8([]byte(b), false)
	}
}

func TestReader(t *testing.T) {
	chinese, err := simplifiedchinese.GBK.NewEncoder().String("犬")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"gb2312": chinese, "GBK": chinese, "UTF-8": "犬", "utf_8": "犬"} {
		r, err := Reader(name, strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != "犬" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, name := range []string{"ISO-8859-1", "latin-1", "latin1", "iso8859_1", "windows-1252", "cp1252"} {
		r, err := Reader(name, strings.NewReader("\xFC"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := io.ReadAll(r); err != nil || string(b) != "ü" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := Reader("klingon", strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "iconv") {
		t.Errorf("an unknown encoding: %v", err)
	}
}

func FuzzUTF8(f *testing.F) {
	f.Add([]byte("\xFF\xFE{\x00"), true)
	f.Fuzz(func(_ *testing.T, b []byte, ascii bool) { UTF8(b, ascii) })
}
