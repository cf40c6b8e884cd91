// Package storage makes data in the shape of the storage benchmark of MLPerf:
// valid .npz and TFRecord files of the published sizes, filled with bytes that no
// file system compresses. They are for measuring how fast bytes move; there is
// nothing in them to learn.
package storage

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/tfrecordsource"
	"github.com/stokerdata/stoker/source/driver"
)

// Workload is one of the shapes. The figures are those of the workload files of
// DLIO 2.0 (dlio_benchmark/configs/workload/*_a100.yaml and *_h100.yaml).
type Workload struct {
	Name  string `json:"workload"`
	Title string `json:"title"`
	// RecordBytes is the size of a record, RecordsPerFile the number of records per file.
	RecordBytes    int64 `json:"record_bytes"`
	RecordsPerFile int   `json:"records_per_file"`
	// Files is the published number of files.
	Files int `json:"published_files"`
	// Formats are the formats that it can be written in, the published one first.
	Formats []string `json:"-"`
	// Batch is the number of records per step of an accelerator, A100 and H100
	// the seconds of a step, Target the accelerator utilisation to reach.
	Batch  int     `json:"batch_size"`
	A100   float64 `json:"seconds_a100"`
	H100   float64 `json:"seconds_h100"`
	Target float64 `json:"au_target"`
}

// The formats of files.
const (
	NPZ      = "npz"
	TFRecord = "tfrecord"
	// Indexed is DLIO's indexed_binary: concatenated records, with the files .off.idx and .sz.idx of 64-bit offsets and
	// sizes.
	Indexed = "indexed_binary"
)

// Workloads are all shapes.
var Workloads = []Workload{
	{
		Name: "unet3d", Title: "volumes of 146.6 MB, a file each", RecordBytes: 146_600_628, RecordsPerFile: 1, Files: 168,
		Formats: []string{NPZ, TFRecord}, Batch: 7, A100: 0.636, H100: 0.323, Target: 0.90,
	},
	{
		Name: "resnet50", Title: "records of 114,660 bytes, 1,251 in a file", RecordBytes: 114_660, RecordsPerFile: 1251, Files: 1024,
		Formats: []string{TFRecord, NPZ, Indexed}, Batch: 400, A100: 0.435, H100: 0.224, Target: 0.90,
	},
	{
		Name: "cosmoflow", Title: "volumes of 2.83 MB, a file each", RecordBytes: 2_828_486, RecordsPerFile: 1, Files: 524_288,
		Formats: []string{TFRecord, NPZ}, Batch: 1, A100: 0.00551, H100: 0.00350, Target: 0.70,
	},
}

// Find returns the workload of a name.
func Find(name string) (*Workload, bool) {
	for i := range Workloads {
		if Workloads[i].Name == name {
			return &Workloads[i], true
		}
	}
	return nil, false
}

// DescriptionName is the file in the folder that describes its contents.
const DescriptionName = "storage.json"

// Options are the settings of a generated data set.
type Options struct {
	Workload *Workload
	// Format is one of Workload.Formats, "" for the first.
	Format string
	// Files is the number of files; 0 means Scale x the published number, at
	// least 1. In .npz files each record is a file of its own.
	Files int
	Scale float64
	Seed  uint64
}

// Description is the content of DescriptionName.
type Description struct {
	Workload
	Format  string `json:"format"`
	Files   int    `json:"files"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	Seed    uint64 `json:"seed"`
}

// Check fills in the defaults and returns an error for invalid options.
func (o *Options) Check() error {
	w := o.Workload
	if o.Format == "" {
		o.Format = w.Formats[0]
	}
	known := false
	for _, f := range w.Formats {
		known = known || f == o.Format
	}
	switch {
	case !known:
		return fmt.Errorf("%s is written as %v, not as %q", w.Name, w.Formats, o.Format)
	case o.Files < 0 || o.Files > 1<<24:
		return fmt.Errorf("%d files: give 1 to %d", o.Files, 1<<24)
	case o.Files == 0 && !(o.Scale > 0 && o.Scale <= 16):
		return fmt.Errorf("a scale of %g: 1 is the published number of files, %d; give more than 0 and at most 16", o.Scale, w.Files)
	case o.Files == 0:
		n := w.Files
		if o.Format == NPZ {
			n *= w.RecordsPerFile
		}
		o.Files = max(1, int(math.Round(float64(n)*o.Scale)))
	}
	return nil
}

func (o *Options) recordsPerFile() int {
	if o.Format == NPZ {
		return 1
	}
	return o.Workload.RecordsPerFile
}

// Bytes is about the number of bytes that Write writes.
func (o *Options) Bytes() int64 {
	return int64(o.Files) * int64(o.recordsPerFile()) * o.Workload.RecordBytes
}

// Write writes the files into dir/train of the existing folder dir, with all cores. It also makes an empty dir/valid,
// which DLIO requires. After each file it calls done with its size, from several goroutines.
func Write(ctx context.Context, dir string, o Options, done func(bytes int64)) (*Description, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	for _, sub := range []string{"train", "valid"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o777); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	var next, total atomic.Int64
	group, gctx := errgroup.WithContext(ctx)
	for range min(runtime.GOMAXPROCS(0), o.Files) {
		group.Go(func() error {
			w := &writer{o: &o}
			for {
				i := int(next.Add(1)) - 1
				if i >= o.Files {
					return nil
				}
				if err := context.Cause(gctx); err != nil {
					return err
				}
				n, err := w.file(filepath.Join(dir, "train", fmt.Sprintf("img_%06d.%s", i, o.Format)), i)
				if err != nil {
					return err
				}
				total.Add(n)
				done(n)
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	d := &Description{Workload: *o.Workload, Format: o.Format, Files: o.Files, Records: int64(o.Files) * int64(o.recordsPerFile()), Bytes: total.Load(), Seed: o.Seed}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, err
	}
	return d, os.WriteFile(filepath.Join(dir, DescriptionName), append(text, '\n'), 0o666)
}

// Read reads the description of a folder that Write has made.
func Read(dir string) (*Description, error) {
	b, err := os.ReadFile(filepath.Join(dir, DescriptionName))
	if err != nil {
		return nil, err
	}
	d := &Description{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, DescriptionName), err)
	}
	return d, nil
}

// writer is the state that one goroutine uses again for each file.
type writer struct {
	o    *Options
	buf  []byte
	data []byte
}

// noise fills b with bytes that depend on (seed, file, record) alone.
func (w *writer) noise(b []byte, file, record int) {
	p := rand.NewPCG(w.o.Seed, uint64(file)<<24|uint64(record))
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], p.Uint64())
	}
	for v := p.Uint64(); i < len(b); i++ {
		b[i] = byte(v)
		v >>= 8
	}
}

func (w *writer) file(name string, i int) (int64, error) {
	w.buf = w.buf[:0]
	var err error
	var offsets, sizes []byte
	switch w.o.Format {
	case NPZ:
		err = w.npz(i)
	default:
		for k := range w.o.recordsPerFile() {
			if w.o.Format == Indexed {
				offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(w.buf)))
				sizes = binary.LittleEndian.AppendUint64(sizes, uint64(w.o.Workload.RecordBytes))
				w.grow(int(w.o.Workload.RecordBytes))
				w.noise(w.data, i, k)
				w.buf = append(w.buf, w.data...)
				continue
			}
			w.example(i, k)
			w.buf = tfrecordsource.AppendRecord(w.buf, w.data)
		}
	}
	if err == nil {
		err = os.WriteFile(name, w.buf, 0o666)
	}
	if err == nil && w.o.Format == Indexed {
		err = errors.Join(os.WriteFile(name+".off.idx", offsets, 0o666), os.WriteFile(name+".sz.idx", sizes, 0o666))
	}
	return int64(len(w.buf)), err
}

func (w *writer) grow(n int) {
	if cap(w.data) < n {
		w.data = make([]byte, n)
	}
	w.data = w.data[:n]
}

// npz writes the arrays "x", bytes of two axes and one sample, and "y", as DLIO
// and numpy.savez do: stored, not compressed.
func (w *writer) npz(i int) error {
	side := int64(math.Sqrt(float64(w.o.Workload.RecordBytes)))
	x := npy.AppendHeader(nil, driver.Uint8, []int64{side, w.o.Workload.RecordBytes / side, 1})
	w.grow(len(x) + int(side*(w.o.Workload.RecordBytes/side)))
	copy(w.data, x)
	w.noise(w.data[len(x):], i, 0)
	y := append(npy.AppendHeader(nil, driver.Int64, []int64{1}), make([]byte, 8)...)
	out := bytes.NewBuffer(w.buf)
	z := zip.NewWriter(out)
	for _, a := range []struct {
		name string
		data []byte
	}{{"x.npy", w.data}, {"y.npy", y}} {
		part, err := z.CreateRaw(&zip.FileHeader{
			Name: a.name, Method: zip.Store, CRC32: crc32.ChecksumIEEE(a.data),
			CompressedSize64: uint64(len(a.data)), UncompressedSize64: uint64(len(a.data)),
		})
		if err != nil {
			return err
		}
		if _, err := io.Copy(part, bytes.NewReader(a.data)); err != nil {
			return err
		}
	}
	err := z.Close()
	w.buf = out.Bytes()
	return err
}

// example makes a tf.train.Example of RecordBytes bytes with the feature "image":
// nested messages, each a tag, a length and its content.
func (w *writer) example(file, record int) {
	const key = "\x0a\x05image"
	payload := int(w.o.Workload.RecordBytes)
	for { // the lengths in front of the payload depend on its size
		n := payload
		for range 2 { // BytesList.value, Feature.bytes_list
			n += 1 + varintBytes(n)
		}
		n += 1 + varintBytes(n) + len(key) // FeatureMap entry: key, value
		for range 2 {                      // Features.feature, Example.features
			n += 1 + varintBytes(n)
		}
		if n <= int(w.o.Workload.RecordBytes) {
			break
		}
		payload -= n - int(w.o.Workload.RecordBytes)
	}
	list := 1 + varintBytes(payload) + payload
	feature := 1 + varintBytes(list) + list
	entry := len(key) + 1 + varintBytes(feature) + feature
	features := 1 + varintBytes(entry) + entry
	w.grow(int(w.o.Workload.RecordBytes) + 64)
	b := w.data[:0]
	for _, n := range []int{features, entry} {
		b = binary.AppendUvarint(append(b, 0x0A), uint64(n))
	}
	b = append(b, key...)
	b = binary.AppendUvarint(append(b, 0x12), uint64(feature))
	for _, n := range []int{list, payload} {
		b = binary.AppendUvarint(append(b, 0x0A), uint64(n))
	}
	at := len(b)
	b = b[:at+payload]
	w.noise(b[at:], file, record)
	w.data = b
}

func varintBytes(n int) int { return len(binary.AppendUvarint(nil, uint64(n))) }
