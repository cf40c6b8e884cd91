// Package videotest makes small videos for tests.
package videotest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stokerdata/stoker/internal/video"
)

// chunk returns a RIFF chunk.
func chunk(kind string, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	b := binary.LittleEndian.AppendUint32([]byte(kind), uint32(len(body)))
	b = append(b, body...)
	if len(body)%2 == 1 {
		b = append(b, 0)
	}
	return b
}

// AVI returns a file of MJPEG: 10 frames a second.
func AVI(w, h int, frames ...[]byte) []byte {
	strh, strf := make([]byte, 56), make([]byte, 40)
	copy(strh, "vidsMJPG")
	binary.LittleEndian.PutUint32(strh[20:], 1)
	binary.LittleEndian.PutUint32(strh[24:], 10)
	binary.LittleEndian.PutUint32(strf[4:], uint32(w))
	binary.LittleEndian.PutUint32(strf[8:], uint32(h))
	copy(strf[16:], "MJPG")
	var movi, idx []byte
	for _, f := range frames {
		e := make([]byte, 16)
		copy(e, "00dc")
		binary.LittleEndian.PutUint32(e[8:], uint32(4+len(movi)))
		binary.LittleEndian.PutUint32(e[12:], uint32(len(f)))
		idx = append(idx, e...)
		movi = append(movi, chunk("00dc", f)...)
	}
	list := func(kind string, parts ...[]byte) []byte {
		return chunk("LIST", append([][]byte{[]byte(kind)}, parts...)...)
	}
	return chunk("RIFF", []byte("AVI "), list("hdrl", chunk("avih", make([]byte, 56)), list("strl", chunk("strh", strh), chunk("strf", strf))),
		list("movi", movi), chunk("idx1", idx))
}

// Gray returns a JPEG of one gray, of 16 x 8 pixels.
func Gray(level int) []byte {
	m := image.NewGray(image.Rect(0, 0, 16, 8))
	for i := range m.Pix {
		m.Pix[i] = uint8(level)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Write writes a video of frames whose grays are add, 10 + add, 20 + add and so on.
func Write(t testing.TB, path string, frames, add int) {
	t.Helper()
	var all [][]byte
	for k := range frames {
		all = append(all, Gray(10*k+add))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, AVI(16, 8, all...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Folder makes n videos of 10 to 15 frames in class folders a and b.
func Folder(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		Write(t, filepath.Join(dir, string(rune('a'+i%2)), fmt.Sprintf("%02d.avi", i)), 10+i%6, i)
	}
	return dir
}

// Grays returns the grays of the frames of a clip.
func Grays(t testing.TB, b []byte) (out []int) {
	t.Helper()
	var c video.Clip
	if err := c.Parse(b); err != nil {
		t.Fatal(err)
	}
	for _, at := range c.Frames {
		m, err := jpeg.Decode(bytes.NewReader(c.Packets[at].Data))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, int(m.(*image.Gray).Pix[0]))
	}
	return out
}

// Near reports whether grays are equal except for losses of JPEG.
func Near(a, b []int) bool {
	return slices.EqualFunc(a, b, func(x, y int) bool { return max(x-y, y-x) < 3 })
}
