package status

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/doctor/steplog"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/runfolder"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/store/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a pipeline whose counters grow with each look.
type fake struct {
	rank  int
	looks atomic.Int64
}

func (f *fake) Counters() pipeline.Stats {
	n := f.looks.Add(1)
	return pipeline.Stats{
		Batches: n, Records: 8 * n, Bytes: 1000 * n, Skipped: 1, MemoryUsed: 1 << 20, RSS: 2 << 20, SlotsReady: 3,
		Stages:  []pipeline.StageStats{{Name: "fetch", Busy: time.Second, Workers: 4}, {Name: "decode", Busy: time.Second, Workers: 2}},
		Cache:   &cachedsource.Stats{Hits: 3 * n, Misses: n},
		Network: []traffic.Stats{{Endpoint: "https://example.org", Requests: 5, Retries: 2, Errors: 1}},
	}
}

func (f *fake) Info() pipeline.Info {
	return pipeline.Info{URL: "s3://user:word@bucket/train?token=hidden", Format: "pack", BatchSize: 8, Rank: f.rank, WorldSize: 2, Slots: 4}
}

// folder is a runtime folder for the test.
func folder(t *testing.T) string {
	t.Helper()
	// A long path does not fit into the address of a socket.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	t.Setenv(runfolder.Env, dir)
	return dir
}

func list(t *testing.T) []Status {
	t.Helper()
	all, silent, err := List(t.Context())
	if err != nil || silent != 0 {
		t.Fatalf("%d silent, %v", silent, err)
	}
	return all
}

func TestEngines(t *testing.T) {
	dir := folder(t)
	if got := list(t); len(got) != 0 {
		t.Fatalf("before an engine: %v", got)
	}
	a, b := Open("1.2.3"), Open("1.2.3")
	defer b.Close()
	first := a.Add(&fake{rank: 1}, os.Getpid())
	b.Add(&fake{rank: 0}, 0)
	got := list(t)
	if len(got) != 2 || got[0].Rank == got[1].Rank {
		t.Fatalf("%+v", got)
	}
	s := got[slices.IndexFunc(got, func(s Status) bool { return s.Rank == 1 })]
	if s.Engine != os.Getpid() || s.Version != "1.2.3" || s.Last.Batches != 1 || s.Last.Records != 8 || s.Workers[Read] != 4 || s.Memory != 1<<20 {
		t.Errorf("%+v", s)
	}
	if strings.Contains(s.Source, "word") || strings.Contains(s.Source, "hidden") {
		t.Errorf("a secret is shown: %s", s.Source)
	}
	if math.Abs(cacheRatio(&s)-0.75) > 1e-9 {
		t.Errorf("cache %v", cacheRatio(&s))
	}
	names, err := sockets(dir)
	if err != nil || len(names) != 2 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// A closed loader and a closed engine are not listed, and no file stays.
	first.Close()
	if got := list(t); len(got) != 1 || first.Limits() != "" {
		t.Errorf("%+v", got)
	}
	a.Close()
	a.Close()
	if names, _ := sockets(dir); len(names) != 1 {
		t.Errorf("%v", names)
	}
}

// A killed engine leaves its socket. It is skipped, and the next engine removes it when it is old.
func TestStale(t *testing.T) {
	dir := folder(t)
	old, oldPath, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	fresh, freshPath, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	live := Open("")
	defer live.Close()
	if err := os.Chtimes(live.path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{old, fresh} {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(oldPath, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "engine-1.status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := list(t); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	sweep()
	if _, err := os.Lstat(oldPath); err == nil {
		t.Error("the socket of a killed engine stays")
	}
	for _, path := range []string{freshPath, live.path} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s was removed", path)
		}
	}
}

// An engine that does not answer is counted, and the others are listed.
func TestSilent(t *testing.T) {
	folder(t)
	l, path, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	defer l.Close()
	e := Open("")
	defer e.Close()
	e.Add(&fake{}, 0)
	all, silent, err := List(t.Context())
	if err != nil || silent != 1 || len(all) != 1 {
		t.Errorf("%d, %d silent, %v", len(all), silent, err)
	}
}

// Without a runtime folder an engine works, and the list fails with the reason.
func TestOff(t *testing.T) {
	t.Setenv(runfolder.Env, "off")
	e := Open("")
	defer e.Close()
	if l := e.Add(&fake{}, 0); l.Limits() == "" {
		t.Error("no limit")
	}
	if _, _, err := List(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestLimit(t *testing.T) {
	busyDecode := map[string]float64{"decode": 8, "transform": 1}
	for _, c := range []struct {
		name    string
		batches int64
		waited  float64
		full    float64
		stages  map[string]float64
		unknown bool
		want    string
	}{
		{"nothing happens", 0, 0, 0, nil, false, Idle},
		{"all batches are sent and none is taken", 0, 0, 5, nil, false, Idle},
		{"a first read takes long", 0, 5, 0, nil, false, Read},
		{"the step is slower", 100, 0.1, 4.5, busyDecode, false, Step},
		{"decoding is slower", 100, 3, 0, busyDecode, false, "decode"},
		{"transforms are slower", 100, 3, 0, map[string]float64{"decode": 3, "transform": 6}, false, "transform"},
		{"reading is slower", 100, 3, 0, map[string]float64{"decode": 2}, false, Read},
		{"functions are slower", 100, 4, 4, map[string]float64{"decode": 2}, false, Handoff},
		{"a short wait among full rings", 100, 0.5, 3, busyDecode, false, "decode"},
		{"waits are unknown", 100, 0, 4, busyDecode, true, Step},
		{"waits are unknown and the ring is empty", 100, 0, 0, busyDecode, true, "decode"},
	} {
		s := &Status{Watched: !c.unknown, Seconds: 5, Workers: map[string]int{"decode": 2}}
		s.Last = Totals{Batches: c.batches, Waited: c.waited, ringFull: c.full, Stages: c.stages}
		s.Totals.Batches = c.batches
		if got := limit(s); got != c.want {
			t.Errorf("%s: %q, should be %q", c.name, got, c.want)
		}
	}
}

// logOf is a step log with the given records.
func logOf(records ...steplog.Record) []byte {
	b := make([]byte, 64+16*len(records))
	copy(b, "STKSTEP1")
	binary.LittleEndian.PutUint32(b[8:], 1)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(records)))
	binary.LittleEndian.PutUint64(b[16:], uint64(len(records)))
	for i, r := range records {
		binary.LittleEndian.PutUint64(b[64+16*i:], uint64(r.NS))
		binary.LittleEndian.PutUint32(b[72+16*i:], uint32(r.Kind))
	}
	return b
}

// Only waits since the loader was opened count, and one that is not over counts up to now.
func TestWaits(t *testing.T) {
	now := steplog.Now()
	at := func(before time.Duration, kind steplog.Kind) steplog.Record {
		return steplog.Record{NS: now - int64(before), Kind: kind}
	}
	log, err := steplog.New(bytes.NewReader(logOf(
		at(90*time.Second, steplog.WaitBegin), at(80*time.Second, steplog.WaitEnd),
		at(70*time.Second, steplog.WaitBegin), at(50*time.Second, steplog.WaitEnd),
		at(50*time.Second, steplog.Step),
		at(40*time.Second, steplog.WaitBegin), at(38*time.Second, steplog.WaitEnd),
		at(10*time.Second, steplog.WaitBegin),
	)))
	if err != nil {
		t.Fatal(err)
	}
	w := &waits{log: log, opened: now - int64(60*time.Second)}
	count, seconds := w.read(time.Now())
	if count != 2 || seconds < 22 || seconds > 22+3600 {
		t.Errorf("%d waits of %v s", count, seconds)
	}
	if q, known := w.quantiles(); !known || q != [3]float64{2, 10, 10} {
		t.Errorf("%v, %v", q, known)
	}
	w.close()
	if _, known := w.quantiles(); known {
		t.Error("known after the end")
	}
}

func scrape(t *testing.T, at string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return string(body)
}

func TestExport(t *testing.T) {
	folder(t)
	defer func(d time.Duration) { takeOver = d }(takeOver)
	takeOver = 10 * time.Millisecond
	a, b := Open(""), Open("")
	defer b.Close()
	l := a.Add(&fake{rank: 0}, 0)
	log, err := steplog.New(bytes.NewReader(logOf(steplog.Record{NS: steplog.Now(), Kind: steplog.WaitBegin}, steplog.Record{NS: steplog.Now(), Kind: steplog.WaitEnd})))
	if err != nil {
		t.Fatal(err)
	}
	l.waits.mu.Lock()
	l.waits.log = log
	l.waits.mu.Unlock()
	b.Add(&fake{rank: 1}, 0)
	at, err := a.Export("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.Export("127.0.0.1:0"); err != nil || again != at {
		t.Errorf("again: %q, %v", again, err)
	}
	if _, err := a.Export(":1"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("another address: %v", err)
	}
	// The other engine leaves the address to the first one, which exports both.
	if got, err := b.Export(at); err != nil || got != "" {
		t.Fatalf("%q, %v", got, err)
	}
	text := scrape(t, at)
	for _, want := range []string{`rank="0"`, `rank="1"`, `quantile="0.99"`, `stoker_limit{`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	// Every series is in the list, and every entry of the list is a series.
	series := map[string]bool{}
	for _, line := range strings.Split(text, "\n") {
		if name := regexp.MustCompile(`^[a-z_]+`).FindString(line); name != "" {
			series[name] = true
		}
	}
	var names []string
	for _, name := range Names() {
		if !strings.Contains(name, "accelerator") {
			names = append(names, name)
		}
	}
	for name := range maps.Keys(series) {
		if strings.Contains(name, "accelerator") {
			delete(series, name) // of this machine
		}
	}
	slices.Sort(names)
	if got := slices.Sorted(maps.Keys(series)); !slices.Equal(got, names) {
		t.Errorf("series %q\nnames  %q", got, names)
	}
	// When the first one ends, the other one takes over.
	a.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for scrape(t, at) == "" {
		select {
		case <-ctx.Done():
			t.Fatal("no engine took over")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A port of another program is an error, and so is text that is not an address.
func TestExportRefused(t *testing.T) {
	folder(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := Open("")
	defer e.Close()
	if _, err := e.Export(l.Addr().String()); err == nil || !strings.HasSuffix(err.Error(), ": address already in use") {
		t.Errorf("%v", err)
	}
	if _, err := e.Export("9400"); err == nil || !strings.Contains(err.Error(), `such as ":9400"`) {
		t.Errorf("%v", err)
	}
	if at, err := e.Export("127.0.0.1:0"); err != nil || at == "" {
		t.Errorf("after a failure: %q, %v", at, err)
	}
}

// Columns have the names of the metrics.
func TestHeads(t *testing.T) {
	var heads []string
	for i := range Metrics {
		heads = append(heads, Metrics[i].Head())
		if m := &Metrics[i]; m.Help == "" || !regexp.MustCompile(`^[a-z_]+$`).MatchString(m.Name) {
			t.Errorf("%+v", m)
		}
	}
	for _, want := range []string{"waiting", "batches/s", "limit", "cache", "requests/s", "memory", "read/s"} {
		if !slices.Contains(heads, want) {
			t.Errorf("no %q in %q", want, heads)
		}
	}
}

func TestScript(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "unknown"},
		{"/usr/bin/python3 -u train.py --lr 1", "train.py"},
		{"python -m trainer.main x", "trainer.main"},
		{"python -c pass", "python"},
		{"/opt/train --fast", "train"},
		{"python /x/a\x1bb.py", "a_b.py"},
	} {
		if got := scriptOf(strings.Fields(c.args)); got != c.want {
			t.Errorf("%q: %q, should be %q", c.args, got, c.want)
		}
	}
}
