package pack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/store"
)

const shardSuffix = ".arrow"

// isShard reports whether name is that of a shard.
func isShard(name string) bool {
	return strings.HasPrefix(name, "shard-") && strings.HasSuffix(name, shardSuffix)
}

// reader reads at any offset: of an object, or of an upload that is resumed.
type reader interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
	Size() int64
}

// shardWriter writes the shards of a pack, one after the other.
type shardWriter struct {
	st    store.WriteStore
	piece Piece
	cols  []arrowipc.ColumnType
	meta  []arrowipc.KeyValue
	limit int64

	shards []Shard
	up     store.Upload // of the last element of shards, nil when that is finished
	out    *bufio.Writer
	blocks []arrowipc.Block
	at     int64
	hash   *xxh3.Hasher
}

func newShardWriter(st store.WriteStore, piece Piece, sch *schema, meta []arrowipc.KeyValue, limit int64) *shardWriter {
	return &shardWriter{st: st, piece: piece, cols: sch.cols, meta: meta, limit: limit, hash: xxh3.New()}
}

func (w *shardWriter) open() bool { return w.up != nil }

// full reports whether a chunk of the given size no longer fits into the open
// shard.
func (w *shardWriter) full(chunk int64) bool {
	return w.open() && len(w.blocks) > 0 && w.at+chunk > w.limit
}

// begin opens the next shard. It discards data of an earlier run under the same name.
func (w *shardWriter) begin(ctx context.Context) error {
	i := len(w.shards)
	w.shards = append(w.shards, Shard{File: w.piece.shard(i)})
	up, err := w.create(ctx, w.piece.shard(i))
	if err != nil {
		return writeError(err)
	}
	w.attach(up, 0, nil)
	head := arrowipc.Header(w.cols, w.meta)
	if _, err := w.out.Write(head); err != nil {
		return writeError(err)
	}
	w.at = int64(len(head))
	return nil
}

// create begins an object, in a way that outlives the process if the store supports that.
func (w *shardWriter) create(ctx context.Context, name string) (store.Upload, error) {
	r, ok := store.As[store.Resumer](w.st)
	if !ok {
		return w.st.Create(ctx, name)
	}
	p, err := r.Resume(ctx, name)
	if err != nil {
		return nil, err
	}
	if p.Size() > 0 {
		if err := p.Truncate(0); err != nil {
			return nil, errors.Join(err, leave(ctx, p))
		}
	}
	return p, nil
}

// leave ends an unfinished upload. The written data stays for a later run if the store supports that and the data is
// still reliable.
func leave(ctx context.Context, up store.Upload) error {
	p, ok := up.(store.Partial)
	if !ok {
		return up.Abort()
	}
	err := p.Suspend(context.WithoutCancel(ctx))
	if err != nil {
		_ = p.Abort()
	}
	return err
}

// attach continues an open shard.
func (w *shardWriter) attach(up store.Upload, at int64, blocks []arrowipc.Block) {
	w.up, w.at, w.blocks = up, at, blocks
	w.out = bufio.NewWriterSize(up, 256<<10)
}

// add writes one chunk into the open shard.
func (w *shardWriter) add(b *arrowipc.Batch, zones []arrowipc.Zone) (Chunk, error) {
	parts, block, head := b.Parts(w.cols, zones)
	block.Offset = w.at
	w.hash.Reset()
	var headSum Checksum
	left := head // of the bytes that come next
	for _, p := range parts {
		if n := int64(len(p)); left > 0 && n >= left {
			_, _ = w.hash.Write(p[:left])
			headSum = Checksum(w.hash.Sum64())
			_, _ = w.hash.Write(p[left:])
			left = 0
		} else {
			_, _ = w.hash.Write(p)
			left -= n
		}
		if _, err := w.out.Write(p); err != nil {
			return Chunk{}, writeError(err)
		}
	}
	if err := w.out.Flush(); err != nil {
		return Chunk{}, writeError(err)
	}
	n := int64(block.MetaBytes) + block.BodyBytes
	c := Chunk{Offset: w.at, Bytes: n, Head: head, Rows: int64(b.Rows), XXH3: Checksum(w.hash.Sum64()), HeadXXH3: headSum}
	w.at += n
	w.blocks = append(w.blocks, block)
	s := &w.shards[len(w.shards)-1]
	s.Chunks = append(s.Chunks, c)
	s.Records += c.Rows
	return c, nil
}

// finish writes the footer and commits the shard.
func (w *shardWriter) finish(ctx context.Context) error {
	foot := arrowipc.Footer(w.cols, w.meta, w.blocks)
	if _, err := w.out.Write(foot); err != nil {
		return writeError(err)
	}
	if err := w.out.Flush(); err != nil {
		return writeError(err)
	}
	up := w.up
	w.up = nil
	if err := up.Commit(ctx); err != nil {
		_ = leave(ctx, up)
		return writeError(err)
	}
	s := &w.shards[len(w.shards)-1]
	s.Bytes = w.at + int64(len(foot))
	w.hash.Reset()
	_, _ = w.hash.Write(arrowipc.Header(w.cols, w.meta))
	_, _ = w.hash.Write(foot)
	s.FrameXXH3 = Checksum(w.hash.Sum64())
	return nil
}

// suspend keeps the open shard so that it can be resumed later.
func (w *shardWriter) suspend(ctx context.Context) error {
	if w.up == nil {
		return nil
	}
	up := w.up
	w.up = nil
	return writeError(leave(ctx, up))
}

// blocksOf rebuilds the footer's blocks of a shard from its chunks.
func blocksOf(ctx context.Context, r reader, chunks []Chunk) ([]arrowipc.Block, error) {
	blocks := make([]arrowipc.Block, len(chunks))
	var prefix [8]byte
	for i, c := range chunks {
		if err := r.ReadAt(ctx, prefix[:], c.Offset); err != nil {
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

// writeError adds a hint to the error of a failed write.
func writeError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w; make room and run the same command again, it goes on from here", err)
	case errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; free some of the quota and run the same command again, it goes on from here", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; choose a folder that can be written to", err)
	}
	return err
}

// checkChunk compares the checksum of chunk c in r, through buf.
func checkChunk(ctx context.Context, r reader, c Chunk, buf []byte) error {
	if c.Offset+c.Bytes > r.Size() {
		return fmt.Errorf("the file ends inside of it")
	}
	h := xxh3.New()
	err := hashRange(ctx, r, h, c.Offset, c.Bytes, buf)
	if errors.Is(err, store.ErrShort) {
		return fmt.Errorf("the file ends inside of it")
	}
	if err != nil {
		return store.Cause(err)
	}
	return compareSum(h, c.XXH3)
}

// hashRange adds n bytes of r from an offset to h, through buf.
func hashRange(ctx context.Context, r reader, h *xxh3.Hasher, off, n int64, buf []byte) error {
	for end := off + n; off < end; {
		b := buf[:min(int64(len(buf)), end-off)]
		if err := r.ReadAt(ctx, b, off); err != nil {
			return err
		}
		_, _ = h.Write(b)
		off += int64(len(b))
	}
	return nil
}

func compareSum(h *xxh3.Hasher, want Checksum) error {
	if got := Checksum(h.Sum64()); got != want {
		return fmt.Errorf("checksum %016x, should be %016x", uint64(got), uint64(want))
	}
	return nil
}
