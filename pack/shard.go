package pack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
)

const (
	shardSuffix   = ".arrow"
	partialSuffix = ".partial"
)

func shardName(i int) string { return fmt.Sprintf("shard-%05d%s", i, shardSuffix) }

// shardMeta is the metadata of every shard's schema, so that a shard that lost
// its manifest still says what it is.
func shardMeta(version int) []arrowipc.KeyValue {
	return []arrowipc.KeyValue{{Key: "stoker.pack.version", Value: fmt.Sprint(version)}}
}

// file is what the writer needs of an open file.
type file interface {
	io.Writer
	io.ReaderAt
	Sync() error
	Truncate(size int64) error
	Close() error
	Fd() uintptr
}

// fileSystem is where a writer writes; tests put faults into it.
type fileSystem interface {
	OpenFile(name string, flag int, perm os.FileMode) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
}

type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm os.FileMode) (file, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // a file system without it
	}
	return err
}

// shardWriter writes the shards of a pack, one after the other.
type shardWriter struct {
	fs    fileSystem
	dir   string
	cols  []arrowipc.Column
	bulk  int // the first column behind the head of a chunk
	meta  []arrowipc.KeyValue
	limit int64

	shards []Shard
	f      file // of the last element of shards, nil when that is finished
	out    *bufio.Writer
	blocks []arrowipc.Block
	at     int64
	hash   *xxh3.Hasher
}

func newShardWriter(fs fileSystem, dir string, m *Manifest, limit int64) *shardWriter {
	return &shardWriter{fs: fs, dir: dir, cols: m.columns(), bulk: m.bulk(), meta: shardMeta(m.Version), limit: limit, hash: xxh3.New()}
}

func (w *shardWriter) open() bool { return w.f != nil }

// full reports whether a chunk of the given size no longer fits into the open
// shard.
func (w *shardWriter) full(chunk int64) bool {
	return w.open() && len(w.blocks) > 0 && w.at+chunk > w.limit
}

func (w *shardWriter) partialPath(shard int) string {
	return filepath.Join(w.dir, shardName(shard)+partialSuffix)
}

func (w *shardWriter) fail(what string, err error) error {
	return writeError(fmt.Sprintf("%s %s", what, filepath.Join(w.dir, w.shards[len(w.shards)-1].File)), err)
}

// begin opens the next shard.
func (w *shardWriter) begin() error {
	i := len(w.shards)
	w.shards = append(w.shards, Shard{File: shardName(i)})
	f, err := w.fs.OpenFile(w.partialPath(i), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return w.fail("cannot create", err)
	}
	w.attach(f, 0, nil)
	head := arrowipc.Header(w.cols, w.meta)
	if _, err := w.out.Write(head); err != nil {
		return w.fail("cannot write", err)
	}
	w.at = int64(len(head))
	return nil
}

// attach goes on with an open shard file.
func (w *shardWriter) attach(f file, at int64, blocks []arrowipc.Block) {
	w.f, w.at, w.blocks = f, at, blocks
	w.out = bufio.NewWriterSize(f, 256<<10)
}

// add writes one chunk into the open shard.
func (w *shardWriter) add(b *arrowipc.Batch) (Chunk, error) {
	parts, block, head := b.Parts(w.cols, w.bulk)
	block.Offset = w.at
	w.hash.Reset()
	for _, p := range parts {
		_, _ = w.hash.Write(p)
		if _, err := w.out.Write(p); err != nil {
			return Chunk{}, w.fail("cannot write", err)
		}
	}
	if err := w.out.Flush(); err != nil {
		return Chunk{}, w.fail("cannot write", err)
	}
	n := int64(block.MetaBytes) + block.BodyBytes
	startWriteback(w.f, w.at, n)
	c := Chunk{Offset: w.at, Bytes: n, Head: head, Rows: int64(b.Rows), XXH3: Checksum(w.hash.Sum64())}
	w.at += n
	w.blocks = append(w.blocks, block)
	s := &w.shards[len(w.shards)-1]
	s.Chunks = append(s.Chunks, c)
	s.Records += c.Rows
	return c, nil
}

// finish writes the footer and gives the shard its name.
func (w *shardWriter) finish() error {
	i := len(w.shards) - 1
	foot := arrowipc.Footer(w.cols, w.meta, w.blocks)
	if _, err := w.out.Write(foot); err != nil {
		return w.fail("cannot write", err)
	}
	if err := w.out.Flush(); err != nil {
		return w.fail("cannot write", err)
	}
	if err := w.f.Sync(); err != nil {
		return w.fail("cannot write", err)
	}
	f := w.f
	w.f = nil
	if err := f.Close(); err != nil {
		return w.fail("cannot write", err)
	}
	if err := w.fs.Rename(w.partialPath(i), filepath.Join(w.dir, shardName(i))); err != nil {
		return w.fail("cannot name", err)
	}
	w.shards[i].Bytes = w.at + int64(len(foot))
	return nil
}

// suspend makes what was written durable and closes the open shard, to be gone
// on with later.
func (w *shardWriter) suspend() error {
	if w.f == nil {
		return nil
	}
	f := w.f
	w.f = nil
	err := f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return w.fail("cannot write", err)
	}
	return nil
}

// blocksOf rebuilds the footer's blocks of a shard from its chunks.
func blocksOf(r io.ReaderAt, chunks []Chunk) ([]arrowipc.Block, error) {
	blocks := make([]arrowipc.Block, len(chunks))
	var prefix [8]byte
	for i, c := range chunks {
		if _, err := r.ReadAt(prefix[:], c.Offset); err != nil {
			return nil, err
		}
		meta, err := arrowipc.MetaSize(prefix[:])
		if err != nil || meta > c.Bytes {
			return nil, fmt.Errorf("chunk %d: %w", i, err)
		}
		blocks[i] = arrowipc.Block{Offset: c.Offset, MetaBytes: int32(meta), BodyBytes: c.Bytes - meta}
	}
	return blocks, nil
}

// writeError makes a message out of a failed write that says what to do.
func writeError(what string, err error) error {
	err = plain(err)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%s: %w; make room and run the same command again, it goes on from here", what, err)
	case errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: %w; free some of the quota and run the same command again, it goes on from here", what, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: %w; choose a folder that can be written to", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// checkChunk compares the checksum of chunk c in r, through buf.
func checkChunk(r io.ReaderAt, c Chunk, buf []byte) error {
	h := xxh3.New()
	for at := int64(0); at < c.Bytes; {
		n := min(int64(len(buf)), c.Bytes-at)
		if _, err := r.ReadAt(buf[:n], c.Offset+at); err != nil {
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("the file ends inside of it")
			}
			return plain(err)
		}
		_, _ = h.Write(buf[:n])
		at += n
	}
	if got := Checksum(h.Sum64()); got != c.XXH3 {
		return fmt.Errorf("checksum %016x, should be %016x", uint64(got), uint64(c.XXH3))
	}
	return nil
}
