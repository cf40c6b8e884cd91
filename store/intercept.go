package store

import "context"

// Next is the read that a decorator intercepts: ReadAt or ReadDirect of the decorated object.
type Next struct {
	o      Object
	direct DirectReader
}

// Read performs the read.
func (n Next) Read(ctx context.Context, p []byte, off int64) error {
	if n.direct != nil {
		return n.direct.ReadDirect(ctx, p, off)
	}
	return n.o.ReadAt(ctx, p, off)
}

// Intercept returns o with read called for each of its reads, of any kind. If hide is set, abilities that read
// without it (Mapper and CachedReader) are hidden, for decorators that must see every byte. Hints and checks are
// always passed on.
func Intercept(o Object, hide bool, read func(ctx context.Context, next Next, p []byte, off int64) error) Object {
	w := wrapped{o, read}
	d, direct := As[DirectReader](o)
	switch {
	case direct && hide:
		return &hiddenDirect{hidden{w}, d}
	case direct:
		return &openDirect{open{w}, d}
	case hide:
		return &hidden{w}
	}
	return &open{w}
}

type wrapped struct {
	Object
	read func(ctx context.Context, next Next, p []byte, off int64) error
}

func (w *wrapped) ReadAt(ctx context.Context, p []byte, off int64) error {
	return w.read(ctx, Next{o: w.Object}, p, off)
}

type open struct{ wrapped }

func (w *open) Unwrap() Object { return w.Object }

type openDirect struct {
	open
	d DirectReader
}

func (w *openDirect) ReadDirect(ctx context.Context, p []byte, off int64) error {
	return w.read(ctx, Next{direct: w.d}, p, off)
}

type hidden struct{ wrapped }

func (w *hidden) Advise(off, n int64, a Advice)   { Advise(w.Object, off, n, a) }
func (w *hidden) Check(ctx context.Context) error { return Check(ctx, w.Object) }

type hiddenDirect struct {
	hidden
	d DirectReader
}

func (w *hiddenDirect) ReadDirect(ctx context.Context, p []byte, off int64) error {
	return w.read(ctx, Next{direct: w.d}, p, off)
}
