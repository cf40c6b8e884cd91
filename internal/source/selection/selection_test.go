package selection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

var (
	png    = "\x89PNG\r\n\x1a\n"
	wav    = "RIFF\x00\x00\x00\x00WAVE"
	ts     = "G" + strings.Repeat("\x00", 187) + "G" + strings.Repeat("\x00", 187)
	dicom  = strings.Repeat("\x00", 128) + "DICM"
	brand  = func(s string) string { return "\x00\x00\x00\x18ftyp" + s }
	script = "export const a = 1\n"
)

// Names and first bytes decide what a file is.
func TestTypes(t *testing.T) {
	for _, test := range []struct {
		name, content, want string
	}{
		{"a.jpg", "", "an image"},
		{"a/B.JPEG", "", "an image"},
		{"a.heic", "", "an image, not read: .heic"},
		{"a.wav", "", "sound"},
		{"a.AIFF", "", "sound"},
		{"a.m4a", "", "sound"},
		{"a.mp4", "", "a video"},
		{"a.flv", "", "a video"},
		{"a.nii.gz", "", "a volume"},
		{"a.nii", "", "a volume"},
		{"a.csv.gz", "", "a file"},
		{"a.dcm", "", "a DICOM file"},
		{"DICOMDIR", "", "a DICOM file"},
		{"README", "", "a file"},
		{"a.md", "", "a file"},
		{"SHA256SUMS", "", "a file"},
		{"a", png, "an image"},
		{"a.mpo", "\xff\xd8\xff\xe1", "an image"},
		{"a", wav, "sound"},
		{"a", "OggS", "sound"},
		{"a", "ID3\x03", "sound"},
		{"a", "\xff\xfb\x90\x00", "sound"},
		{"a", "\xff\xfe\x90\x00", "a file"}, // UTF-16 text
		{"a", "FORM\x00\x00\x00\x00AIFF", "sound"},
		{"a.ts", ts, "a video"},
		{"a.ts", script, "a file"},
		{"a", brand("heic"), "an image, not read: HEIF"},
		{"a", brand("M4A "), "sound"},
		{"a", "\x1a\x45\xdf\xa3", "a video"},
		{"1.2.840.55", dicom, "a DICOM file"},
		{"a", "", "a file"},
		{"a", "P6", "a file"},
	} {
		got := ByName(test.name)
		if settled := got.Known; settled != (test.content == "" && test.name != "a") {
			t.Errorf("%s: settled by its name: %v", test.name, settled)
		}
		if !got.Known {
			got = ByContent([]byte(test.content))
		}
		text := got.Kind.String()
		if got.Unread != "" {
			text += ", not read: " + got.Unread
		}
		if text != test.want {
			t.Errorf("%s %.12q: %s, want %s", test.name, test.content, text, test.want)
		}
	}
}

// counted counts the files that are opened. It calls Keep twice per name, as a restarted
// listing does.
type counted struct {
	*storetest.Memory
	opens atomic.Int64
}

func (c *counted) Open(ctx context.Context, name string) (store.Object, error) {
	c.opens.Add(1)
	return c.Memory.Open(ctx, name)
}

func (c *counted) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	twice := *opt
	if keep := opt.Keep; keep != nil {
		twice.Keep = func(name string) bool { // a store may ask about a name more than once
			keep(name)
			return keep(name)
		}
	}
	return c.Memory.List(ctx, dir, &twice, f)
}

func storeOf(files ...string) *counted {
	objects := map[string][]byte{}
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		objects[name] = []byte(content)
	}
	return &counted{Memory: storetest.NewMemory(objects)}
}

// Scan selects files of folders and counts the others by reason.
func TestScan(t *testing.T) {
	for _, test := range []struct {
		name  string
		opt   Options
		files []string
		want  string
		left  string
		opens int64
	}{
		{
			name: "bystanders", opt: Options{Kind: Image},
			files: []string{"a.jpg", "b.PNG", "README.md", "labels.json", "a.xml", "SHA256SUMS", "sub/Thumbs.db", "desktop.ini", ".hidden", "LICENSE"},
			want:  "a.jpg b.PNG",
			left: "5 text, tables and other files that are not media: LICENSE README.md SHA256SUMS, " +
				"2 thumbnail databases and settings of a file manager: desktop.ini sub/Thumbs.db",
		},
		{
			name: "sound with covers", opt: Options{Kind: Sound},
			files: []string{"1.wav", "2.mid", "cover.jpg", "3.mp3", "4.aiff", "5.m4a"},
			want:  "1.wav 2.mid! 3.mp3 4.aiff 5.m4a", left: "1 images in a folder of sound, which folder:memory: reads: cover.jpg",
		},
		{
			name: "by content", opt: Options{Kind: Image},
			files: []string{"a.jpg", "b=" + png, "c=" + script, "d.foo=" + png, "e.ts=" + script, "f.jpg", "g=" + brand("heic"), "h=" + wav},
			want:  "a.jpg b d.foo f.jpg g!",
			left:  "2 content that is not of a known format: c e.ts, 1 sound in a folder of images, which audio:memory: reads: h", opens: 6,
		},
		{
			name: "videos", opt: Options{Kind: Video},
			files: []string{"a.mp4", "b.ts=" + ts, "c.ts=" + script, "d.wmv", "e.gif"},
			want:  "a.mp4 b.ts d.wmv",
			left:  "1 content that is not of a known format: c.ts, 1 images in a folder of videos, which folder:memory: reads: e.gif", opens: 2,
		},
		{
			name: "litter", opt: Options{Kind: Image},
			files: []string{"__MACOSX/a.jpg", "__MACOSX/cat/b.jpg", "cat/@eaDir/c.jpg/SYNOPHOTO.jpg", "cat/c.jpg", "lost+found/d.jpg", "$RECYCLE.BIN/e.jpg", "#recycle/f.jpg"},
			want:  "cat/c.jpg", left: "5 folders that a system or a program leaves behind: #recycle/ $RECYCLE.BIN/ __MACOSX/",
		},
		{
			name: "all files", opt: Options{},
			files: []string{"a.txt", "b", "Thumbs.db", "__MACOSX/a.txt"},
			want:  "a.txt b",
			left: "1 folders that a system or a program leaves behind: __MACOSX/, " +
				"1 thumbnail databases and settings of a file manager: Thumbs.db",
		},
		{name: "one file", opt: Options{Kind: Sound, Only: "a.jpg"}, files: []string{"a.jpg", "b.wav"}, want: "a.jpg"},
		{name: "late", opt: Options{Kind: DICOM, Late: true}, files: []string{"1.dcm", "IM1", "a.txt"}, want: "1.dcm IM1", left: "1 text, tables and other files that are not media: a.txt"},
	} {
		st := storeOf(test.files...)
		var got []string
		left, err := Scan(t.Context(), st, test.opt, func(f File) error {
			name := f.Name
			if f.Bad != nil {
				name += "!"
				if !strings.Contains(f.Bad.Error(), st.Path(f.Name)+": "+test.opt.Kind.String()+" of a format that is not read: ") {
					t.Errorf("%s: %v", test.name, f.Bad)
				}
			}
			got = append(got, name)
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: got %s, want %s", test.name, text, test.want)
		}
		if text := leftText(left); text != test.left {
			t.Errorf("%s: not selected:\n%s, want\n%s", test.name, text, test.left)
		}
		if n := st.opens.Load(); n != test.opens {
			t.Errorf("%s: %d files were opened, want %d", test.name, n, test.opens)
		}
	}
}

func leftText(l *Left) string {
	var out []string
	for _, s := range l.Skipped() {
		out = append(out, fmt.Sprintf("%d %s: %s", s.Count, s.Reason, strings.Join(s.Examples, " ")))
	}
	return strings.Join(out, ", ")
}

// The order stays that of the names when many files are decided by their content.
func TestScanOrder(t *testing.T) {
	var files, want []string
	for i := range 3*heldFiles/2 + 7 {
		name := fmt.Sprintf("%05d", i)
		switch i % 3 {
		case 0:
			files, want = append(files, name+"="+png), append(want, name)
		case 1:
			files, want = append(files, name+".jpg"), append(want, name+".jpg")
		default:
			files = append(files, name+".foo=text")
		}
	}
	var got []string
	left, err := Scan(t.Context(), storeOf(files...), Options{Kind: Image}, func(f File) error {
		got = append(got, f.Name)
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d files, want %d: %v", len(got), len(want), err)
	}
	if s := left.Skipped(); len(s) != 1 || s[0].Count != int64(len(files)-len(want)) || len(s[0].Examples) != driver.MaxExamples {
		t.Errorf("%+v", s)
	}
}

// An error of f or of the store ends a scan.
func TestScanEnds(t *testing.T) {
	stop := errors.New("stop")
	for _, files := range [][]string{{"a.jpg"}, {"a=" + png, "b.jpg"}} {
		if _, err := Scan(t.Context(), storeOf(files...), Options{Kind: Image}, func(File) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%v: %v", files, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Scan(ctx, storeOf("a.jpg", "b="+png), Options{Kind: Image}, func(File) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCensus(t *testing.T) {
	var photos, unknown []string
	for i := range 20 {
		photos = append(photos, fmt.Sprintf("%d.jpg", i))
		unknown = append(unknown, fmt.Sprintf("%d", i))
	}
	for _, test := range []struct {
		files []string
		want  Kind
		opens int64
	}{
		{[]string{"a.jpg", "b.jpg", "c.wav"}, Image, 0},
		{[]string{"a.wav", "b.wav", "a.jpg", "README.md"}, Sound, 0},
		{[]string{"a.wav", "cover.jpg", "folder.jpg", "AlbumArtSmall.jpg", "b_thumb.png"}, Sound, 0},
		{[]string{"a.wav", "a.jpg"}, Sound, 0},
		{[]string{"a.mp4", "b.gif"}, Video, 0},
		{[]string{"a.nii.gz", "T1.json", "T1.bval", "preview.png"}, NIfTI, 0},
		{[]string{"a.dcm", "DICOMDIR", "a.png"}, DICOM, 0},
		{[]string{"cover.jpg"}, Image, 0},
		{[]string{"a.aiff", "b.txt", "c.csv"}, Sound, 0},
		{[]string{"__MACOSX/a.jpg", "__MACOSX/b.jpg", "a.wav"}, Sound, 0},
		{[]string{"a.txt"}, None, 0},
		{append([]string{"a", "b.foo"}, photos...), Image, 0},
		{append([]string{"a=" + dicom, "b=" + dicom}, "README"), DICOM, 2},
		{append([]string{"x.ts=" + ts}, "index.html"), Video, 1},
		{append([]string{"x.jpg"}, unknown...), Image, 20},
	} {
		st := storeOf(test.files...)
		var c Census
		for range 2 { // the second call uses the cached result
			if got := c.Of(t.Context(), st); got != test.want {
				t.Errorf("%v: %s, want %s", test.files, got, test.want)
			}
		}
		if n := st.opens.Load(); n != test.opens {
			t.Errorf("%v: %d files were opened, want %d", test.files, n, test.opens)
		}
	}
}
