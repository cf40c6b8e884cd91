// Package gen makes labelled images that look like photographs to a codec. They are dead leaves: things that hide each
// other, with sizes of a power law. They have 1/f textures, edges, blurred grounds and grain, in the sizes, samplings
// and qualities of photographs on the web. The same seed gives the same bytes on every machine, and each image depends
// on (seed, index) alone.
//
// Read Generator.Image (one image from start to end), newScene (its contents) and painter.paint (its pixels), in this
// order.
package gen

import (
	"fmt"
	"sync"

	"github.com/stokerdata/stoker/internal/cdec"
)

// Options are the settings of a Generator.
type Options struct {
	Count   int
	Classes int
	Seed    uint64
	// Width and Height are the means over all images; 0 means 470 x 400.
	Width, Height int
}

// Limits of Options.
const (
	MaxCount   = 100_000_000
	MaxClasses = 10_000
	MinSide    = 16
	MaxSide    = 8192
)

// check fills in the defaults and returns an error for invalid options.
func (o *Options) check() error {
	if o.Width == 0 && o.Height == 0 {
		o.Width, o.Height = meanWidth, meanHeight
	}
	switch {
	case o.Count < 1 || o.Count > MaxCount:
		return fmt.Errorf("%d images: the count must be 1 to %d", o.Count, MaxCount)
	case o.Classes < 1 || o.Classes > MaxClasses:
		return fmt.Errorf("%d classes: the number must be 1 to %d", o.Classes, MaxClasses)
	case o.Classes > o.Count:
		return fmt.Errorf("%d classes of %d images: each class needs an image", o.Classes, o.Count)
	case min(o.Width, o.Height) < MinSide || max(o.Width, o.Height) > MaxSide:
		return fmt.Errorf("size %dx%d: each side must be %d to %d", o.Width, o.Height, MinSide, MaxSide)
	}
	return nil
}

// A Generator makes images. Its methods may be called from several goroutines.
type Generator struct {
	opts     Options
	classes  []class
	tiles    *tiles
	painters sync.Pool // *painter
}

// New returns a generator.
func New(opts Options) (*Generator, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	g := &Generator{opts: opts, tiles: sharedTiles()}
	g.painters.New = func() any { return new(painter) }
	for k := range opts.Classes {
		g.classes = append(g.classes, newClass(opts.Seed, k, opts.Classes))
	}
	return g, nil
}

// Len returns the number of images.
func (g *Generator) Len() int { return g.opts.Count }

// Class returns the class of image i: all are equally frequent.
func (g *Generator) Class(i int) int { return i % g.opts.Classes }

// ClassName returns the name of class k. Names sort as the numbers do.
func (g *Generator) ClassName(k int) string {
	return fmt.Sprintf("class-%0*d", len(fmt.Sprint(g.opts.Classes-1)), k)
}

// Name returns the path of image i in a folder of folders, one for each class.
func (g *Generator) Name(i int) string {
	return fmt.Sprintf("%s/%0*d.jpg", g.ClassName(g.Class(i)), max(len(fmt.Sprint(g.opts.Count-1)), 5), i)
}

// Image returns image i as a JPEG file.
func (g *Generator) Image(i int) ([]byte, error) {
	s := newStream(g.opts.Seed, int64(i))
	w, h := pickSize(s, g.opts.Width, g.opts.Height)
	enc := pickEncoding(s)
	sc := newScene(s, &g.classes[g.Class(i)], g.tiles, w, h)
	p := g.painters.Get().(*painter)
	defer g.painters.Put(p)
	pixels, channels := p.paint(sc, g.tiles), 3
	if enc.gray {
		for i := range w * h {
			r, g, b := int(pixels[3*i]), int(pixels[3*i+1]), int(pixels[3*i+2])
			pixels[i] = byte((77*r + 150*g + 29*b + 128) >> 8)
		}
		pixels, channels = pixels[:w*h], 1
	}
	return cdec.EncodeJPEG(pixels, w, h, channels, enc.opts)
}
