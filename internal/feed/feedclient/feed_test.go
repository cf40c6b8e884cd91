package feedclient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/cache/cachetest"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/feed/feedserver"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/source/wrap/joined"
	"github.com/stokerdata/stoker/source/driver"
)

func TestMain(m *testing.M) { cachetest.Main(m) }

const records = 101

// config is a pipeline with arrays of all forms: fixed, ragged, text, padded, with masks and random operations.
func config() pipeline.Config {
	cfg, err := pipeline.ParseConfig([]byte(`{"source": "memory:", "batch_size": 20, "shuffle": true, "seed": 5, "threads": 1, "prefetch": 6,
		"memory": 134217728, "pad": {"tokens": {"value": 1, "mask": true}},
		"outputs": [{"name": "image", "field": "image", "ops": [{"op": "RandomHorizontalFlip"}, {"op": "MixUp", "num_classes": 3}]}]}`))
	if err != nil {
		panic(err)
	}
	cfg.OpenSource = func(context.Context, string) (driver.Source, error) { return sourcetest.Mixed(records).Copied(), nil }
	return cfg
}

func open(t *testing.T, cfg pipeline.Config) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// serve starts a server and returns its address and a function that kills it.
func serve(t *testing.T, cfg pipeline.Config, opt feedserver.Options) (addr string, kill func()) {
	t.Helper()
	p := open(t, feedserver.Config(cfg))
	s, err := feedserver.New(feedserver.Of(p), opt)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String(), serveAt(t, s, l)
}

func serveAt(t *testing.T, s *feedserver.Server, l net.Listener) (kill func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	kill = sync.OnceFunc(func() {
		s.Kill()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(kill)
	return kill
}

// get fetches a batch, which is right if it is to be built here.
func get(t *testing.T, c *Client, b *pipeline.RemoteBatch) error {
	t.Helper()
	err := c.Fetch(t.Context(), b)
	if err == nil && len(b.Copies) > 0 {
		c.Built(b, feed.Checksum(b.Arrays, b.Slot, b.Rows))
	}
	return err
}

func client(t *testing.T, p *pipeline.Pipeline, opt Options) *Client {
	t.Helper()
	opt.ID, opt.Seed, opt.BatchSize = p.Hashes(), p.Config().Seed, p.Config().BatchSize
	say := opt.Say
	opt.Say = func(text string) {
		if t.Log(text); say != nil {
			say(text)
		}
	}
	c, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// batches returns lines that describe the batches of some epochs and their bytes.
func batches(t *testing.T, p *pipeline.Pipeline, epochs int64) []string {
	t.Helper()
	return watchedBatches(t, p, epochs, func(int) {})
}

// watchedBatches calls a function after each batch, with the number of batches so far.
func watchedBatches(t *testing.T, p *pipeline.Pipeline, epochs int64, after func(n int)) (out []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	p.Start(startOf(0))
	for {
		ev, err := p.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == pipeline.EventEpochEnd {
			if ev.Epoch == epochs-1 {
				return out
			}
			continue
		}
		out = append(out, fmt.Sprintf("epoch %d step %d rows %d then %v: %s", ev.Epoch, ev.Step, ev.Rows, ev.Pos,
			feed.Checksum(p.Info().Arrays, p.Ring().Slot(ev.Slot), ev.Rows)))
		p.Release(ev.Slot)
		after(len(out))
	}
}

// asks returns the rows of all batches of an epoch.
func asks(p *pipeline.Pipeline, epoch int64, inTurn bool) (out []pipeline.RemoteBatch) {
	c, n := p.Config(), p.Info().Len
	split := sampler.Split{Len: n, Batch: c.BatchSize, Rank: c.Rank, World: c.WorldSize, DropLast: c.DropLast, Uneven: c.Uneven, InTurn: inTurn}
	for row := int64(0); row < n; {
		part, ok := split.At(row)
		if !ok {
			break
		}
		out = append(out, pipeline.RemoteBatch{
			Ask:  pipeline.Ask{Epoch: epoch, Step: row / int64(c.BatchSize*c.WorldSize), Lo: part.Lo, Hi: part.Hi, Stride: part.Stride},
			Rows: part.Rows(), Arrays: p.Info().Arrays, Slot: make([]byte, p.Info().SlotBytes), Order: row,
		})
		row = part.Next
	}
	return out
}

// The bytes of a batch are the same whether this machine or any server builds it, for all ranks and orders.
func TestEqualBytes(t *testing.T) {
	window := func(c *pipeline.Config) { // of three chunks: each rank then has every other position
		c.Window, c.BatchSize, c.Pad = 2, 64, nil
		c.OpenSource = func(context.Context, string) (driver.Source, error) {
			return sourcetest.Raw(1500, 64, 64, 3, 3).Copied(), nil
		}
	}
	rank := func(c *pipeline.Config) { c.Rank, c.WorldSize, c.Uneven = 1, 2, sampler.Pad }
	for name, changes := range map[string][]func(*pipeline.Config){
		"all records": {}, "rank": {rank}, "windows of a rank": {rank, window}, "in order": {func(c *pipeline.Config) { c.Shuffle = false }},
		"mixture": {mixture}, "mixture of a rank": {mixture, rank},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			for _, change := range changes {
				change(&cfg)
			}
			p := open(t, cfg)
			want := batches(t, p, 2)
			var addrs string
			for range 3 {
				addr, _ := serve(t, cfg, feedserver.Options{})
				addrs += addr + ","
			}
			c := client(t, p, Options{Feeders: &pipeline.Feeders{Servers: addrs}})
			inTurn := p.Info().Order.Chunks > 2
			list := append(asks(p, 0, inTurn), asks(p, 1, inTurn)...)
			if len(list) != len(want) {
				t.Fatalf("%d batches, expected %d", len(list), len(want))
			}
			got := make([]string, len(list))
			order := rand.Perm(len(list))
			var wg sync.WaitGroup
			for lane := range 4 {
				wg.Go(func() {
					for k := lane; k < len(order); k += 4 {
						b := &list[order[k]]
						if err := get(t, c, b); err != nil {
							t.Error(err)
						}
						got[order[k]] = feed.Checksum(b.Arrays, b.Slot, b.Rows)
					}
				})
			}
			wg.Wait()
			for i := range want {
				if want[i][len(want[i])-32:] != got[i] {
					t.Errorf("batch %d: %s, expected %s", i, got[i], want[i])
				}
			}
		})
	}
}

// mixture makes records a mixture of two datasets, whose weights change.
func mixture(c *pipeline.Config) {
	c.Mix = &pipeline.Mix{Weights: []json.Number{"3", "1"}, Schedule: []pipeline.MixChange{{From: 70, Weights: []json.Number{"1", "2"}}}}
	c.OpenSource = func(context.Context, string) (driver.Source, error) {
		return joined.OpenMixed("concat:a,b", []driver.Source{sourcetest.Mixed(60).Copied(), sourcetest.Mixed(41).Copied()})
	}
}

// remoteFirst is a trainer whose own batches are not built before servers have sent some, so that both are used.
func remoteFirst(t *testing.T, cfg pipeline.Config, servers string, opt Options) (*pipeline.Pipeline, *Client) {
	t.Helper()
	var c *Client
	came := make(chan struct{})
	cfg.OpenRemote = func(f *pipeline.Feeders, p *pipeline.Pipeline) (pipeline.Remote, error) {
		opt.Feeders = f
		c = client(t, p, opt)
		return &watched{Client: c, came: sync.OnceFunc(func() { close(came) })}, nil
	}
	cfg.Feeders = &pipeline.Feeders{Servers: servers}
	cfg.Decoding = func(int64) {
		select {
		case <-came:
		case <-time.After(2 * time.Minute):
			t.Error("no batch came from a server")
		}
	}
	return open(t, cfg), c
}

type watched struct {
	*Client
	came func()
}

func (w *watched) Fetch(ctx context.Context, b *pipeline.RemoteBatch) error {
	defer w.came()
	return w.Client.Fetch(ctx, b)
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("batch %d:\n%s, expected\n%s", i, got[i], want[i])
			}
		}
		t.Fatalf("%d batches, expected %d", len(got), len(want))
	}
}

// A trainer with servers gets the batches of one without, also if a server is killed in the middle of an epoch.
func TestKilledServer(t *testing.T) {
	want := batches(t, open(t, config()), 6)
	var n atomic.Int64
	cfg := config()
	victim := make(chan struct{})
	cfg.Decoding = func(int64) {
		if n.Add(1) == 30 {
			close(victim)
		}
	}
	a, kill := serve(t, cfg, feedserver.Options{})
	b, _ := serve(t, config(), feedserver.Options{})
	go func() {
		select {
		case <-victim:
			kill()
		case <-t.Context().Done():
		}
	}()
	p, c := remoteFirst(t, config(), a+","+b, Options{CompareEvery: 3})
	same(t, batches(t, p, 6), want)
	st := p.Stats().Feeders
	if st.Batches == 0 || st.Compared == 0 || st.Different > 0 {
		t.Errorf("statistics are %+v", c.Stats())
	}
}

// A server that ends waits for its requests, because they read slots that are unmapped afterwards.
func TestServerWaitsForRequests(t *testing.T) {
	lost, reading := make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	p := &slowSlots{Pipeline: feedserver.Of(open(t, feedserver.Config(config()))), slot: sync.OnceFunc(func() {
		close(reading)
		<-lost
		time.Sleep(20 * time.Millisecond) // so that a server that does not wait is noticed
		finished.Store(true)
	})}
	s, err := feedserver.New(p, feedserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kill := serveAt(t, s, l)
	trainer := open(t, config())
	c := client(t, trainer, Options{Feeders: &pipeline.Feeders{Servers: l.Addr().String()}})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.Fetch(t.Context(), &asks(trainer, 0, false)[0]); err == nil {
			t.Error("a server that was killed has sent a batch")
		}
		close(lost)
	})
	<-reading
	kill()
	if !finished.Load() {
		t.Error("the server has ended before its request")
	}
	wg.Wait()
}

// slowSlots takes time to return the ring.
type slowSlots struct {
	feedserver.Pipeline
	slot func()
}

func (p *slowSlots) Ring() *arena.Ring {
	p.slot()
	return p.Pipeline.Ring()
}

// Batches of buckets and of aligned ranks are named by their number in the epoch, and rows of mixtures have the round of
// their dataset.
func TestOrders(t *testing.T) {
	table := filepath.Join(t.TempDir(), "table.jsonl")
	var lines []byte
	for i := range records {
		if lines = fmt.Appendf(lines, `{"x": %d`, i); i%3 > 0 {
			lines = fmt.Appendf(lines, `, "text": "word %d"`, i)
		}
		lines = append(lines, "}\n"...)
	}
	if err := os.WriteFile(table, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*pipeline.Config){
		"buckets": func(c *pipeline.Config) { c.Pad, c.Bucket = nil, &pipeline.Bucket{By: "tokens", Count: 3} },
		"aligned ranks": func(c *pipeline.Config) {
			c.Source, c.OpenSource, c.Pad, c.Outputs, c.Align = table, nil, nil, nil, &pipeline.Align{By: "text"}
			c.BatchSize = 10
		},
		"mixture": mixture,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			change(&cfg)
			cfg.Rank, cfg.WorldSize, cfg.Uneven = 1, 2, sampler.Pad
			want := batches(t, open(t, cfg), 3)
			a, _ := serve(t, cfg, feedserver.Options{})
			p, _ := remoteFirst(t, cfg, a, Options{CompareEvery: 2})
			same(t, batches(t, p, 3), want)
			if st := p.Stats().Feeders; st.Batches == 0 || st.Compared == 0 || st.Different > 0 || st.Failed > 0 {
				t.Errorf("statistics are %+v", st)
			}
		})
	}
}

// Weights of a mixture that were changed by hand are part of the pipeline that servers must have.
func TestChangedWeights(t *testing.T) {
	cfg := config()
	mixture(&cfg)
	addr, _ := serve(t, cfg, feedserver.Options{})
	mix := *cfg.Mix
	mix.Changes = []pipeline.MixChange{{From: 20, Weights: []json.Number{"1", "9"}}}
	cfg.Mix = &mix
	p := open(t, cfg)
	var said []string
	c := client(t, p, Options{Feeders: &pipeline.Feeders{Servers: addr}, Say: func(text string) { said = append(said, text) }})
	if err := get(t, c, &asks(p, 0, false)[0]); status.Code(err) != codes.NotFound {
		t.Errorf("%v, expected a refusal", err)
	}
	if len(said) != 1 || !strings.Contains(said[0], addr+" refuses") {
		t.Errorf("messages are %q", said)
	}
}

// A server that does not answer, and a connection that leads nowhere, delay a batch but lose none.
func TestSlowServers(t *testing.T) {
	want := batches(t, open(t, config()), 2)
	stuck := make(chan struct{})
	defer close(stuck)
	cfg := config()
	cfg.Decoding = func(int64) { <-stuck }
	slow, _ := serve(t, cfg, feedserver.Options{})
	hole, err := net.Listen("tcp", "127.0.0.1:0") // connects, and then nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	good, _ := serve(t, config(), feedserver.Options{})
	p, _ := remoteFirst(t, config(), slow+","+hole.Addr().String()+","+good, Options{Late: 50 * time.Millisecond})
	same(t, batches(t, p, 2), want)
	if st := p.Stats().Feeders; st.Batches == 0 || st.Hedged == 0 {
		t.Errorf("statistics are %+v", st)
	}
}

// Without any server that works, this machine builds all batches.
func TestNoServers(t *testing.T) {
	want := batches(t, open(t, config()), 2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // refuses connections
	other := config()
	other.BatchSize = 4
	wrong, _ := serve(t, other, feedserver.Options{})
	p, _ := remoteFirst(t, config(), l.Addr().String()+","+wrong, Options{})
	same(t, batches(t, p, 2), want)
	if st := p.Stats().Feeders; st.Batches != 0 || st.Failed == 0 {
		t.Errorf("statistics are %+v", st)
	}
}

// different is the pipeline with the same fingerprint and other bytes.
func different() pipeline.Config {
	cfg := config()
	cfg.OpenSource = func(context.Context, string) (driver.Source, error) {
		return changed{sourcetest.Mixed(records).Copied()}, nil
	}
	return cfg
}

// A server that differs is noticed, its batch is not used, and it is not asked again.
func TestDifferentServer(t *testing.T) {
	want := batches(t, open(t, config()), 2)
	addr, _ := serve(t, different(), feedserver.Options{})
	p, c := remoteFirst(t, config(), addr, Options{})
	same(t, batches(t, p, 2), want)
	credits, _ := c.Credits()
	if st := p.Stats().Feeders; st.Compared != 1 || st.Different != 1 || st.Batches != 1 || credits != 0 {
		t.Errorf("statistics are %+v, %d credits", st, credits)
	}
}

// Servers are compared with each other, and this machine decides if they differ.
func TestComparedServers(t *testing.T) {
	p := open(t, config())
	list := asks(p, 0, false)
	for i := range int64(9) {
		list = append(list, asks(p, i+1, false)...)
	}
	var said []string
	a, _ := serve(t, config(), feedserver.Options{})
	c := client(t, p, Options{Feeders: &pipeline.Feeders{Servers: a}, CompareEvery: 1, Say: func(text string) { said = append(said, text) }})
	next := func(batches int) (built int) {
		t.Helper()
		for range batches {
			b := &list[0]
			list = list[1:]
			if err := c.Fetch(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if len(b.Copies) > 0 {
				c.Built(b, checksumOf(t, p, b))
				built++
			}
		}
		return built
	}
	if built := next(3); built != 3 {
		t.Errorf("one server: %d of 3 batches were built here", built)
	}
	add := func(cfg pipeline.Config) string {
		addr, _ := serve(t, cfg, feedserver.Options{})
		c.mu.Lock()
		var all []member
		for _, s := range c.servers {
			all = append(all, s.member)
		}
		c.mu.Unlock()
		c.update(append(all, member{addr, addr}))
		return addr
	}
	add(config())
	if built := next(10); built != 0 {
		t.Errorf("two servers: %d of 10 batches were built here", built)
	}
	if st := c.Stats(); st.Compared != 13 || st.Different != 0 {
		t.Errorf("statistics are %+v", st)
	}
	wrong := add(different())
	for c.Stats().Different == 0 {
		next(1)
	}
	next(5)
	if st := c.Stats(); st.Different != 1 || st.Usable != 2 {
		t.Errorf("statistics are %+v", st)
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "feeder "+wrong+" built another batch than this machine and feeder ") ||
		!strings.Contains(said[0], "feeder "+wrong+" gets no more requests") {
		t.Errorf("messages are %q", said)
	}
}

// checksumOf builds a batch on this machine.
func checksumOf(t *testing.T, p *pipeline.Pipeline, b *pipeline.RemoteBatch) string {
	t.Helper()
	p.Start(item.Position{Epoch: b.Epoch, Row: b.Order})
	ev, err := p.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release(ev.Slot)
	return feed.Checksum(b.Arrays, p.Ring().Slot(ev.Slot), ev.Rows)
}

type changed struct{ *sourcetest.Memory }

func (c changed) Parse(g *driver.Group) error {
	err := c.Memory.Parse(g)
	for k := range g.Records {
		if v := g.Records[k].Values; g.Records[k].Err == nil && len(v) > 2 {
			v[2].Int++
		}
	}
	return err
}

// until waits until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.After(2 * time.Minute); !holds(); {
		select {
		case <-end:
			t.Fatal(what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Servers that are added to the list are used, and those that leave it are not.
func TestMembership(t *testing.T) {
	p := open(t, config())
	var used [2]atomic.Int64
	var addrs [2]string
	for i := range addrs {
		cfg := config()
		cfg.Decoding = func(int64) { used[i].Add(1) }
		addrs[i], _ = serve(t, cfg, feedserver.Options{})
	}
	list := filepath.Join(t.TempDir(), "feeders.txt")
	write := func(text string) {
		if err := os.WriteFile(list+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(list+".new", list); err != nil {
			t.Fatal(err)
		}
	}
	write("# feeders\n" + addrs[0] + "  # the first\n")
	c := client(t, p, Options{Feeders: &pipeline.Feeders{Servers: "file:" + list}, Reread: 10 * time.Millisecond})
	fetch := func(i int) {
		if err := get(t, c, &asks(p, int64(i), false)[0]); err != nil {
			t.Fatal(err)
		}
	}
	fetch(0)
	if used[0].Load() == 0 || used[1].Load() > 0 {
		t.Fatal("the first server was not used")
	}
	write(addrs[1] + "\n")
	until(t, "the list was not read again", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.servers[0].addr == addrs[1]
	})
	before := used[0].Load()
	fetch(1)
	if used[1].Load() == 0 || used[0].Load() != before {
		t.Error("the new server was not used")
	}
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	fetch(2) // the last list stays
}

func TestMembers(t *testing.T) {
	env := map[string]string{"SLURM_JOB_NODELIST": "node[01-03,7],login", "SLURM_JOB_NODELIST_HET_GROUP_1": "cpu[9-10]x[1-2]"}
	for text, want := range map[string]string{
		"a:1,b:2":               "a:1 b:2",
		"slurm:7443":            "login:7443 node01:7443 node02:7443 node03:7443 node7:7443",
		"slurm:1:7":             "cpu10x1:7 cpu10x2:7 cpu9x1:7 cpu9x2:7",
		"[::1]:5":               "[::1]:5",
		"a":                     "error",
		"a:x":                   "error",
		"":                      "error",
		",":                     "error",
		"file:":                 "error",
		"dns:x":                 "error",
		"slurm:2:7":             "error",
		"dns:localhost.:70000":  "error",
		"file:/does/not/exist/": "error",
	} {
		got := "error"
		m, err := parseMembers(text, func(name string) string { return env[name] }, net.DefaultResolver)
		if err == nil {
			var list []member
			if list, err = m.read(t.Context()); err == nil {
				got = ""
				for i, one := range list {
					if i > 0 {
						got += " "
					}
					got += one.addr
				}
			}
		}
		if got != want {
			t.Errorf("%q: %q (%v), expected %q", text, got, err, want)
		}
	}
	for _, text := range []string{"n[1-", "n[1-99999999]", "n]1[", "n[2-1]", "[1-100][1-100][1-100]"} {
		if hosts, err := hostList(text); err == nil {
			t.Errorf("%q: %d hosts", text, len(hosts))
		}
	}
	if _, err := Open(Options{Feeders: &pipeline.Feeders{Servers: "10.1.2.3:7443"}}); err == nil {
		t.Error("a client connects to another machine without TLS")
	}
}

// A message of a server that is damaged or hostile is refused, and writes nothing outside of the slot.
func FuzzReceive(f *testing.F) {
	cfg := config()
	p, err := pipeline.Open(context.Background(), cfg)
	if err != nil {
		f.Fatal(err)
	}
	defer p.Close()
	arrays, slots := p.Info().Arrays, p.Info().SlotBytes
	p.Start(startOf(0))
	ev, err := p.Next(context.Background())
	if err != nil {
		f.Fatal(err)
	}
	var meta, message []byte
	err = feed.Messages(arrays, p.Ring().Slot(ev.Slot), feed.Meta{Rows: ev.Rows}, func(d *feed.Data) error {
		b, err := feed.Codec{}.Marshal(d)
		if message = b.Materialize(); len(d.Meta) > 0 {
			meta = d.Meta
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(meta, message)
	f.Add(meta, bytes.Repeat([]byte{0x12, 0x80}, 8))
	f.Fuzz(func(t *testing.T, meta, message []byte) {
		m, err := feed.ParseMeta(meta)
		if err != nil {
			return
		}
		slot := make([]byte, slots+collate.Align)
		for i := range collate.Align {
			slot[slots+int64(i)] = 7
		}
		r, err := feed.NewReceiver(arrays, slot[:slots:slots], cfg.BatchSize, cfg.BatchSize, m)
		if err != nil {
			return
		}
		for range 2 {
			var d feed.Data
			if feed.Unmarshal(message, &d) != nil || r.Add(&d) != nil {
				break
			}
		}
		_ = r.Finish() // must not panic
		if !bytes.Equal(slot[slots:], bytes.Repeat([]byte{7}, collate.Align)) {
			t.Error("the end of the slot was overwritten")
		}
	})
}

func startOf(epoch int64) item.Position { return item.Position{Epoch: epoch} }
