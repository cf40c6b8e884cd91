package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

const (
	// footprint is the total size of the copies of a sample. It is too large for any processor cache, because data
	// sets are as well and decoding from the cache is a quarter faster.
	footprint = 1 << 30
	// footprintShare limits it to a share of the free memory.
	footprintShare = 10
	maxCopies      = 64
)

// copies is a source of several copies of a pack, each in separate memory.
type copies struct {
	packs []driver.Source
	info  driver.Info
	each  int64 // records of one copy
}

// openCopies copies the pack dir to neighbouring folders until the footprint is reached, and opens all copies.
func openCopies(ctx context.Context, dir string, limit int64) (_ *copies, err error) {
	c := &copies{}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	size := int64(0)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			size += info.Size()
		}
	}
	n := int(min(max(limit/max(size, 1), 1), maxCopies))
	for i := range n {
		name := dir
		if i > 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			name = fmt.Sprintf("%s-%d", dir, i)
			if err := copyFolder(name, dir); err != nil {
				if errors.Is(err, context.Canceled) {
					return nil, err
				}
				break // less free space than reported: the existing copies are sufficient
			}
		}
		src, err := source.Open(ctx, name, nil)
		if err != nil {
			return nil, err
		}
		c.packs = append(c.packs, src)
	}
	c.info = *c.packs[0].Info()
	c.each = c.info.Len
	c.info.Len *= int64(len(c.packs))
	c.info.Objects *= int64(len(c.packs))
	return c, nil
}

func copyFolder(to, from string) error {
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, f := range files {
		if err := copyFile(filepath.Join(to, f.Name()), filepath.Join(from, f.Name())); err != nil {
			os.RemoveAll(to)
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}

func (c *copies) Info() *driver.Info { return &c.info }

func (c *copies) Name(id int64) string { return c.packs[0].Name(id % c.each) }

// Object returns an object of one of the copies.
func (c *copies) Object(n int64) driver.Object {
	each := c.packs[0].Info().Objects
	return c.packs[n/each].Object(n % each)
}

// Locate locates each record through its copy.
func (c *copies) Locate(g *driver.Group) {
	each := c.packs[0].Info().Objects
	c.oneByOne(g, func(p int64, one *driver.Group, k int) {
		c.packs[p].Locate(one)
		for _, e := range one.Extents {
			e.Object += p * each
			g.Extents = append(g.Extents, e)
		}
		for _, m := range one.Missing {
			m.K, m.Object = k, m.Object+p*each
			g.Missing = append(g.Missing, m)
		}
		g.Next()
	})
}

// Learn passes a piece of an index to its copy.
func (c *copies) Learn(e driver.Extent, b []byte) error {
	each := c.packs[0].Info().Objects
	p := e.Object / each
	e.Object %= each
	return recordread.Learn(c.packs[p], e, b)
}

// Parse parses each record through its copy.
func (c *copies) Parse(g *driver.Group) (err error) {
	c.oneByOne(g, func(p int64, one *driver.Group, k int) {
		lo, hi := g.First[k], g.First[k+1]
		one.Extents, one.Bytes, one.First = g.Extents[lo:hi], g.Bytes[lo:hi], append(one.First[:0], 0, hi-lo)
		if perr := c.packs[p].Parse(one); err == nil {
			err = perr
		}
	})
	return err
}

// oneByOne calls f for each record as a separate group, with the number of its copy.
func (c *copies) oneByOne(g *driver.Group, f func(p int64, one *driver.Group, k int)) {
	one := driver.Group{Alloc: g.Alloc}
	for k, id := range g.IDs {
		one.IDs = []int64{id % c.each}
		one.Relocate()
		one.Records = g.Records[k : k+1]
		f(id/c.each, &one, k)
	}
}

func (c *copies) Close() error {
	var err error
	for _, p := range c.packs {
		err = errors.Join(err, p.Close())
	}
	return err
}
