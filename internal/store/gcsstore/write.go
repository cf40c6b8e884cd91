package gcsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// Put writes an object.
func (d *driver) Put(ctx context.Context, key string, data []byte, c bucket.Condition) (bucket.Info, error) {
	v := url.Values{"uploadType": {"media"}, "name": {key}, "fields": {fields}}
	if c.Absent {
		v.Set("ifGenerationMatch", "0")
	}
	if c.Version != "" {
		v.Set("ifGenerationMatch", c.Version)
	}
	r := d.request("/upload/storage/v1/b/"+d.name+"/o", key, v)
	r.Header.Set("Content-Type", "application/octet-stream")
	if data == nil {
		data = []byte{}
	}
	var got resource
	if _, err := d.ask(ctx, "write", http.MethodPost, r, data, &got); err != nil {
		return bucket.Info{}, err
	}
	i, err := got.info()
	if err == nil && i.Size != int64(len(data)) {
		err = ranged.Invalid("the server has only %d of %d bytes", i.Size, len(data))
	}
	return i, err
}

// Delete removes an object.
func (d *driver) Delete(ctx context.Context, key string) error {
	_, err := d.ask(ctx, "remove", http.MethodDelete, d.object(key, nil), nil, nil)
	return err
}

// parts is an upload in parts: separate objects that are composed at the end.
type parts struct {
	d   *driver
	key string

	mu    sync.Mutex
	infos map[int]bucket.Info
}

// Begin begins an upload in parts.
func (d *driver) Begin(_ context.Context, key string) (bucket.Parts, error) {
	return &parts{d: d, key: key, infos: map[int]bucket.Info{}}, nil
}

// Part writes a part.
func (p *parts) Part(ctx context.Context, n int, data []byte) error {
	i, err := p.d.Put(ctx, fmt.Sprintf("%s%s/draft-part-%06d", p.key, store.PartialSuffix, n), data, bucket.Condition{})
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.infos[n] = i
	}
	return err
}

// Finish creates the object.
func (p *parts) Finish(ctx context.Context, n int) error {
	var all []bucket.Info
	for i := 1; i <= n; i++ {
		all = append(all, p.infos[i])
	}
	if err := p.d.Concat(ctx, p.key, all); err != nil {
		return err
	}
	return p.Abort(ctx)
}

// Abort removes the parts.
func (p *parts) Abort(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(8)
	for _, i := range p.infos {
		g.Go(func() error { return p.d.gone(ctx, i.Key) })
	}
	return g.Wait()
}

func (d *driver) gone(ctx context.Context, key string) error {
	if err := d.Delete(ctx, key); err != nil && !errors.Is(err, store.ErrNotExist) {
		return err
	}
	return nil
}

// mostComposed is the maximum number of objects in a compose request.
const mostComposed = 32

// Concat concatenates objects. Many objects take several steps, whose results except the last are drafts.
func (d *driver) Concat(ctx context.Context, key string, pieces []bucket.Info) error {
	var drafts []string
	defer func() {
		for _, k := range drafts {
			_ = d.gone(context.WithoutCancel(ctx), k) // if this fails, Resume removes them
		}
	}()
	for step := 0; len(pieces) > mostComposed; step++ {
		var next []bucket.Info
		for i := 0; i < len(pieces); i += mostComposed {
			draft := fmt.Sprintf("%s%s/draft-%d-%06d", key, store.PartialSuffix, step, i/mostComposed)
			made, err := d.compose(ctx, draft, pieces[i:min(i+mostComposed, len(pieces))])
			if err != nil {
				return err
			}
			drafts, next = append(drafts, draft), append(next, made)
		}
		pieces = next
	}
	_, err := d.compose(ctx, key, pieces)
	return err
}

func (d *driver) compose(ctx context.Context, key string, pieces []bucket.Info) (bucket.Info, error) {
	type part struct {
		Name       string `json:"name"`
		Generation string `json:"generation,omitempty"`
	}
	var ask struct {
		Sources []part `json:"sourceObjects"`
		To      struct {
			Type string `json:"contentType"`
		} `json:"destination"`
	}
	ask.To.Type = "application/octet-stream"
	want := int64(0)
	for _, p := range pieces {
		ask.Sources = append(ask.Sources, part{Name: p.Key})
		want += p.Size
	}
	payload, err := json.Marshal(ask)
	if err != nil {
		return bucket.Info{}, err
	}
	r := d.request("/storage/v1/b/"+d.name+"/o/"+url.PathEscape(key)+"/compose", key, url.Values{"fields": {fields}})
	r.Header.Set("Content-Type", "application/json")
	var got resource
	if _, err := d.ask(ctx, "write", http.MethodPost, r, payload, &got); err != nil {
		return bucket.Info{}, err
	}
	if got.Size != strconv.FormatInt(want, 10) {
		return bucket.Info{}, ranged.Invalid("the server has only %s of %d bytes", got.Size, want)
	}
	return got.info()
}

// Sweep has no effect: there are no invisible uploads.
func (d *driver) Sweep(context.Context, string) error { return nil }
