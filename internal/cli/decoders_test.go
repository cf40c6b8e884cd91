package cli

import (
	"strings"
	"testing"
)

// Codecs with the same decoder share lines of 80 columns. Missing decoders have commands to type.
func TestDecodersPage(t *testing.T) {
	var p page
	long := "/home/user/" + strings.Repeat("folder/", 20) + "libavif-01234567.so.16"
	install := []string{"apt-get install libavif-bin", "pip install pillow"}
	p.decoders([]decoder{
		{Kind: "image", Codec: "JPEG", Decodes: true}, {Kind: "image", Codec: "PNG", Decodes: true},
		{Kind: "image", Codec: "AVIF", Decodes: true, Library: "libavif", Version: "1.2", Path: long},
		{Kind: "image", Codec: "JPEG XL", Library: "libjxl", Why: "libjxl cannot be used (" + strings.Repeat("a reason ", 12) + ")", Install: install},
		{Kind: "video", Codec: "H.264", Library: "libavcodec", Why: "this program is static"},
	})
	for _, want := range []string{
		"\n  image   JPEG, PNG: built in\n", "\n          AVIF: libavif 1.2\n            ...", "/libavif-01234567.so.16\n",
		"\n          JPEG XL: no: libjxl cannot be used", "helps:\n            apt-get install libavif-bin\n            pip install pillow\n",
		"\n  video   H.264: no: this program is static\n",
	} {
		if !strings.Contains(p.String(), want) {
			t.Errorf("%q is not in\n%s", want, &p)
		}
	}
	for line := range strings.Lines(p.String()) {
		if len(strings.TrimSuffix(line, "\n")) > pageWidth {
			t.Errorf("more than %d columns: %s", pageWidth, line)
		}
	}
}

// Every codec has a kind, and one that is not decoded has a reason.
func TestDecoders(t *testing.T) {
	for _, d := range decoders() {
		if d.Kind == "" || d.Codec == "" || d.Decodes == (d.Why != "") || (d.Decodes && d.Library != "") != (d.Path != "") {
			t.Errorf("%+v", d)
		}
	}
}
