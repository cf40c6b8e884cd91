package decode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/hugeimagetest"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// childImage names, for a child process of the test, the image that it decodes.
const childImage = "STOKER_TEST_IMAGE"

// thumbnail asks for the whole image at 64 x 64 pixels.
func thumbnail(src []byte) (Request, error) {
	info, err := imagefile.Probe(src)
	if err != nil {
		return Request{}, err
	}
	out := item.Rect{W: 64, H: 64}
	return Request{
		Value: driver.Value{Bytes: src},
		Geom:  item.Geometry{Box: item.Rect{W: info.Width, H: info.Height}, ResizeW: 64, ResizeH: 64, Window: out, Filter: item.Bilinear},
		Store: PlainRGB, Dst: make([]byte, 64*64*3),
	}, nil
}

// TestChildDecodes is not a test but the child of TestMemoryIsWhatDecodingTakes: it
// prints by how much the largest resident memory grew.
func TestChildDecodes(t *testing.T) {
	name := os.Getenv(childImage)
	if name == "" {
		t.Skip("of a child process")
	}
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	req, err := thumbnail(src)
	if err != nil {
		t.Fatal(err)
	}
	d := newDecoder(t, Options{})
	before := peak(t)
	reqs := []Request{req}
	d.Run(reqs)
	fmt.Printf("grew by %d: %v\n", peak(t)-before, reqs[0].Err)
}

// peak is the largest resident memory of this process until now.
func peak(t *testing.T) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Skip(err)
	}
	return kib << 10
}

// The result of Memory is never less than the memory that decoding takes, and not several times as much, for a file of
// each format.
func TestMemoryIsWhatDecodingTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("what race detector and sanitizers take beside is not the decoders'")
	}
	const side, slack = 2000, 8 << 20
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range hugeimagetest.Formats {
		src, err := hugeimagetest.Make(format, side, side)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), format)
		if err := os.WriteFile(name, src, 0o600); err != nil {
			t.Fatal(err)
		}
		say, err := Memory(driver.Value{Bytes: src})
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		child := exec.Command(self, "-test.run=^TestChildDecodes$")
		child.Env = append(os.Environ(), childImage+"="+name)
		out, err := child.Output()
		var grew int64
		if _, scan := fmt.Sscanf(string(out), "grew by %d", &grew); err != nil || scan != nil {
			t.Fatalf("%s: %v, %s", format, err, out)
		}
		line, _, _ := strings.Cut(string(out), "\n")
		t.Logf("%-22s %8d bytes: %4d MiB, said %4d; %s", format, len(src), grew>>20, say>>20, line)
		if grew > say+slack {
			t.Errorf("%s takes %d MiB, Memory says %d", format, grew>>20, say>>20)
		}
		if say > 4*grew+4*slack {
			t.Errorf("%s takes %d MiB only, Memory says %d", format, grew>>20, say>>20)
		}
	}
}

// An image is decoded with exactly the memory that Memory returns. With less it is refused because of its header, or by
// libjpeg if the source has reported a wrong size.
func TestMemoryIsALimit(t *testing.T) {
	d := newDecoder(t, Options{})
	for _, format := range hugeimagetest.Formats {
		src, err := hugeimagetest.Make(format, 700, 500)
		if err != nil {
			t.Fatal(err)
		}
		req, err := thumbnail(src)
		if err != nil {
			t.Fatal(err)
		}
		need, err := Memory(req.Value)
		if err != nil {
			t.Fatal(err)
		}
		run := func(limit int64) error {
			d.SetMemory(limit)
			reqs := []Request{req}
			d.Run(reqs)
			return reqs[0].Err
		}
		if err := run(need); err != nil && format != "webp" { // whose data end early
			t.Errorf("%s with %d bytes: %v", format, need, err)
		}
		var short *MemoryError
		if err := run(need - 1); !errors.As(err, &short) || short.Need != need || short.Limit != need-1 {
			t.Errorf("%s with a byte less: %v", format, err)
		}
		if err := run(0); err != nil && format != "webp" {
			t.Errorf("%s without a limit: %v", format, err)
		}
		req.Value.Width, req.Value.Height = 16, 16
		if err := run(bound(16, 16)); strings.HasPrefix(format, "jpeg-p") && !errors.As(err, &short) {
			t.Errorf("%s that is said to be small: %v", format, err)
		}
	}
}

func TestMemoryOfWhatIsNoImage(t *testing.T) {
	if _, err := Memory(driver.Value{Bytes: []byte("hello")}); !errors.Is(err, cdec.ErrUnsupported) {
		t.Error(err)
	}
	if n, err := Memory(driver.Value{Codec: driver.CodecRaw, Width: 5000, Height: 5000, Channels: 3}); err != nil || n > 4<<20 {
		t.Error(n, err)
	}
}
